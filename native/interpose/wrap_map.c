/* mmap. A consumer's mapping waits for the commit: no call tells when its bytes are looked at. A producer's shared
 * mapping may be written without any call, so it counts as a writer until it is unmapped, and only commit counts. */
#include "interpose.h"

#include <sched.h>

#define MAPS 1024

static struct mapping {
    uintptr_t start, end;
    size_t left; /* bytes still mapped */
    struct ps_description *description;
} maps[MAPS];
static _Atomic uint32_t n_maps; /* one past the last in use */
static atomic_flag maps_busy = ATOMIC_FLAG_INIT;

static void maps_lock(void) {
    while (atomic_flag_test_and_set_explicit(&maps_busy, memory_order_acquire)) sched_yield();
}
static void maps_unlock(void) { atomic_flag_clear_explicit(&maps_busy, memory_order_release); }

static size_t whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) & ~(page - 1);
}

/* Keeps the description. No room: it stays a writer until the process ends, which is safe. */
static void remember(void *start, size_t bytes, struct ps_description *d) {
    ps_description_keep(d);
    bytes = whole_pages(bytes);
    maps_lock();
    for (uint32_t i = 0; i < MAPS; i++) {
        if (maps[i].description) continue;
        maps[i] = (struct mapping){(uintptr_t)start, (uintptr_t)start + bytes, bytes, d};
        if (i >= n_maps) atomic_store(&n_maps, i + 1);
        break;
    }
    maps_unlock();
}

/* [start, start + bytes) is mapped no more, or to something else. */
static void forget(void *start, size_t bytes) {
    uintptr_t from = (uintptr_t)start, to = from + whole_pages(bytes);
    for (uint32_t i = 0; i < atomic_load(&n_maps); i++) {
        struct ps_description *gone = NULL;
        maps_lock();
        struct mapping *m = &maps[i];
        uintptr_t low = m->start > from ? m->start : from, high = m->end < to ? m->end : to;
        if (m->description && low < high) {
            m->left -= high - low < m->left ? high - low : m->left;
            if (!m->left) {
                gone = m->description;
                m->description = NULL;
            }
        }
        maps_unlock();
        if (gone) ps_description_drop(gone);
    }
}

static void *no_mapping(int error) {
    errno = error;
    return MAP_FAILED;
}

PS_WRAPS void *mmap(void *hint, size_t bytes, int protection, int flags, int fd, off_t offset) {
    struct ps_description *d = flags & MAP_ANONYMOUS ? NULL : ps_tracked(fd);
    if (d && d->flags & PS_D_WAITS) {
        if (ps_flags_of(d->slot) & PS_TEMPORARY_FILE) ps_set_flags(ps_now(d->slot), PS_READS_BACK, 0);
        int error = ps_await_slot(d->slot, PS_NEED_COMMIT);
        if (error) return no_mapping(error);
    }
    if (d) {
        if (!(d->flags & PS_D_WAITS)) ps_reads_own(d);
        int error = ps_read_too_late(d, fd, (uint64_t)offset);
        if (error) return no_mapping(error);
    }
    bool writes = d && d->flags & PS_D_WRITES && flags & MAP_SHARED; /* mprotect may come later */
    if (writes) {
        if (protection & PROT_WRITE) ps_note_touched(d, 0);
        ps_set_flags(ps_now(d->slot), PS_MAPPED, 0);
    }
    void *start = REAL(mmap)(hint, bytes, protection, flags, fd, offset);
    if (start == MAP_FAILED) return start;
    int kept = errno;
    if (flags & MAP_FIXED && atomic_load(&n_maps)) forget(start, bytes);
    if (writes) remember(start, bytes, d);
    errno = kept;
    return start;
}
PS_WRAPS void *mmap64(void *hint, size_t bytes, int protection, int flags, int fd, off64_t offset) {
    return mmap(hint, bytes, protection, flags, fd, offset);
}

PS_WRAPS int munmap(void *start, size_t bytes) {
    int result = REAL(munmap)(start, bytes);
    if (!result && PS_RARELY(atomic_load(&n_maps))) forget(start, bytes);
    return result;
}

PS_WRAPS void *mremap(void *start, size_t bytes, size_t wanted, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *hint = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    void *moved = REAL(mremap)(start, bytes, wanted, flags, hint);
    if (moved == MAP_FAILED || !atomic_load(&n_maps)) return moved;
    maps_lock();
    for (uint32_t i = 0; i < n_maps; i++)
        if (maps[i].description && maps[i].start == (uintptr_t)start) {
            size_t pages = whole_pages(wanted);
            maps[i] = (struct mapping){(uintptr_t)moved, (uintptr_t)moved + pages, pages, maps[i].description};
        }
    maps_unlock();
    return moved;
}
