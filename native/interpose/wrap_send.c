/* Copies inside the kernel: sendfile, splice, copy_file_range. A consumer's side waits for the first byte and then takes
 * what is written, as these calls may copy less than asked; 0 is believed only after commit. A producer's side is a
 * write. tee moves no file offset and is not wrapped. */
#include "interpose.h"

struct copy {
    ssize_t (*call)(const struct copy *c);
    int in, out;
    off64_t *in_at, *out_at; /* NULL: at the description's offset */
    size_t bytes;
    unsigned flags;
};

static ssize_t call_sendfile(const struct copy *c) { return REAL(sendfile)(c->out, c->in, c->in_at, c->bytes); }
static ssize_t call_splice(const struct copy *c) {
    return REAL(splice)(c->in, c->in_at, c->out, c->out_at, c->bytes, c->flags);
}
static ssize_t call_copy(const struct copy *c) {
    return REAL(copy_file_range)(c->in, c->in_at, c->out, c->out_at, c->bytes, c->flags);
}

/* These move the offset behind our back: from now on the kernel is asked for it. */
static uint64_t position(struct ps_description *d, int fd, const off64_t *at) {
    if (at) return (uint64_t)*at;
    if (!(d->flags & PS_D_SHARED)) atomic_fetch_or(&d->flags, PS_D_SHARED);
    return (uint64_t)ps_offset_now(d, fd);
}

static ssize_t copy_body(struct copy *c) {
    struct ps_description *in = ps_tracked(c->in), *out = ps_tracked(c->out);
    if (!in && !out) return c->call(c);
    bool waits = in && in->flags & PS_D_WAITS, writes = out && out->flags & PS_D_WRITES;
    uint64_t from = in ? position(in, c->in, c->in_at) : 0, to = writes ? position(out, c->out, c->out_at) : 0;
    size_t asked = c->bytes;
    uint64_t limit = atomic_load_explicit(&ps->limit, memory_order_relaxed);
    if (writes && limit / 4 && limit / 4 < asked) c->bytes = asked = limit / 4; /* less than asked is allowed here */
    int error = writes ? ps_wait_room(out->slot, ps_self_app, to, to + asked) : 0;
    if (error) return ps_fail(error);
    if (waits && asked) c->bytes = ps_await_some(in, c->in, from, asked, &error);
    if (error) return ps_fail(error);
    if (in && !waits) ps_reads_own(in);
    bool final = !waits || ps_flags_of(ps_now(in->slot)) & PS_COMMITTED;
    ssize_t moved = c->call(c);
    if (!moved && asked && !final) { /* no end of the file before its commit */
        error = ps_wait_committed(in->slot, ps_self_app);
        if (error) return ps_fail(error);
        c->bytes = asked;
        moved = c->call(c);
    }
    if (moved <= 0) return moved;
    error = in ? ps_read_too_late(in, c->in, from) : 0;
    if (error) return ps_fail(error);
    if (waits) ps_note_read(in, from, from + (uint64_t)moved);
    if (writes) {
        uint64_t end = c->out_at ? (uint64_t)*c->out_at : (uint64_t)ps_offset_now(out, c->out);
        if (end >= (uint64_t)moved) ps_note_written(out, end - (uint64_t)moved, end);
    }
    return moved;
}

PS_WRAPS ssize_t sendfile(int out, int in, off_t *at, size_t bytes) {
    struct copy c = {call_sendfile, in, out, at, NULL, bytes, 0};
    return copy_body(&c);
}
PS_WRAPS ssize_t sendfile64(int out, int in, off64_t *at, size_t bytes) { return sendfile(out, in, at, bytes); }

PS_WRAPS ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
    struct copy c = {call_splice, in, out, in_at, out_at, bytes, flags};
    return copy_body(&c);
}

PS_WRAPS ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
    struct copy c = {call_copy, in, out, in_at, out_at, bytes, flags};
    return copy_body(&c);
}
