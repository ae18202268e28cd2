/* Waiting: each wait is one question asked again whenever its slot's futex word moves.
 *
 * A sleeper announces itself (`waiters`, and the end of its range in `wanted`), asks once more and only then sleeps, so
 * no news is lost between. It wakes at the latest every 200 ms to see that the server lives, and after 3 ms without
 * news it asks the kernel too. A reader whose waits are short and follow each other asks for more than it needs, so a
 * fast writer of small records wakes it once per many of them.
 */
#include "table_sys.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#define MS UINT64_C(1000000)
#define SLEEP_ON PS_WOULD_WAIT
#define MOST_ASKED (UINT64_C(1) << 20)
#define EAGER_NS (1 * MS)  /* how long an eager reader lets its own bytes lie */
#define WITNESS_NS (3 * MS)
#define ALIVE_NS (200 * MS)
#define NOTED_NS (100 * MS)

struct wait {
    uint32_t slot, app, kind;
    uint64_t start, end;
    int fd;
    uint32_t *entry; /* of listings */
    int (*verdict)(struct wait *wait, uint32_t slot);
};

/* ---- verdicts: 0 go on, SLEEP_ON, or an errno value -------------------------------------------------------------- */

static int failure(uint32_t slot, uint64_t failed) {
    uint32_t bytes, app_bytes;
    const char *name = ps_name(slot, &bytes);
    uint32_t app = (uint32_t)__builtin_ctzll(failed);
    const char *app_name = ps_app_name(app, &app_bytes);
    ps_say("penstock: '%.*s' is not complete and never will be: its producer '%.*s' %s", (int)bytes, name, (int)app_bytes,
           app_name, ps_apps[app].how[0] ? ps_apps[app].how : "failed");
    return EIO;
}

static bool is_remote(uint32_t slot) { return atomic_load(&ps_slots[slot].flags) & PS_REMOTE; }

/* What holds for every wait that is not satisfied: nobody left to wait for, or no hope. */
static int hope(uint64_t awaited, uint32_t slot) {
    if (atomic_load(&ps->aborted)) {
        ps_say("penstock: %s", ps->abort_text);
        return EIO;
    }
    if (!awaited) return 0;
    if (!is_remote(slot)) { /* else the end of its producers, elsewhere, brings no bytes here */
        uint64_t over = atomic_load(&ps->over), failed = awaited & atomic_load(&ps->failed);
        if (failed) return failure(slot, failed);
        if (!(awaited & ~over)) return 0;
    }
    if (atomic_load(&ps->server_state) == PS_SERVER_STOPS) {
        ps_say("penstock: workflow '%s' was stopped", ps->workflow);
        return EIO;
    }
    return SLEEP_ON;
}

static int otherwise(const struct wait *wait, uint32_t slot) {
    return hope(ps_awaited_of(ps_slots + slot, wait->app), slot);
}

static int is_born(struct wait *wait, uint32_t slot) {
    if (atomic_load(&ps_slots[slot].flags) & (PS_BORN | PS_COMMITTED)) return 0;
    return otherwise(wait, slot);
}

static int is_committed(struct wait *wait, uint32_t slot) {
    if (atomic_load(&ps_slots[slot].flags) & PS_COMMITTED) return 0;
    return otherwise(wait, slot);
}

static int is_readable(struct wait *wait, uint32_t slot) {
    struct ps_slot *s = ps_slots + slot;
    uint32_t flags = atomic_load(&s->flags);
    if (wait->start < atomic_load(&s->punched)) {
        uint32_t bytes;
        const char *name = ps_name(slot, &bytes);
        ps_violation(slot, PS_READ_PUNCHED, wait->start);
        ps_say("penstock: byte %llu of '%.*s' was given back after all its consumers had read it; set no limit for it",
               (unsigned long long)wait->start, (int)bytes, name);
        return EIO;
    }
    if (flags & PS_COMMITTED) return 0;
    if ((flags & PS_STREAMED) && ps_covered(slot, wait->start, wait->end)) return 0;
    return otherwise(wait, slot);
}

static int has_entry(struct wait *wait, uint32_t slot) {
    int final = is_committed(wait, slot); /* before the look at the entries: none may slip in between */
    uint32_t next = ps_next_entry(slot, wait->app, *wait->entry);
    if (next == PS_NONE && final == SLEEP_ON) return SLEEP_ON;
    if (next == PS_NONE && final != 0) return final;
    *wait->entry = next;
    return 0;
}

static int has_room(struct wait *wait, uint32_t slot) {
    if (ps_take_room(slot, wait->start, wait->end)) return 0;
    if (atomic_load(&ps->aborted) || atomic_load(&ps->server_state) == PS_SERVER_STOPS) return 0; /* writers go on */
    return SLEEP_ON;
}

/* Its mode came from another node with its commit, and will not change here. */
static int is_executable(struct wait *wait, uint32_t slot) {
    int final = is_committed(wait, slot);
    uint32_t bytes;
    uint64_t size;
    unsigned mode;
    bool of_this_run;
    if (final || is_remote(slot)) return final;
    const char *name = ps_name(slot, &bytes);
    if (ps_stat_name(name, bytes, &size, &mode, &of_this_run) || !S_ISREG(mode) || mode & 0111) return 0;
    return otherwise(wait, slot);
}

static int is_in_turn(struct wait *wait, uint32_t slot) {
    uint64_t before = ps_apps[wait->app].before, failed = before & atomic_load(&ps->failed);
    if (!failed) return hope(before, slot);
    uint32_t bytes, app_bytes;
    const char *name = ps_name(slot, &bytes), *app_name = ps_app_name((uint32_t)__builtin_ctzll(failed), &app_bytes);
    ps_say("penstock: %.*s is not started: '%.*s', a step before its own, failed", (int)bytes, name, (int)app_bytes, app_name);
    return EIO;
}

/* ---- sleeping --------------------------------------------------------------------------------------------------- */

/* This thread's last range wait, for asking ahead. */
static __thread struct {
    uint32_t slot;
    bool was_short;
    uint64_t ask, ended;
} eager __attribute__((tls_model("initial-exec")));

static uint64_t bytes_to_ask(const struct wait *wait, uint64_t now) {
    uint64_t own = wait->end - wait->start;
    if (eager.slot != wait->slot || now - eager.ended > 2 * MS || own >= MOST_ASKED) return own;
    uint64_t ask = eager.was_short ? eager.ask * 2 : eager.ask / 4;
    uint64_t limit = atomic_load(&ps->limit), most = limit && PS_GRAIN(limit) < MOST_ASKED ? PS_GRAIN(limit) : MOST_ASKED;
    return ask < own ? own : ask > most && most > own ? most : ask;
}

/* A writer that is held for want of room may write what somebody waits for: the first who does wakes it. */
static void want(struct ps_slot *s, uint64_t end) {
    uint64_t wanted = atomic_load(&s->wanted);
    while (end < wanted && !atomic_compare_exchange_weak(&s->wanted, &wanted, end)) {}
    if (wanted != PS_NOTHING_WANTED || !atomic_load(&ps->limit)) return;
    atomic_fetch_add(&s->seq, 1);
    ps_futex_wake(&s->seq);
}

static struct ps_waiting *show(const struct wait *wait, uint64_t now) {
    if (ps_self == PS_NONE) return NULL;
    struct ps_waiting *waits = ((struct ps_process *)((char *)ps + ps->processes_at))[ps_self].waits;
    for (uint32_t i = 0; i < PS_WAITS; i++) {
        uint32_t nothing = PS_WAIT_NOTHING;
        if (!atomic_compare_exchange_strong(&waits[i].kind, &nothing, PS_WAIT_CLAIMED)) continue;
        waits[i].slot = wait->slot;
        waits[i].start = wait->start;
        waits[i].end = wait->end;
        waits[i].since_ns = now;
        atomic_store(&waits[i].kind, wait->kind);
        return waits + i;
    }
    return NULL;
}

/* A program may have made the name without the library. */
static bool found_on_disk(uint32_t slot) {
    uint32_t bytes;
    uint64_t size;
    unsigned mode;
    bool of_this_run;
    const char *name = ps_name(slot, &bytes);
    if (ps_stat_name(name, bytes, &size, &mode, &of_this_run) || !of_this_run) return false;
    bool directory = S_ISDIR(mode);
    bool declared = atomic_load(&ps_slots[slot].flags) & (directory ? PS_DECLARED_DIRECTORY : PS_DECLARED);
    unsigned what = directory ? PS_A_DIRECTORY : S_ISLNK(mode) ? PS_A_SYMLINK : PS_A_FILE;
    ps_born(slot, PS_APP_OTHER, what | (declared ? 0 : PS_NOT_COUNTED));
    return true;
}

static void ask_kernel(const struct wait *wait, uint32_t slot) {
    if (wait->kind == PS_WAIT_BORN && !is_remote(slot)) found_on_disk(slot);
    if (wait->kind == PS_WAIT_RANGE && (atomic_load(&ps_slots[slot].flags) & PS_STREAMED))
        ps_seen_by_kernel(slot, wait->fd, wait->start, wait->end);
}

/* Sleeping with a time limit is never restarted by the kernel, so ask whether the program wants its calls to be:
 * with SA_RESTART on all its handlers it does. */
static bool calls_restart(void) {
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action;
    for (long signal = 1; signal <= 64; signal++) {
        memset(&action, 0, sizeof action);
        if (ps_sys(SYS_rt_sigaction, signal, 0, (long)&action, 8, 0, 0)) continue;
        if (action.handler != (void *)SIG_DFL && action.handler != (void *)SIG_IGN && !(action.flags & SA_RESTART)) return false;
    }
    return true;
}

static uint64_t pause_after(uint64_t slept, bool asks_ahead) {
    if (asks_ahead) return EAGER_NS;
    return slept < WITNESS_NS ? WITNESS_NS : slept < 20 * MS ? 10 * MS : slept < ALIVE_NS ? 50 * MS : ALIVE_NS;
}

/* After a sleep that brought no news. */
static int without_news(const struct wait *wait, uint32_t slot, uint64_t slept, uint64_t *checked) {
    if (slept >= WITNESS_NS) ask_kernel(wait, slot);
    if (slept - *checked < ALIVE_NS) return 0;
    *checked = slept;
    if (ps_server_lives()) return 0;
    uint32_t bytes;
    const char *name = ps_name(slot, &bytes);
    ps_say("penstock: the server of workflow '%s' is gone; nothing tells when '%.*s' is complete", ps->workflow, (int)bytes, name);
    return EIO;
}

/* A reader that asks for so much at once that the limit may keep its writer from ever writing it. */
static void let_off_if_too_large(const struct wait *wait) {
    uint64_t limit = atomic_load(&ps->limit);
    struct ps_slot *s = ps_slots + ps_now(wait->slot);
    if (!limit || wait->end - wait->start <= limit / 3 || !(atomic_load(&s->flags) & PS_TEMPORARY_FILE)) return;
    ps_set_flags(wait->slot, PS_READS_BACK, 0);
}

static int sleep_until(struct wait *wait) {
    uint64_t began = ps_clock(), slept = 0, checked = 0;
    uint64_t ask = wait->kind == PS_WAIT_RANGE ? bytes_to_ask(wait, began) : 0;
    bool ahead = ask > wait->end - wait->start, noted = false;
    if (wait->kind == PS_WAIT_RANGE) let_off_if_too_large(wait);
    struct ps_waiting *shown = show(wait, began);
    int result = SLEEP_ON;
    while (result == SLEEP_ON) {
        uint32_t slot = ps_now(wait->slot);
        if (!noted && (slept >= NOTED_NS || is_remote(slot))) {
            noted = true;
            ps_note(PS_NOTE_WAITING, slot, wait->kind, wait->end);
        }
        struct ps_slot *s = ps_slots + slot;
        atomic_fetch_add(&s->waiters, 1);
        if (ask) want(s, wait->start + ask);
        uint32_t seq = atomic_load(&s->seq);
        result = wait->verdict(wait, slot);
        if (result == SLEEP_ON && shown && !atomic_load(&shown->since_ns)) result = 0;
        long woken = result == SLEEP_ON ? ps_futex_wait(&s->seq, seq, pause_after(slept, ahead)) : 0;
        atomic_fetch_sub(&s->waiters, 1);
        if (result != SLEEP_ON) break;
        slept = ps_clock() - began;
        if (woken == -ETIMEDOUT) {
            if (ahead) {
                ahead = false;
                ask = wait->end - wait->start;
                continue;
            }
            int gone = without_news(wait, slot, slept, &checked);
            if (gone) result = gone;
        } else if (woken == -EINTR && !calls_restart()) {
            result = wait->verdict(wait, slot);
            if (result == SLEEP_ON) result = EINTR;
        }
    }
    if (shown) atomic_store(&shown->kind, PS_WAIT_NOTHING);
    if (ask) {
        eager.slot = wait->slot;
        eager.ask = ask;
        eager.ended = began + slept;
        eager.was_short = slept < EAGER_NS;
    }
    if (noted) ps_note(PS_NOTE_WENT_ON, ps_now(wait->slot), wait->kind, slept);
    return result;
}

int ps_ask(uint32_t kind, uint32_t slot, uint32_t app, uint64_t start, uint64_t end) {
    static int (*const verdicts[])(struct wait *, uint32_t) = {
        [PS_WAIT_BORN] = is_born, [PS_WAIT_RANGE] = is_readable, [PS_WAIT_COMMITTED] = is_committed, [PS_WAIT_ROOM] = has_room};
    struct wait wait = {.slot = slot, .app = app, .kind = kind, .start = start, .end = end};
    return verdicts[kind](&wait, ps_now(slot));
}

static int wait_for(struct wait *wait) {
    int result = wait->verdict(wait, ps_now(wait->slot));
    return result == SLEEP_ON ? sleep_until(wait) : result;
}

/* ---- the waits -------------------------------------------------------------------------------------------------- */

int ps_wait_born(uint32_t slot, uint32_t app) {
    return wait_for(&(struct wait){.slot = slot, .app = app, .kind = PS_WAIT_BORN, .fd = -1, .verdict = is_born});
}

int ps_wait_range_slowly(uint32_t slot, uint32_t app, uint64_t start, uint64_t end, int fd) {
    if (end < start) end = UINT64_MAX >> 1; /* an absurd length: only commit will do */
    return wait_for(&(struct wait){
        .slot = slot, .app = app, .kind = PS_WAIT_RANGE, .start = start, .end = end, .fd = fd, .verdict = is_readable});
}

int ps_wait_committed_slowly(uint32_t slot, uint32_t app) {
    return wait_for(&(struct wait){.slot = slot, .app = app, .kind = PS_WAIT_COMMITTED, .fd = -1, .verdict = is_committed});
}

int ps_wait_executable(uint32_t slot, uint32_t app) {
    return wait_for(&(struct wait){.slot = slot, .app = app, .kind = PS_WAIT_COMMITTED, .fd = -1, .verdict = is_executable});
}

int ps_wait_turn(uint32_t slot, uint32_t app) {
    return wait_for(&(struct wait){.slot = slot, .app = app, .kind = PS_WAIT_TURN, .fd = -1, .verdict = is_in_turn});
}

int ps_wait_room_slowly(uint32_t slot, uint32_t app, uint64_t start, uint64_t end) {
    return wait_for(&(struct wait){
        .slot = slot, .app = app, .kind = PS_WAIT_ROOM, .start = start, .end = end, .fd = -1, .verdict = has_room});
}

int ps_wait_entry(uint32_t directory, uint32_t app, uint32_t *entry) {
    struct ps_slot *d = ps_slots + ps_now(directory);
    if (!ps_awaited_of(d, app) || d->directory.fire == PS_UPDATE) {
        *entry = PS_NONE;
        return ps_wait_committed(directory, app);
    }
    return wait_for(&(struct wait){
        .slot = directory, .app = app, .kind = PS_WAIT_ENTRY, .fd = -1, .entry = entry, .verdict = has_entry});
}

uint32_t ps_next_entry(uint32_t directory, uint32_t app, uint32_t entry) {
    struct ps_slot *d = ps_slots + ps_now(directory);
    uint32_t next = entry == PS_NONE ? atomic_load(&d->first_entry) : atomic_load(&ps_slots[entry].next_entry);
    for (; next != PS_NONE; next = atomic_load(&ps_slots[next].next_entry)) {
        struct ps_slot *s = ps_slots + next;
        if ((atomic_load(&s->flags) & (PS_BORN | PS_MOVED)) == PS_BORN && ps_listable(next, app, 0) &&
            ps_listed_early(directory, next))
            return next;
    }
    return PS_NONE;
}

static bool is_ruled(const struct ps_rule *rule) { return rule->serial != 0xffff; }

static bool is_implied(const struct ps_rule *rule) {
    const struct ps_rules_head *head = (const void *)((const char *)ps + ps->rules_at);
    return is_ruled(rule) && head->first_implied && rule->serial >= head->first_implied;
}

bool ps_listed_early(uint32_t directory, uint32_t entry) {
    const struct ps_slot *s = ps_slots + entry;
    if (!is_implied(&ps_slots[ps_now(directory)].directory)) return true;
    return is_ruled(atomic_load(&s->flags) & PS_DIRECTORY ? &s->directory : &s->file);
}

bool ps_show(uint32_t entry) {
    ps_raise_flags(ps_slots + entry, PS_SHOWN); /* before the look: who takes the name away looks for it afterwards */
    return (atomic_load(&ps_slots[entry].flags) & (PS_BORN | PS_MOVED)) == PS_BORN;
}

bool ps_listable(uint32_t slot, uint32_t app, uint64_t births) {
    struct ps_slot *s = ps_slots + slot;
    uint64_t producers = ps_producers(s), later = ps_apps[app].after | UINT64_C(1) << app;
    if (!producers || (producers & ~later)) return true;
    return (producers >> app & 1u) && atomic_load(&s->serial) <= births;
}
