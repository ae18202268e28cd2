/* The table itself: making and mapping the file, finding and adding slots.
 *
 * A lookup reads a bucket chain without a lock: chains grow at their head, and what leaves one keeps its own link, so a
 * reader that stands on it finds the rest. Everything that adds goes through the table mutex.
 */
#include "table_sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct ps_header *ps;
struct ps_slot *ps_slots;
struct ps_app *ps_apps;
uint32_t ps_self = PS_NONE;
uint32_t ps_self_app = PS_APP_OTHER;

static uint64_t whole_pages(uint64_t bytes) { return (bytes + 4095) & ~UINT64_C(4095); }
static uint32_t or_default(uint32_t value, uint32_t otherwise) { return value ? value : otherwise; }
static uint32_t power_of_two(uint32_t least) {
    uint32_t power = 64;
    while (power < least && power < 1u << 31) power <<= 1;
    return power;
}

static void lay_out(struct ps_header *header, const struct ps_capacities *c, const void *rules, uint32_t rules_bytes) {
    header->magic = PS_MAGIC;
    header->version = PS_VERSION;
    header->layout = PS_LAYOUT;
    header->n_slots = or_default(c->slots, 1u << 20);
    header->n_buckets = power_of_two(header->n_slots / 4);
    header->n_processes = or_default(c->processes, 1u << 14);
    header->n_blocks = or_default(c->blocks, 1u << 12);
    header->n_extents = or_default(c->extents, 1u << 20);
    header->n_ring = power_of_two(or_default(c->ring, 1u << 14));
    header->names_bytes = c->names_bytes ? c->names_bytes : (uint64_t)header->n_slots * 256;
    header->rules_bytes = rules_bytes;
    uint64_t at = whole_pages(sizeof *header);
    header->roots_at = at, at += PS_ROOTS * sizeof(struct ps_root);
    header->apps_at = at, at += PS_APPS * sizeof(struct ps_app);
    header->rules_at = at, at += whole_pages(rules_bytes);
    header->index_at = at, at += whole_pages(ps_index_bytes(rules));
    header->processes_at = at, at += whole_pages((uint64_t)header->n_processes * sizeof(struct ps_process));
    header->blocks_at = at, at += whole_pages((uint64_t)header->n_blocks * sizeof(struct ps_block));
    header->buckets_at = at, at += whole_pages((uint64_t)header->n_buckets * 4);
    header->slots_at = at, at += whole_pages((uint64_t)header->n_slots * sizeof(struct ps_slot));
    header->names_at = at, at += whole_pages(header->names_bytes);
    header->extents_at = at, at += whole_pages((uint64_t)header->n_extents * sizeof(struct ps_extent));
    header->ring_at = at, at += whole_pages((uint64_t)header->n_ring * sizeof(struct ps_cell));
    header->total_bytes = at;
}

static void make_mutexes(struct ps_header *header) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&header->mutex, &kind);
    pthread_mutex_init(&header->extents_mutex, &kind);
    for (uint32_t i = 0; i < PS_STRIPES; i++) pthread_mutex_init(&header->stripes[i], &kind);
    pthread_mutexattr_destroy(&kind);
}

static uint64_t wall_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Files get times of the coarse or of the fine clock, as the kernel pleases: what was written before this has at most
 * the time returned, what comes after has more. */
static uint64_t next_tick(void) {
    uint64_t now = wall_clock(CLOCK_REALTIME);
    struct timespec pause = {.tv_nsec = 500000};
    while (wall_clock(CLOCK_REALTIME_COARSE) <= now) clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    return now;
}

static void fill(const char *workflow, const char *const *roots, uint32_t n_roots, const void *rules) {
    const struct ps_rules_head *head = rules;
    memcpy((char *)ps + ps->rules_at, rules, ps->rules_bytes);
    ps_index_rules((char *)ps + ps->rules_at, (struct ps_rules_index *)((char *)ps + ps->index_at));
    strncpy(ps->workflow, workflow, sizeof ps->workflow - 1);
    struct ps_root *root = (struct ps_root *)((char *)ps + ps->roots_at);
    for (uint32_t i = 0; i < n_roots; i++) {
        root[i].bytes = (uint32_t)strlen(roots[i]);
        memcpy(root[i].path, roots[i], root[i].bytes);
    }
    ps->n_roots = n_roots;
    ps->n_apps = head->n_apps;
    const struct ps_rules_app *apps = (const struct ps_rules_app *)(head + 1);
    for (uint32_t i = 0; i < head->n_apps; i++) {
        ps_apps[i].flags = apps[i].flags;
        ps_apps[i].instances = apps[i].instances;
        ps_apps[i].before = apps[i].before;
        for (uint32_t other = 0; other < head->n_apps; other++)
            if (apps[other].before >> i & 1u) ps_apps[i].after |= UINT64_C(1) << other;
    }
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Make the kernel find memory for a part of the table now. The file is sparse; on a full tmpfs the first touch of a
 * page would be a SIGBUS. Kernels before 5.14 cannot tell. */
static bool populate(uint64_t at, uint64_t bytes) {
    uint64_t end = whole_pages(at + bytes);
    at &= ~UINT64_C(4095);
    long error = ps_sys(SYS_madvise, (long)((char *)ps + at), (long)(end - at), MADV_POPULATE_WRITE, 0, 0, 0);
    return error != -EFAULT && error != -ENOMEM;
}

static const uint32_t chunks[PS_AREAS] = {
    [PS_PROCESSES] = 1 << 16, [PS_BLOCKS] = 1 << 16, [PS_SLOTS] = 1 << 20, [PS_NAMES] = 1 << 18, [PS_EXTENTS] = 1 << 18};

bool ps_grow_slowly(enum ps_area area, uint64_t bytes) {
    const uint64_t starts[] = {ps->processes_at, ps->blocks_at, ps->slots_at, ps->names_at, ps->extents_at};
    const uint64_t ends[] = {ps->blocks_at, ps->buckets_at, ps->names_at, ps->extents_at, ps->ring_at};
    uint64_t ready = atomic_load(&ps->ready[area]), chunk = chunks[area];
    uint64_t target = (bytes + chunk - 1) / chunk * chunk;
    if (target > ends[area] - starts[area]) target = ends[area] - starts[area];
    if (!populate(starts[area] + ready, target - ready)) return false;
    while (ready < target && !atomic_compare_exchange_weak(&ps->ready[area], &ready, target)) {}
    return true;
}

/* What is touched all over from the start. */
static bool populate_the_rest(void) {
    return populate(0, ps->processes_at) && populate(ps->buckets_at, (uint64_t)ps->n_buckets * 4) &&
           populate(ps->ring_at, (uint64_t)ps->n_ring * sizeof(struct ps_cell)) && ps_grow(PS_PROCESSES, 1) &&
           ps_grow(PS_SLOTS, 1) && ps_grow(PS_NAMES, 1);
}

static int map(const char *path, int flags) {
    long fd = ps_sys(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0600, 0, 0);
    if (fd < 0) return (int)-fd;
    struct ps_header start;
    int error = EINVAL;
    if (ps_sys(SYS_pread64, fd, (long)&start, sizeof start, 0, 0, 0) == (long)sizeof start && start.magic == PS_MAGIC &&
        start.version == PS_VERSION && start.layout == PS_LAYOUT) {
        long at = ps_sys(SYS_mmap, 0, (long)start.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        error = at < 0 && at > -4096 ? (int)-at : 0;
        if (!error) {
            ps = (struct ps_header *)at;
            ps_slots = (struct ps_slot *)((char *)ps + ps->slots_at);
            ps_apps = (struct ps_app *)((char *)ps + ps->apps_at);
        }
    }
    ps_sys(SYS_close, fd, 0, 0, 0, 0, 0);
    return error;
}

int ps_create(const char *path, const char *workflow, const char *const *roots, uint32_t n_roots,
              const struct ps_capacities *capacities, const void *rules, uint32_t rules_bytes, uint64_t limit) {
    if (ps) return EBUSY;
    if (n_roots < 1 || n_roots > PS_ROOTS || !ps_rules_valid(rules, rules_bytes)) return EINVAL;
    for (uint32_t i = 0; i < n_roots; i++)
        if (strlen(roots[i]) >= sizeof((struct ps_root *)0)->path) return ENAMETOOLONG;
    struct ps_header header = {0};
    lay_out(&header, capacities, rules, rules_bytes);
    header.limit = header.room = limit;
    header.extents_free = PS_NONE;
    header.started_ns = next_tick();
    make_mutexes(&header);
    long fd = ps_sys(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, 0, 0);
    if (fd < 0) return (int)-fd;
    long error = ps_sys(SYS_ftruncate, fd, (long)header.total_bytes, 0, 0, 0, 0);
    if (!error && ps_sys(SYS_pwrite64, fd, (long)&header, sizeof header, 0, 0, 0) != (long)sizeof header) error = -ENOSPC;
    ps_sys(SYS_close, fd, 0, 0, 0, 0, 0);
    if (!error) error = -map(path, O_RDWR);
    if (!error && !populate_the_rest()) error = -ENOSPC;
    if (error) {
        ps_detach();
        ps_sys(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0);
        return (int)-error;
    }
    fill(workflow, roots, n_roots, rules);
    return 0;
}

int ps_attach(const char *path) { return ps ? EBUSY : map(path, O_RDWR); }

void ps_detach(void) {
    if (ps) ps_sys(SYS_munmap, (long)ps, (long)ps->total_bytes, 0, 0, 0, 0);
    ps = NULL;
    ps_slots = NULL;
    ps_apps = NULL;
    ps_self = PS_NONE;
}

const char *ps_name(uint32_t slot, uint32_t *bytes) {
    *bytes = ps_slots[slot].name_bytes;
    return (const char *)ps + ps->names_at + ps_slots[slot].name_at;
}

const struct ps_root *ps_root(uint32_t which) {
    return which < ps->n_roots ? (const struct ps_root *)((const char *)ps + ps->roots_at) + which : NULL;
}

void ps_full(unsigned bit) {
    if (!(atomic_fetch_or(&ps->full, bit) & bit)) ps_note(PS_NOTE_FULL, PS_NONE, bit, 0);
}

/* ---- names to slots -------------------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *name, size_t bytes) {
    uint64_t hash = bytes * UINT64_C(0x9e3779b97f4a7c15), word;
    while (bytes >= 8) {
        memcpy(&word, name, 8);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
        name += 8, bytes -= 8;
    }
    word = 0;
    memcpy(&word, name, bytes);
    hash = (hash ^ word) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint32_t)(hash ^ hash >> 32);
}

/* Buckets and links of chains hold slot + 1, so that the zeros of a fresh file are empty chains. */
static _Atomic uint32_t *bucket_of(uint32_t hash) {
    return (_Atomic uint32_t *)((char *)ps + ps->buckets_at) + (hash & (ps->n_buckets - 1));
}

static uint32_t find(const char *name, size_t bytes, uint32_t hash) {
    uint32_t link = atomic_load_explicit(bucket_of(hash), memory_order_acquire);
    for (; link; link = atomic_load_explicit(&ps_slots[link - 1].next_in_bucket, memory_order_acquire)) {
        const struct ps_slot *s = ps_slots + link - 1;
        if (s->hash == hash && s->name_bytes == bytes && !(atomic_load_explicit(&s->flags, memory_order_relaxed) & PS_MOVED) &&
            memcmp((const char *)ps + ps->names_at + s->name_at, name, bytes) == 0)
            return link - 1;
    }
    return PS_NONE;
}

uint32_t ps_lookup(const char *name, size_t bytes) { return find(name, bytes, hash_of(name, bytes)); }

static void describe(struct ps_slot *s, const char *name, size_t bytes) {
    struct ps_class class;
    ps_classify(name, bytes, &class);
    s->producers = class.producers;
    s->makers = class.makers;
    s->consumers = class.consumers;
    s->file = class.file;
    s->directory = class.directory;
    s->flags = (class.file.fire == PS_NO_UPDATE ? PS_STREAMED : 0) | (class.producers ? PS_DECLARED : 0) |
               (class.makers ? PS_DECLARED_DIRECTORY : 0) | (class.lasting == PS_LASTS ? PS_PERMANENT_FILE : 0) |
               (class.lasting == PS_PASSES ? PS_TEMPORARY_FILE : 0);
    s->wanted = PS_NOTHING_WANTED;
    s->moved_to = s->parent = s->first_entry = s->last_entry = s->next_entry = s->extents = PS_NONE;
}

uint32_t ps_obtain_locked(const char *name, size_t bytes) {
    uint32_t hash = hash_of(name, bytes), slot = find(name, bytes, hash);
    if (slot != PS_NONE) return slot;
    uint64_t name_at = ps->names_used;
    slot = ps->slots_used;
    if (bytes > PS_NAME_MAX || bytes == 0) return PS_NONE;
    if (slot >= ps->n_slots || !ps_grow(PS_SLOTS, (slot + 1) * sizeof(struct ps_slot))) {
        ps_full(1);
        return PS_NONE;
    }
    if (name_at + bytes > ps->names_bytes || !ps_grow(PS_NAMES, name_at + bytes)) {
        ps_full(2);
        return PS_NONE;
    }
    struct ps_slot *s = ps_slots + slot;
    memcpy((char *)ps + ps->names_at + name_at, name, bytes);
    ps->names_used = name_at + bytes;
    s->name_at = name_at;
    s->name_bytes = (uint32_t)bytes;
    s->hash = hash;
    describe(s, name, bytes);
    ps->slots_used = slot + 1;
    _Atomic uint32_t *bucket = bucket_of(hash);
    atomic_store_explicit(&s->next_in_bucket, atomic_load(bucket), memory_order_relaxed);
    atomic_store_explicit(bucket, slot + 1, memory_order_release);
    ps_note(PS_NOTE_NEW, slot, 0, 0);
    return slot;
}

uint32_t ps_obtain(const char *name, size_t bytes) {
    uint32_t slot = ps_lookup(name, bytes);
    if (slot != PS_NONE || !ps_lock(&ps->mutex)) return slot;
    slot = ps_obtain_locked(name, bytes);
    ps_unlock(&ps->mutex);
    return slot;
}

/* Take a slot out of its chain; its own link stays for whoever stands on it. */
void ps_unchain_locked(uint32_t slot) {
    _Atomic uint32_t *link = bucket_of(ps_slots[slot].hash);
    while (*link && *link != slot + 1) link = &ps_slots[*link - 1].next_in_bucket;
    if (*link) atomic_store(link, atomic_load(&ps_slots[slot].next_in_bucket));
}

uint32_t ps_now(uint32_t slot) {
    while (atomic_load_explicit(&ps_slots[slot].flags, memory_order_acquire) & PS_MOVED) slot = ps_slots[slot].moved_to;
    return slot;
}

uint32_t ps_lock_slot(uint32_t slot) {
    for (;;) {
        slot = ps_now(slot);
        if (!ps_lock(ps_stripe(slot))) return PS_NONE;
        if (ps_now(slot) == slot) return slot;
        ps_unlock(ps_stripe(slot));
    }
}
