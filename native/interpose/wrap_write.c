/* write and its kin: the real call, then the written range goes to the table. A writer of a temporary file that is too
 * far ahead of its readers waits first. */
#include "interpose.h"

/* Once per description: who writes here? A file that an earlier run left is new from now on; what is added to it follows
 * what it had. */
static void first_write(struct ps_description *d, uint64_t at) {
    if (d->flags & PS_D_FOREIGN) {
        ps_violation(d->slot, PS_FOREIGN_WRITER, at);
    } else {
        bool was_old = !(ps_flags_of(ps_now(d->slot)) & PS_BORN);
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        ps_writer_wrote(ps_self, d->holding, d->slot, ps_self_app);
        if (was_old && d->flags & PS_D_APPENDS && at) ps_written(d->slot, 0, at);
        ps_quiet_end(&quiet);
    }
    atomic_fetch_and(&d->flags, ~(uint32_t)(PS_D_FOREIGN | PS_D_IDLE));
}

void ps_note_touched(struct ps_description *d, uint64_t at) {
    if (PS_RARELY(d->flags & (PS_D_FOREIGN | PS_D_IDLE))) first_write(d, at);
}

void ps_note_written(struct ps_description *d, uint64_t start, uint64_t end) {
    ps_note_touched(d, start);
    ps_written(d->slot, start, end);
}

/* A stretch in which other processes of the same description, or other appenders, may have written too. */
static void note_shared(struct ps_description *d, uint64_t start, uint64_t end) {
    ps_note_touched(d, start);
    ps_written_by(d->slot, start, end, false);
}

/* Where a write through a shared offset will go. Whoever moves the offset publishes later, so an offset behind what is
 * published was set back. */
static off_t shared_offset(struct ps_description *d, int fd) {
    const struct ps_slot *slot = ps_slot(ps_now(d->slot));
    uint64_t solid = atomic_load(&slot->solid);
    off_t at = (off_t)ps_offset_now(d, fd);
    if (PS_RARELY((uint64_t)at < solid) && atomic_load(&slot->flags) & PS_STREAMED)
        ps_violation(ps_now(d->slot), PS_REWRITTEN, (uint64_t)at);
    return at;
}

/* Where the last append through a shared description ended: what is between that and the end of ours was appended by
 * those who share it. Unknown (-1) before the first. */
static off_t append_offset(struct ps_description *d, int fd) {
    off_t at = d->flags & PS_D_SHARED ? (off_t)ps_offset_now(d, fd) : 0;
    return at > 0 ? at : -1;
}

/* Where the kernel put `put` bytes, from the offsets before and after. Other processes of the description may have
 * written in between: their bytes are in the file too, so the whole stretch is. */
static void note_by_offsets(struct ps_description *d, int fd, off_t before, ssize_t put) {
    int kept = errno;
    off_t after = REAL(lseek)(fd, 0, SEEK_CUR);
    errno = kept;
    if (after < put) return; /* not a file with offsets */
    off_t start = before >= 0 && before <= after - put ? before : after - put;
    note_shared(d, (uint64_t)start, (uint64_t)after);
    atomic_store_explicit(&d->offset, after, memory_order_relaxed);
}

void ps_note_unseen(struct ps_description *d, int fd) {
    if (!(d->flags & PS_D_WRITES) || !(d->flags & PS_D_SHARED)) return;
    int64_t before = atomic_load(&d->offset), now = ps_offset_now(d, fd);
    if (now <= before) return;
    atomic_store(&d->offset, now);
    note_shared(d, (uint64_t)before, (uint64_t)now);
}

static int wait_for_room(struct ps_description *d, int fd, const struct ps_transfer *t) {
    if (PS_OFTEN(!atomic_load_explicit(&ps->limit, memory_order_relaxed))) return 0;
    uint64_t start = (uint64_t)(t->at >= 0 ? t->at : ps_offset_now(d, fd));
    struct stat found;
    bool appends = d->flags & PS_D_APPENDS || t->flags & RWF_APPEND; /* wherever its offset is */
    if (appends && !PS_KERNEL(SYS_fstat, fd, &found, 0, 0, 0, 0)) start = (uint64_t)found.st_size;
    return ps_wait_room(d->slot, ps_self_app, start, start + t->bytes);
}

/* How much of a write of one buffer may be done at once: a large one is cut, so that it never takes more room than the
 * limit. Not where others write through the same offset or append: theirs must not come between. */
static size_t piece_of(const struct ps_description *d, const struct ps_transfer *t) {
    uint64_t limit = atomic_load_explicit(&ps->limit, memory_order_relaxed);
    if (PS_OFTEN(!limit) || t->iov || d->flags & (PS_D_SHARED | PS_D_APPENDS)) return t->bytes;
    uint32_t flags = ps_flags_of(ps_now(d->slot));
    if ((flags & (PS_TEMPORARY_FILE | PS_STREAMED)) != (PS_TEMPORARY_FILE | PS_STREAMED)) return t->bytes;
    return limit / 4 && limit / 4 < t->bytes ? limit / 4 : t->bytes;
}

static ssize_t write_in_pieces(struct ps_description *d, const struct ps_transfer *whole, size_t piece) {
    size_t done = 0;
    while (done < whole->bytes) {
        struct ps_transfer t = *whole;
        t.buffer = (char *)whole->buffer + done;
        t.bytes = whole->bytes - done < piece ? whole->bytes - done : piece;
        if (t.at >= 0) t.at += (off_t)done;
        ssize_t put = ps_write_body(d, &t);
        if (put < 0) return done ? (ssize_t)done : put;
        done += (size_t)put;
        if ((size_t)put < t.bytes) break;
    }
    return (ssize_t)done;
}

ssize_t ps_write_body(struct ps_description *d, struct ps_transfer *t) {
    uint32_t flags = atomic_load_explicit(&d->flags, memory_order_relaxed);
    if (!(flags & PS_D_WRITES)) return t->call(t);
    size_t piece = piece_of(d, t);
    if (PS_RARELY(piece < t->bytes)) return write_in_pieces(d, t, piece);
    int error = wait_for_room(d, t->fd, t);
    if (PS_RARELY(error)) return ps_fail(error);
    bool appends = flags & PS_D_APPENDS || t->flags & RWF_APPEND;
    if (t->at >= 0 && !appends) {
        ssize_t put = t->call(t);
        if (put > 0) ps_note_written(d, (uint64_t)t->at, (uint64_t)t->at + (uint64_t)put);
        return put;
    }
    bool locked = ps_description_lock(d);
    ssize_t put;
    if (PS_RARELY(ps_tracked(t->fd) != d)) { /* closed or replaced by another thread */
        put = t->call(t);
    } else if (t->at >= 0) { /* pwrite that appends: Linux leaves the offset alone */
        struct stat found;
        put = t->call(t);
        if (put > 0 && !REAL(fstat)(t->fd, &found) && found.st_size >= put)
            note_shared(d, (uint64_t)(found.st_size - put), (uint64_t)found.st_size);
    } else if (PS_RARELY(appends || d->flags & PS_D_SHARED)) {
        off_t before = appends ? append_offset(d, t->fd) : shared_offset(d, t->fd);
        put = t->call(t);
        if (put > 0) note_by_offsets(d, t->fd, before, put);
    } else {
        uint64_t start = (uint64_t)atomic_load_explicit(&d->offset, memory_order_relaxed);
        put = t->call(t);
        if (put > 0) {
            atomic_store_explicit(&d->offset, (int64_t)start + put, memory_order_relaxed);
            ps_note_written(d, start, start + (uint64_t)put);
        }
    }
    if (locked) ps_description_unlock(d);
    return put;
}

/* ---- spellings ------------------------------------------------------------------------------------------------------ */

ssize_t ps_write_flat(const struct ps_transfer *t) { return REAL(write)(t->fd, t->buffer, t->bytes); }
static ssize_t call_pwrite(const struct ps_transfer *t) { return REAL(pwrite)(t->fd, t->buffer, t->bytes, t->at); }
static ssize_t call_writev(const struct ps_transfer *t) { return REAL(writev)(t->fd, t->iov, t->n); }
static ssize_t call_pwritev(const struct ps_transfer *t) { return REAL(pwritev)(t->fd, t->iov, t->n, t->at); }
static ssize_t call_pwritev2(const struct ps_transfer *t) {
    return REAL(pwritev2)(t->fd, t->iov, t->n, t->at, t->flags);
}

static ssize_t write_vector(struct ps_description *d, struct ps_transfer *t) {
    if (t->n < 0 || t->n > 1024) return t->call(t);
    t->bytes = ps_iov_bytes(t->iov, t->n);
    return ps_write_body(d, t);
}

PS_WRAPS ssize_t write(int fd, const void *buffer, size_t bytes) {
    struct ps_description *d = ps_tracked(fd);
    if (PS_OFTEN(!d)) return REAL(write)(fd, buffer, bytes);
    struct ps_transfer t = {.call = ps_write_flat, .fd = fd, .buffer = (void *)buffer, .bytes = bytes, .at = -1};
    return ps_write_body(d, &t);
}

PS_WRAPS ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t at) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_pwrite, .fd = fd, .buffer = (void *)buffer, .bytes = bytes, .at = at};
    return !d || at < 0 ? call_pwrite(&t) : ps_write_body(d, &t);
}
PS_WRAPS ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t at) { return pwrite(fd, buffer, bytes, at); }

PS_WRAPS ssize_t writev(int fd, const struct iovec *iov, int n) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_writev, .fd = fd, .iov = iov, .n = n, .at = -1};
    return !d ? call_writev(&t) : write_vector(d, &t);
}

PS_WRAPS ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_pwritev, .fd = fd, .iov = iov, .n = n, .at = at};
    return !d || at < 0 ? call_pwritev(&t) : write_vector(d, &t);
}
PS_WRAPS ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t at) { return pwritev(fd, iov, n, at); }

PS_WRAPS ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags) {
    struct ps_description *d = ps_tracked(fd);
    struct ps_transfer t = {.call = call_pwritev2, .fd = fd, .iov = iov, .n = n, .at = at, .flags = flags};
    return !d ? call_pwritev2(&t) : write_vector(d, &t);
}
PS_WRAPS ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags) {
    return pwritev2(fd, iov, n, at, flags);
}
