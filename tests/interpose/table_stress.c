/* Many threads and processes on one table: writers out of order, readers that check what they were promised, names
 * made, renamed, removed and listed all the time. Run plain and under sanitizers by test_table_stress.py.
 *
 * A reader that is let through at [start, end) must find every byte of it: writers mark each 64-byte block in a shared
 * array before they publish it. Usage: table_stress SECONDS threads|processes
 */
#include "../../native/interpose/table_sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 4
#define BLOCKS 4096u
#define BLOCK 64u
#define WRITERS 2

static struct shared {
    _Atomic uint32_t stop, failures, rounds[FILES];
    _Atomic uint64_t reads, listed;
    _Atomic uint8_t there[FILES][1 << 20]; /* one per block; rounds follow each other */
} *shared;

static char rules[4096];

static uint32_t make_rules(void) {
    struct ps_rules_head *head = (struct ps_rules_head *)rules;
    struct ps_rules_app *apps = (struct ps_rules_app *)(head + 1);
    struct ps_rules_entry *entries = (struct ps_rules_entry *)(apps + 2);
    char *strings = (char *)(entries + 4);
    memcpy(strings, "pcf*d*d", 7);
    apps[0] = (struct ps_rules_app){.name_at = 0, .name_bytes = 1, .instances = 1};
    apps[1] = (struct ps_rules_app){.name_at = 1, .name_bytes = 1, .instances = 1, .before = 1};
    entries[0] = (struct ps_rules_entry){.kind = PS_OUTPUT, .app = 0, .pattern_at = 2, .pattern_bytes = 2};
    entries[1] = (struct ps_rules_entry){.kind = PS_FILE_RULE, .fire = PS_NO_UPDATE, .pattern_at = 2, .pattern_bytes = 2};
    entries[2] = (struct ps_rules_entry){.kind = PS_OUTPUT, .app = 0, .pattern_at = 4, .pattern_bytes = 2};
    entries[3] = (struct ps_rules_entry){.kind = PS_DIR_RULE, .fire = PS_NO_UPDATE, .pattern_at = 6, .pattern_bytes = 1};
    uint32_t total = (uint32_t)(strings + 7 - rules);
    *head = (struct ps_rules_head){PS_RULES_MAGIC, PS_VERSION, total, 2, 4, 7, 0, 0};
    return total;
}

static uint32_t file_slot(uint32_t file) {
    char name[8];
    return ps_obtain(name, (size_t)snprintf(name, sizeof name, "f%u", file));
}

static void fail(const char *what, uint64_t at) {
    if (atomic_fetch_add(&shared->failures, 1) < 5) fprintf(stderr, "stress: %s at %llu\n", what, (unsigned long long)at);
}

/* Writer `self` of WRITERS writes its share of each file's blocks, in a shuffled order within a window. */
static void writes(uint32_t self) {
    unsigned seed = self * 7919 + 1;
    uint32_t order[64];
    for (uint64_t window = 0; window + 64 < (1 << 20) && !atomic_load(&shared->stop); window += 64)
        for (uint32_t file = 0; file < FILES; file++) {
            for (uint32_t i = 0; i < 64; i++) order[i] = i;
            for (uint32_t i = 63; i > 0; i--) {
                uint32_t j = (uint32_t)rand_r(&seed) % (i + 1), kept = order[i];
                order[i] = order[j], order[j] = kept;
            }
            for (uint32_t i = 0; i < 64; i++) {
                uint64_t block = window + order[i];
                if (block % WRITERS != self) continue;
                atomic_store_explicit(&shared->there[file][block], 1, memory_order_relaxed);
                ps_written(file_slot(file), block * BLOCK, (block + 1) * BLOCK);
            }
        }
}

static void reads(uint32_t self) {
    unsigned seed = self * 104729 + 3;
    uint64_t at = 0;
    uint32_t file = self % FILES;
    while (!atomic_load(&shared->stop) && at + 8 < (1 << 20)) {
        uint64_t blocks = 1 + (uint64_t)rand_r(&seed) % 4;
        if (ps_wait_range(file_slot(file), 1, at * BLOCK, (at + blocks) * BLOCK, -1)) break;
        if (atomic_load(&shared->stop)) break;
        for (uint64_t i = at; i < at + blocks; i++)
            if (!atomic_load_explicit(&shared->there[file][i], memory_order_relaxed)) fail("a byte that is not there", i);
        at += blocks;
        atomic_fetch_add(&shared->reads, 1);
    }
}

static void makes_names(uint32_t self, uint32_t process) {
    char name[64], other[64];
    for (uint32_t i = 0; !atomic_load(&shared->stop); i++) {
        size_t bytes = (size_t)snprintf(name, sizeof name, "d/%u-%u", self, i % 20000);
        uint32_t slot = ps_obtain(name, bytes);
        if (slot == PS_NONE) break;
        uint32_t holding = ps_writer_opened(process, slot, 0, PS_OPENED_EMPTY);
        ps_written(slot, 0, 10);
        if (i % 3 == 0) {
            size_t other_bytes = (size_t)snprintf(other, sizeof other, "d/r%u-%u", self, i % 500);
            ps_renamed(name, bytes, other, other_bytes, 0);
            ps_written(slot, 10, 20);
            if (atomic_load(&ps_slot(ps_now(slot))->solid) < 20) fail("a write lost in a rename", i);
        }
        ps_writer_closed(process, holding);
        if (i % 7 == 0) ps_removed(slot, 0);
    }
}

static void lists(void) {
    uint32_t directory = ps_obtain("d", 1), entry = PS_NONE;
    while (!atomic_load(&shared->stop)) {
        if (ps_wait_entry(directory, 1, &entry) || entry == PS_NONE) break;
        atomic_fetch_add(&shared->listed, 1);
    }
}

static void forks_away(uint32_t process) { /* children that hold what their maker holds, over and over */
    while (!atomic_load(&shared->stop)) {
        uint32_t child = ps_process_fork(process);
        if (child == PS_NONE) fail("no process slot", 0);
        ps_process_reap(child);
    }
}

static uint32_t base;

static void *work(void *role) {
    uint32_t number = (uint32_t)(uintptr_t)role;
    if (number < WRITERS) writes(number);
    else if (number < WRITERS + FILES) reads(number);
    else if (number < WRITERS + FILES + 2) makes_names(number, base);
    else if (number == WRITERS + FILES + 2) lists();
    else forks_away(base);
    return NULL;
}
#define ROLES (WRITERS + FILES + 4)

static void run_threads(double seconds) {
    pthread_t threads[ROLES];
    struct ps_record records[512];
    for (uintptr_t i = 0; i < ROLES; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (uint64_t until = ps_clock() + (uint64_t)(seconds * 1e9); ps_clock() < until;) {
        ps_drain(records, 512);
        ps_overflowed();
        ps_wait_journal(5);
    }
    atomic_store(&shared->stop, 1);
    ps_abort("stress is over");
    for (uint32_t i = 0; i < ROLES; i++) pthread_join(threads[i], NULL);
}

static void run_processes(double seconds) {
    pid_t pids[ROLES];
    struct ps_record records[512];
    unsigned seed = 5;
    for (uint32_t i = 0; i < ROLES; i++)
        if (!(pids[i] = fork())) {
            bool adopted;
            base = ps_process_begin(i < WRITERS || i >= WRITERS + FILES ? 0 : 1, -1, &adopted);
            work((void *)(uintptr_t)i);
            _exit(0);
        }
    for (uint64_t until = ps_clock() + (uint64_t)(seconds * 1e9); ps_clock() < until;) {
        ps_drain(records, 512);
        ps_overflowed();
        ps_wait_journal(5);
        uint32_t victim = WRITERS + FILES + (uint32_t)rand_r(&seed) % 4; /* one that nobody waits for */
        if (rand_r(&seed) % 8 == 0) {
            kill(pids[victim], SIGKILL);
            waitpid(pids[victim], NULL, 0);
            if (!(pids[victim] = fork())) {
                bool adopted;
                base = ps_process_begin(0, -1, &adopted);
                work((void *)(uintptr_t)victim);
                _exit(0);
            }
        }
    }
    atomic_store(&shared->stop, 1);
    ps_abort("stress is over");
    for (uint32_t i = 0; i < ROLES; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        if (status) fail("a process died", i);
    }
}

int main(int count, char **words) {
    char path[64];
    const char *roots[] = {"/nowhere"};
    bool adopted;
    if (count != 3) return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(path, sizeof path, "/dev/shm/penstock-stress-%d", (int)getpid());
    int error = ps_create(path, "stress", roots, 1, &(struct ps_capacities){.ring = 256}, rules, make_rules(), 0);
    unlink(path);
    if (error) return 3;
    ps_serve(PS_SERVER_RUNS);
    base = ps_process_begin(0, -1, &adopted);
    for (uint32_t file = 0; file < FILES; file++) ps_writer_opened(base, file_slot(file), 0, PS_OPENED_EMPTY);
    if (words[2][0] == 't') run_threads(atof(words[1]));
    else run_processes(atof(words[1]));
    printf("%llu reads, %llu listed, %u slots, %u failures\n", (unsigned long long)shared->reads,
           (unsigned long long)shared->listed, ps->slots_used, shared->failures);
    return shared->failures || !shared->reads ? 1 : 0;
}
