/* What the table's sources share: system calls made directly (the interposer wraps libc's), locks, wake-ups. */
#ifndef PENSTOCK_TABLE_SYS_H
#define PENSTOCK_TABLE_SYS_H

#include "table.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

/* Result of the kernel: a value, or -errno. */
static inline long ps_sys(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
    return x0;
#else
#error "penstock streams on x86_64 and aarch64 only"
#endif
}

static inline uint64_t ps_clock(void) { /* nanoseconds */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline long ps_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds) {
    struct timespec limit = {.tv_sec = (time_t)(nanoseconds / 1000000000u), .tv_nsec = (long)(nanoseconds % 1000000000u)};
    return ps_sys(SYS_futex, (long)word, FUTEX_WAIT, (long)value, (long)&limit, 0, 0);
}

static inline void ps_futex_wake(_Atomic uint32_t *word) {
    ps_sys(SYS_futex, (long)word, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

/* Everybody who sleeps at this slot looks again. The caller has changed what they wait for, with seq_cst. */
static inline void ps_wake(struct ps_slot *slot) {
    if (!atomic_load(&slot->waiters)) return;
    atomic_store(&slot->wanted, PS_NOTHING_WANTED);
    atomic_fetch_add(&slot->seq, 1);
    ps_futex_wake(&slot->seq);
}

/* False: this thread holds the lock already (a signal handler came in between); the caller does without. Half-done
 * work of a killed holder is harmless: every change is one store that leaves a valid state, at worst a record leaks. */
static inline bool ps_lock(pthread_mutex_t *mutex) {
    int error = pthread_mutex_lock(mutex);
    if (error == EOWNERDEAD) {
        pthread_mutex_consistent(mutex);
        atomic_store(&ps->orphaned, 1);
        return true;
    }
    return error == 0;
}
static inline void ps_unlock(pthread_mutex_t *mutex) { pthread_mutex_unlock(mutex); }
static inline pthread_mutex_t *ps_stripe(uint32_t slot) { return &ps->stripes[slot % PS_STRIPES]; }

void ps_recount_room(void) PS_API; /* room.c: after a process was killed */

/* Lock the stripe of what `slot` is now; returns that slot's number, PS_NONE if locked by this thread already. */
uint32_t ps_lock_slot(uint32_t slot) PS_API;

static inline void ps_raise_flags(struct ps_slot *slot, uint32_t set) { atomic_fetch_or(&slot->flags, set); }
static inline void ps_clear_flags(struct ps_slot *slot, uint32_t clear) { atomic_fetch_and(&slot->flags, ~clear); }

static inline void ps_change_flags(struct ps_slot *slot, uint32_t set, uint32_t clear) { /* in one step */
    uint32_t flags = atomic_load(&slot->flags);
    while (!atomic_compare_exchange_weak(&slot->flags, &flags, (flags & ~clear) | set)) {}
}

/* --- between the table's own sources; `_locked`: the caller holds the table mutex --------------------------------- */
PS_API uint32_t ps_obtain_locked(const char *name, size_t bytes);
PS_API void ps_unchain_locked(uint32_t slot);
PS_API void ps_born_locked(uint32_t slot, uint32_t app, unsigned what);
PS_API void ps_forget_entry_locked(uint32_t slot);
PS_API void ps_full(unsigned bit);

/* Memory for the first `bytes` of an area. False: tmpfs is full; touching it would kill the program. */
PS_API bool ps_grow_slowly(enum ps_area area, uint64_t bytes);
static inline bool ps_grow(enum ps_area area, uint64_t bytes) {
    return bytes <= atomic_load_explicit(&ps->ready[area], memory_order_relaxed) || ps_grow_slowly(area, bytes);
}

/* The rules' index: numbers of the general entries, then of the simple ones, sorted. It stands behind the rules. */
struct ps_rules_index {
    uint32_t general, simple, entries[];
};
/* Told of an entry whether it matches the name, and whether it matches something below it. */
typedef void (*ps_finding)(struct ps_class *out, uint32_t number, const struct ps_rules_entry *entry, bool matches, bool reaches);
PS_API uint64_t ps_index_bytes(const void *rules);
PS_API void ps_index_rules(const void *rules, struct ps_rules_index *index);
PS_API void ps_find_simple(const void *rules, const struct ps_rules_index *index, const char *name, size_t bytes,
                           ps_finding finding, struct ps_class *out);

/* Extents; the caller holds the slot's stripe. */
PS_API uint64_t ps_add_extent(struct ps_slot *slot, uint64_t start, uint64_t end); /* end of what it was joined to */
PS_API void ps_absorb(struct ps_slot *slot);
PS_API void ps_cut_extents(struct ps_slot *slot, uint64_t size);
PS_API uint64_t ps_high(struct ps_slot *slot);
PS_API bool ps_covered(uint32_t slot, uint64_t start, uint64_t end); /* takes the stripe itself */
PS_API bool ps_page_known_in_part(uint32_t slot, uint64_t start, uint64_t end);
/* One writer less. `closed`: in an orderly way, so an on_close file may be complete; `counts`: as one of its closes. */
PS_API void ps_let_go(uint32_t slot, bool closed, bool counts);
PS_API void ps_let_go_locked(uint32_t slot, bool closed, bool counts); /* the caller has its stripe, and loses it */
PS_API void ps_commit_if_closed(struct ps_slot *slot, uint32_t number);

/* Room (room.c). `_set_room`: under the slot's stripe; true: there is more of it now, so ps_wake_held without the stripe. */
static inline uint64_t ps_pages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; } /* by which room is taken */
PS_API bool ps_is_bounded(const struct ps_slot *slot);
PS_API bool ps_take_room(uint32_t slot, uint64_t start, uint64_t end);
PS_API void ps_take_no_room(uint32_t slot);
PS_API void ps_trim_room(uint32_t slot);
PS_API bool ps_set_room(struct ps_slot *slot, uint64_t charged, uint64_t freed);
PS_API void ps_wake_held(void);

/* Files of the managed directory, by name. */
PS_API int ps_stat_name(const char *name, size_t bytes, uint64_t *size, unsigned *mode, bool *of_this_run);
PS_API uint64_t ps_birth_of(pid_t pid, char *state); /* field 22 of /proc/pid/stat, 0 = no such process */
/* Where a line for the user goes, to be closed afterwards; NULL: stderr. A supervisor has the stderr of its program. */
extern int (*ps_say_through)(void) PS_API;
PS_API void ps_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
PS_API bool ps_seen_by_kernel(uint32_t slot, int fd, uint64_t start, uint64_t end);

#endif
