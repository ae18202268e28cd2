/* Descriptor → description. Descriptors are the kernel's; this table only says which of them lead to managed files.
 *
 * Lookups take no lock. Descriptions come from a pool that never shrinks, through a free list without locks, so that a
 * signal handler may open and close. The offset of a description is guarded by its owner word, as the kernel guards
 * the offset of a file.
 */
#include "interpose.h"

#define POOL_BITS 9u
#define POOL_CHUNKS 2048u
#define CONTENDED 0x80000000u

_Atomic(_Atomic(struct ps_description *) *) ps_descriptors[PS_CHUNKS];
struct ps_description ps_plain = {.references = 1u << 30, .flags = PS_D_PLAIN, .slot = PS_NONE, .holding = PS_NONE};

static _Atomic(struct ps_description *) pool[POOL_CHUNKS];
static _Atomic uint32_t pool_used;
static _Atomic uint64_t pool_free; /* tag << 32 | index + 1 */
static _Atomic int descriptors_end;

static void *pages(size_t bytes) {
    long found = PS_KERNEL(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found < 0 && found > -4096 ? NULL : (void *)found;
}

static struct ps_description *pool_at(uint32_t index) {
    return atomic_load_explicit(&pool[index >> POOL_BITS], memory_order_acquire) + (index & ((1u << POOL_BITS) - 1));
}

static struct ps_description *pool_take(void) {
    uint64_t head = atomic_load(&pool_free);
    while ((uint32_t)head) {
        struct ps_description *d = pool_at((uint32_t)head - 1);
        uint64_t rest = ((head >> 32) + 1) << 32 | d->next_free;
        if (atomic_compare_exchange_weak(&pool_free, &head, rest)) return d;
    }
    uint32_t index = atomic_fetch_add(&pool_used, 1), chunk = index >> POOL_BITS;
    if (chunk >= POOL_CHUNKS) {
        atomic_fetch_sub(&pool_used, 1);
        return NULL;
    }
    if (!atomic_load_explicit(&pool[chunk], memory_order_acquire)) {
        size_t bytes = sizeof(struct ps_description) << POOL_BITS;
        struct ps_description *fresh = pages(bytes), *none = NULL;
        if (!fresh) return NULL;
        if (!atomic_compare_exchange_strong(&pool[chunk], &none, fresh)) PS_KERNEL(SYS_munmap, fresh, bytes, 0, 0, 0, 0);
    }
    struct ps_description *d = pool_at(index);
    d->index = index;
    return d;
}

static void pool_give(struct ps_description *d) {
    uint64_t head = atomic_load(&pool_free), mine;
    do {
        d->next_free = (uint32_t)head;
        mine = ((head >> 32) + 1) << 32 | (d->index + 1);
    } while (!atomic_compare_exchange_weak(&pool_free, &head, mine));
}

struct ps_description *ps_description_new(uint32_t slot, int open_flags, bool waits) {
    struct ps_description *d = pool_take();
    if (!d) return NULL;
    int access = open_flags & O_ACCMODE;
    uint32_t flags = waits ? PS_D_WAITS : 0;
    if (access != O_WRONLY) flags |= PS_D_READS;
    if (access != O_RDONLY) flags |= PS_D_WRITES;
    if (open_flags & O_APPEND) flags |= PS_D_APPENDS;
    d->slot = slot;
    d->holding = PS_NONE;
    d->consumed = 0;
    atomic_store_explicit(&d->owner, 0, memory_order_relaxed);
    atomic_store_explicit(&d->offset, 0, memory_order_relaxed);
    atomic_store_explicit(&d->listing, NULL, memory_order_relaxed);
    atomic_store_explicit(&d->flags, flags, memory_order_relaxed);
    atomic_store_explicit(&d->references, 1, memory_order_release);
    return d;
}

static _Atomic(struct ps_description *) *entry_of(int fd) {
    unsigned chunk = (unsigned)fd >> PS_CHUNK_BITS;
    if (chunk >= PS_CHUNKS) return NULL;
    _Atomic(struct ps_description *) *entries = atomic_load_explicit(&ps_descriptors[chunk], memory_order_acquire);
    if (!entries) {
        size_t bytes = sizeof(struct ps_description *) << PS_CHUNK_BITS;
        _Atomic(struct ps_description *) *fresh = pages(bytes);
        if (!fresh) return NULL;
        if (atomic_compare_exchange_strong(&ps_descriptors[chunk], &entries, fresh)) entries = fresh;
        else PS_KERNEL(SYS_munmap, fresh, bytes, 0, 0, 0, 0);
    }
    return entries + ((unsigned)fd & ((1u << PS_CHUNK_BITS) - 1));
}

void ps_descriptor_set(int fd, struct ps_description *d) {
    _Atomic(struct ps_description *) *entry = entry_of(fd);
    if (!entry) return ps_description_drop(d);
    int end = atomic_load_explicit(&descriptors_end, memory_order_relaxed);
    while (end <= fd && !atomic_compare_exchange_weak(&descriptors_end, &end, fd + 1)) {}
    if (fd <= 2) atomic_fetch_or(&d->flags, PS_D_SHARED); /* libc's own stdin, stdout, stderr move it unseen */
    struct ps_description *before = atomic_exchange(entry, d);
    if (before) ps_description_drop(before);
}

struct ps_description *ps_descriptor_take(int fd) {
    if (!ps_description(fd)) return NULL;
    return atomic_exchange(entry_of(fd), NULL);
}

void ps_descriptor_copy(int from, int to) {
    struct ps_description *d = ps_description(from);
    if (!d) {
        struct ps_description *before = ps_descriptor_take(to);
        if (before) ps_description_drop(before);
        return;
    }
    ps_description_keep(d);
    ps_descriptor_set(to, d);
}

void ps_description_keep(struct ps_description *d) {
    if (d != &ps_plain) atomic_fetch_add_explicit(&d->references, 1, memory_order_relaxed);
}

static void finish(struct ps_description *d) {
    bool locked = ps_description_lock(d); /* a thread in the middle of a read or write ends it first */
    uint32_t holding = d->holding;
    d->holding = PS_NONE;
    void *listing = atomic_exchange(&d->listing, NULL);
    if (d->flags & PS_D_WAITS && d->consumed) ps_consumed(d->slot, ps_self_app, d->consumed);
    if (holding != PS_NONE && ps_self != PS_NONE) {
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        ps_writer_closed(ps_self, holding);
        ps_quiet_end(&quiet);
    }
    if (locked) ps_description_unlock(d);
    pool_give(d);
    if (listing) ps_listing_free(listing);
}

void ps_description_drop(struct ps_description *d) {
    if (d == &ps_plain) return;
    if (atomic_fetch_sub_explicit(&d->references, 1, memory_order_acq_rel) == 1) finish(d);
}

bool ps_description_lock(struct ps_description *d) {
    uint32_t me = ps_tid(), found = 0;
    if (PS_OFTEN(atomic_compare_exchange_strong_explicit(&d->owner, &found, me, memory_order_acquire,
                                                         memory_order_relaxed)))
        return true;
    uint32_t mine = me;
    for (;;) {
        if ((found & ~CONTENDED) == me) return false;
        if (!found) {
            if (atomic_compare_exchange_strong(&d->owner, &found, mine)) break;
            continue;
        }
        mine = me | CONTENDED; /* whoever slept must assume that others still sleep */
        if (!(found & CONTENDED) && !atomic_compare_exchange_strong(&d->owner, &found, found | CONTENDED)) continue;
        PS_KERNEL(SYS_futex, &d->owner, FUTEX_WAIT_PRIVATE, found | CONTENDED, 0, 0, 0);
        found = atomic_load(&d->owner);
    }
    return true;
}

void ps_description_unlock(struct ps_description *d) {
    uint32_t was = atomic_exchange_explicit(&d->owner, 0, memory_order_release);
    if (PS_RARELY(was & CONTENDED)) PS_KERNEL(SYS_futex, &d->owner, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

void ps_each_description(void (*visit)(struct ps_description *d, void *context), void *context) {
    uint32_t used = atomic_load(&pool_used);
    for (uint32_t i = 0; i < used && i >> POOL_BITS < POOL_CHUNKS; i++) {
        if (!atomic_load_explicit(&pool[i >> POOL_BITS], memory_order_acquire)) continue;
        struct ps_description *d = pool_at(i);
        if (atomic_load(&d->references)) visit(d, context);
    }
}

static void share(struct ps_description *d, void *context) {
    (void)context;
    atomic_fetch_or(&d->flags, PS_D_SHARED);
}

void ps_descriptions_shared(void) { ps_each_description(share, NULL); }

int ps_descriptors_end(void) { return atomic_load(&descriptors_end); }
