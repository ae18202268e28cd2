/* read and its kin. A consumer's read waits until all its bytes are written or the file is committed; the data then
 * comes from the kernel. Short answers and the end of the file are believed only after commit. */
#include "interpose.h"

size_t ps_iov_bytes(const struct iovec *iov, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += iov[i].iov_len;
    return bytes;
}

int64_t ps_offset_now(struct ps_description *d, int fd) {
    if (!(atomic_load_explicit(&d->flags, memory_order_relaxed) & PS_D_SHARED))
        return atomic_load_explicit(&d->offset, memory_order_relaxed);
    int kept = errno;
    off_t at = REAL(lseek)(fd, 0, SEEK_CUR);
    errno = kept;
    return at < 0 ? 0 : at;
}

static inline bool committed(uint32_t slot) { return ps_flags_of(slot) & PS_COMMITTED; }

static inline bool ready(uint32_t slot, uint64_t start, uint64_t end) {
    const struct ps_slot *s = ps_slot(slot);
    uint32_t flags = ps_flags_of(slot);
    if (flags & PS_MOVED) return false;
    if (flags & PS_COMMITTED) return !atomic_load_explicit(&s->punched, memory_order_relaxed);
    return flags & PS_STREAMED && end <= atomic_load_explicit(&s->solid, memory_order_acquire) &&
           start >= atomic_load_explicit(&s->punched, memory_order_relaxed);
}

void ps_note_read(struct ps_description *d, uint64_t start, uint64_t end) {
    uint64_t before = d->consumed;
    if (end <= start) return;
    d->consumed = end;
    if (PS_RARELY(start != before)) {
        bool elsewhere = start > before && d->flags & PS_D_SHARED; /* by another process of the same description */
        uint32_t flags = ps_flags_of(d->slot);
        if (!elsewhere && flags & PS_TEMPORARY_FILE && !(flags & PS_READS_BACK))
            ps_set_flags(d->slot, PS_READS_BACK, 0);
    }
    uint64_t limit = atomic_load_explicit(&ps->limit, memory_order_relaxed), grain = UINT64_C(1) << 20;
    if (PS_RARELY(limit) && limit >= 8 && PS_GRAIN(limit) < grain) grain = PS_GRAIN(limit);
    if (before / grain != end / grain) ps_consumed(d->slot, ps_self_app, end);
}

/* A writer may wait for the room of what was read, and this reader for that writer. */
static void tell_before_sleep(const struct ps_description *d) {
    if (PS_RARELY(atomic_load_explicit(&ps->limit, memory_order_relaxed)) && d->consumed)
        ps_consumed(d->slot, ps_self_app, d->consumed);
}

size_t ps_await_some(struct ps_description *d, int fd, uint64_t start, size_t bytes, int *error) {
    tell_before_sleep(d);
    *error = ps_wait_range(d->slot, ps_self_app, start, start + 1, fd);
    if (*error) return 0;
    uint32_t slot = ps_now(d->slot);
    if (committed(slot)) return bytes;
    uint64_t solid = atomic_load_explicit(&ps_slot(slot)->solid, memory_order_acquire);
    if (solid > start) return solid - start < bytes ? solid - start : bytes;
    /* Written out of order, seen by the kernel only, or nobody is left to write: as a read that wants it all. */
    *error = ps_wait_range(d->slot, ps_self_app, start, start + bytes, fd);
    return *error ? 0 : bytes;
}

/* Waits without the lock: other threads may seek, write or close meanwhile. */
static int wait_unlocked(struct ps_description *d, struct ps_transfer *t, uint64_t start, bool *locked, bool some) {
    int error;
    ps_description_keep(d);
    tell_before_sleep(d);
    if (*locked) ps_description_unlock(d);
    if (some) ps_await_some(d, t->fd, start, t->bytes, &error);
    else error = ps_wait_range(d->slot, ps_self_app, start, start + t->bytes, t->fd);
    ps_description_drop(d);
    if (*locked && !error) *locked = ps_description_lock(d);
    return error;
}

/* Whether what was read had been given back meanwhile, for another process of this step was ahead: then it may be zeros. The
 * bytes are marked before they go, so a look afterwards is enough. */
int ps_read_too_late(struct ps_description *d, int fd, uint64_t start) {
    const struct ps_slot *slot = ps_slot(ps_now(d->slot));
    return PS_OFTEN(start >= atomic_load(&slot->punched)) ? 0 : ps_wait_range(d->slot, ps_self_app, start, start + 1, fd);
}

/* Where a read through the description's offset began. One that processes share may have been moved since it was asked for. */
static uint64_t began_at(const struct ps_description *d, int fd, uint64_t start, ssize_t got) {
    off_t now = d->flags & PS_D_SHARED ? REAL(lseek)(fd, 0, SEEK_CUR) : 0;
    return now > got && (uint64_t)(now - got) > start ? (uint64_t)(now - got) : start;
}

/* A short answer before commit is no answer: what batch order would give is known only then. */
static ssize_t read_settled(struct ps_description *d, struct ps_transfer *t, uint64_t start, bool final) {
    ssize_t got = t->call(t);
    if (PS_OFTEN(got < 0 || (size_t)got == t->bytes || final)) return got;
    int error = ps_wait_committed(d->slot, ps_self_app);
    if (t->at < 0) REAL(lseek)(t->fd, (off_t)start, SEEK_SET);
    return error ? ps_fail(error) : t->call(t);
}

static ssize_t read_in_order(struct ps_description *d, struct ps_transfer *t, bool some) {
    size_t asked = t->bytes;
    bool locked = ps_description_lock(d);
    ssize_t got;
    for (;;) {
        if (ps_tracked(t->fd) != d) { /* closed or replaced by another thread */
            got = t->call(t);
            break;
        }
        uint64_t start = (uint64_t)ps_offset_now(d, t->fd);
        uint64_t end = start + (some ? 1 : asked);
        if (!ready(d->slot, start, end)) {
            int error = wait_unlocked(d, t, start, &locked, some);
            if (error) return ps_fail(error);
            if (ps_tracked(t->fd) != d || ps_offset_now(d, t->fd) != (int64_t)start) continue;
        }
        bool final = committed(ps_now(d->slot));
        if (some && !final) {
            uint64_t solid = atomic_load_explicit(&ps_slot(ps_now(d->slot))->solid, memory_order_acquire);
            t->bytes = solid > start && solid - start < asked ? solid - start : asked;
        }
        got = read_settled(d, t, start, final);
        int late = got > 0 ? ps_read_too_late(d, t->fd, began_at(d, t->fd, start, got)) : 0;
        if (PS_RARELY(late)) {
            REAL(lseek)(t->fd, (off_t)start, SEEK_SET);
            got = ps_fail(late);
        }
        if (got > 0 && ps_tracked(t->fd) == d) {
            atomic_store_explicit(&d->offset, (int64_t)start + got, memory_order_relaxed);
            ps_note_read(d, start, start + (uint64_t)got);
        }
        break;
    }
    t->bytes = asked;
    if (locked) ps_description_unlock(d);
    return got;
}

void ps_reads_own(struct ps_description *d) {
    if (PS_OFTEN(!atomic_load_explicit(&ps->limit, memory_order_relaxed))) return;
    if ((ps_flags_of(ps_now(d->slot)) & (PS_TEMPORARY_FILE | PS_READS_BACK)) == PS_TEMPORARY_FILE)
        ps_set_flags(ps_now(d->slot), PS_READS_BACK, 0);
}

/* Of what its own step makes. It waits for nothing, but it counts on all that it has written. */
static ssize_t read_own(struct ps_description *d, struct ps_transfer *t) {
    ps_reads_own(d);
    ssize_t got = t->call(t);
    if (PS_OFTEN(got <= 0 || !atomic_load(&ps_slot(ps_now(d->slot))->punched))) return got;
    off_t start = t->at >= 0 ? t->at : REAL(lseek)(t->fd, 0, SEEK_CUR) - got;
    int late = start >= 0 ? ps_read_too_late(d, t->fd, (uint64_t)start) : 0;
    if (!late) return got;
    if (t->at < 0) REAL(lseek)(t->fd, start, SEEK_SET);
    return ps_fail(late);
}

ssize_t ps_read_body(struct ps_description *d, struct ps_transfer *t, bool some) {
    uint32_t flags = atomic_load_explicit(&d->flags, memory_order_relaxed);
    if (!(flags & PS_D_READS) || !t->bytes) return t->call(t);
    if (flags & PS_D_WAITS) {
        if (t->at < 0) return read_in_order(d, t, some);
        uint64_t start = (uint64_t)t->at;
        if (!ready(d->slot, start, start + t->bytes)) {
            if (t->flags & RWF_NOWAIT) return ps_fail(EAGAIN);
            tell_before_sleep(d);
            int error = ps_wait_range(d->slot, ps_self_app, start, start + t->bytes, t->fd);
            if (error) return ps_fail(error);
        }
        ssize_t got = read_settled(d, t, start, committed(ps_now(d->slot)));
        int late = got > 0 ? ps_read_too_late(d, t->fd, start) : 0;
        if (PS_RARELY(late)) return ps_fail(late);
        if (got > 0) ps_note_read(d, start, start + (uint64_t)got);
        return got;
    }
    if (t->at >= 0 || !(flags & PS_D_WRITES) || flags & PS_D_SHARED) return read_own(d, t);
    bool locked = ps_description_lock(d);
    ssize_t got = read_own(d, t);
    if (got > 0 && ps_tracked(t->fd) == d) atomic_fetch_add_explicit(&d->offset, got, memory_order_relaxed);
    if (locked) ps_description_unlock(d);
    return got;
}

/* ---- spellings ------------------------------------------------------------------------------------------------------ */

ssize_t ps_read_flat(const struct ps_transfer *t) { return REAL(read)(t->fd, t->buffer, t->bytes); }
static ssize_t call_pread(const struct ps_transfer *t) { return REAL(pread)(t->fd, t->buffer, t->bytes, t->at); }
static ssize_t call_readv(const struct ps_transfer *t) { return REAL(readv)(t->fd, t->iov, t->n); }
static ssize_t call_preadv(const struct ps_transfer *t) { return REAL(preadv)(t->fd, t->iov, t->n, t->at); }
static ssize_t call_preadv2(const struct ps_transfer *t) {
    return REAL(preadv2)(t->fd, t->iov, t->n, t->at, t->flags);
}

static ssize_t read_one(struct ps_description *d, int fd, void *buffer, size_t bytes) {
    struct ps_transfer t = {.call = ps_read_flat, .fd = fd, .buffer = buffer, .bytes = bytes, .at = -1};
    return ps_read_body(d, &t, false);
}

static ssize_t read_at(struct ps_description *d, int fd, void *buffer, size_t bytes, off_t at) {
    struct ps_transfer t = {.call = call_pread, .fd = fd, .buffer = buffer, .bytes = bytes, .at = at};
    return at < 0 ? call_pread(&t) : ps_read_body(d, &t, false);
}

static ssize_t read_vector(struct ps_description *d, struct ps_transfer *t) {
    if (t->n < 0 || t->n > 1024) return t->call(t);
    t->bytes = ps_iov_bytes(t->iov, t->n);
    return ps_read_body(d, t, false);
}

PS_WRAPS ssize_t read(int fd, void *buffer, size_t bytes) {
    struct ps_description *d = ps_tracked(fd);
    return PS_OFTEN(!d) ? REAL(read)(fd, buffer, bytes) : read_one(d, fd, buffer, bytes);
}

PS_WRAPS ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room) {
    struct ps_description *d = bytes <= room ? ps_tracked(fd) : NULL;
    return !d ? REAL(__read_chk)(fd, buffer, bytes, room) : read_one(d, fd, buffer, bytes);
}

PS_WRAPS ssize_t pread(int fd, void *buffer, size_t bytes, off_t at) {
    struct ps_description *d = ps_tracked(fd);
    return !d ? REAL(pread)(fd, buffer, bytes, at) : read_at(d, fd, buffer, bytes, at);
}
PS_WRAPS ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t at) { return pread(fd, buffer, bytes, at); }

PS_WRAPS ssize_t __pread_chk(int fd, void *buffer, size_t bytes, off_t at, size_t room) {
    struct ps_description *d = bytes <= room ? ps_tracked(fd) : NULL;
    return !d ? REAL(__pread_chk)(fd, buffer, bytes, at, room) : read_at(d, fd, buffer, bytes, at);
}
PS_WRAPS ssize_t __pread64_chk(int fd, void *buffer, size_t bytes, off64_t at, size_t room) {
    return __pread_chk(fd, buffer, bytes, at, room);
}

PS_WRAPS ssize_t readv(int fd, const struct iovec *iov, int n) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_readv, .fd = fd, .iov = iov, .n = n, .at = -1};
    return !d ? call_readv(&t) : read_vector(d, &t);
}

PS_WRAPS ssize_t preadv(int fd, const struct iovec *iov, int n, off_t at) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_preadv, .fd = fd, .iov = iov, .n = n, .at = at};
    return !d || at < 0 ? call_preadv(&t) : read_vector(d, &t);
}
PS_WRAPS ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t at) { return preadv(fd, iov, n, at); }

PS_WRAPS ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_preadv2, .fd = fd, .iov = iov, .n = n, .at = at, .flags = flags};
    return !d ? call_preadv2(&t) : read_vector(d, &t);
}
PS_WRAPS ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags) {
    return preadv2(fd, iov, n, at, flags);
}
