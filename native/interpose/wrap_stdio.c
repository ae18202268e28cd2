/* stdio. libc's streams call the kernel behind every symbol, so a stream over a managed descriptor is a cookie stream
 * whose four functions are the bodies of the wrappers. `fileno` gives the real descriptor. A file with nothing to wait
 * for and nothing to publish gets libc's own stream.
 *
 * stdin, stdout and stderr that lead to managed files are replaced at start; libc and programs name them through these
 * variables. libc's own streams over managed descriptors (after a dup2 onto 1) go unseen: the kernel's witness and the
 * commit stand in, and their offset is asked for (PS_D_SHARED).
 */
#include "interpose.h"

#include <malloc.h>
#include <sched.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

struct stream {
    int fd;
    FILE *file;
    void *wide; /* what libc keeps of a stream of wide characters */
    struct stream *next;
};
static struct stream *streams;
static atomic_flag streams_busy = ATOMIC_FLAG_INIT;

static void streams_lock(void) {
    while (atomic_flag_test_and_set_explicit(&streams_busy, memory_order_acquire)) sched_yield();
}
static void streams_unlock(void) { atomic_flag_clear_explicit(&streams_busy, memory_order_release); }
void ps_streams_in_child(void) { streams_unlock(); } /* whoever held it stayed behind */

/* ---- the four functions ------------------------------------------------------------------------------------------------ */

static ssize_t stream_read(void *cookie, char *buffer, size_t bytes) {
    struct ps_transfer t = {
        .call = ps_read_flat, .fd = ((struct stream *)cookie)->fd, .buffer = buffer, .bytes = bytes, .at = -1};
    ssize_t got;
    do { /* a plain file never says EINTR to stdio */
        struct ps_description *d = ps_tracked(t.fd);
        got = d ? ps_read_body(d, &t, true) : ps_read_flat(&t);
    } while (got < 0 && errno == EINTR && ps_tracked(t.fd));
    return got;
}

static ssize_t stream_write(void *cookie, const char *buffer, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        struct ps_transfer t = {.call = ps_write_flat, .fd = ((struct stream *)cookie)->fd,
                                .buffer = (void *)(buffer + done), .bytes = bytes - done, .at = -1};
        struct ps_description *d = ps_tracked(t.fd);
        ssize_t put = d ? ps_write_body(d, &t) : ps_write_flat(&t);
        if (put < 0 && errno == EINTR && d) continue;
        if (put <= 0) break;
        done += (size_t)put;
    }
    return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *offset, int whence) {
    off64_t at = lseek64(((struct stream *)cookie)->fd, *offset, whence);
    if (at < 0) return -1;
    *offset = at;
    return 0;
}

/* Out of the list; the caller owns it. NULL: not one of ours. */
static struct stream *stream_taken(const FILE *file) {
    streams_lock();
    struct stream **at = &streams, *found;
    while (*at && (*at)->file != file) at = &(*at)->next;
    if ((found = *at)) *at = found->next;
    streams_unlock();
    return found;
}

static int stream_close(void *cookie) {
    return ps_close_body(((struct stream *)cookie)->fd); /* fclose below frees the rest, once libc is done with it */
}

/* A cookie stream of glibc knows no wide characters. Given what a stream over a file has for them, it becomes one at the
 * first wide call, over the descriptor itself: wrap_wide.c prepares for that. */
static void *wide_part(FILE *file) {
    static char model[512];
    static size_t bytes;
    if (!bytes) {
        FILE *donor = REAL(fopen)("/dev/null", "r");
        if (!donor) return NULL;
        char *part = (char *)donor->_wide_data, *end = (char *)donor + malloc_usable_size(donor);
        if (part > (char *)donor && part < end && (size_t)(end - part) <= sizeof model) {
            memcpy(model, part, (size_t)(end - part));
            bytes = (size_t)(end - part);
        }
        REAL(fclose)(donor);
    }
    void *wide = bytes ? malloc(bytes) : NULL;
    if (!wide) return NULL;
    memcpy(wide, model, bytes);
    file->_wide_data = wide;
    file->_mode = 0;
    return wide;
}

FILE *ps_stream_over(int fd, const char *mode) {
    struct stream *stream = malloc(sizeof *stream);
    if (!stream) return NULL;
    cookie_io_functions_t functions = {stream_read, stream_write, stream_seek, stream_close};
    stream->fd = fd;
    stream->file = fopencookie(stream, mode, functions);
    if (!stream->file) return free(stream), NULL;
    stream->file->_fileno = fd; /* what fileno answers; glibc calls only the four functions */
    stream->wide = wide_part(stream->file);
    streams_lock();
    stream->next = streams;
    streams = stream;
    streams_unlock();
    return stream->file;
}

/* At exit, before the process says goodbye. A stream that some thread is in the middle of is left to libc. */
void ps_streams_flush(void) {
    for (struct stream *s = streams; s; s = s->next)
        if (!ftrylockfile(s->file)) {
            fflush_unlocked(s->file);
            funlockfile(s->file);
        }
}

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

static bool wants_cookie(int fd) {
    struct ps_description *d = ps_tracked(fd);
    if (!d) return false;
    if (d->flags & PS_D_WRITES) return true;
    return d->flags & PS_D_WAITS && !(ps_flags_of(ps_now(d->slot)) & PS_COMMITTED);
}

/* -1: not a mode, or one that is libc's own business (ccs=). */
static int flags_of_mode(const char *mode) {
    int flags = mode[0] == 'r' ? 0 : mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : -1;
    if (flags < 0) return -1;
    int access = mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    for (const char *at = mode + 1; *at; at++) {
        if (*at == ',') return -1;
        if (*at == '+') access = O_RDWR;
        if (*at == 'x') flags |= O_EXCL;
        if (*at == 'e') flags |= O_CLOEXEC;
    }
    return flags | access;
}

static FILE *fopen_body(const char *path, const char *mode, FILE *(*real)(const char *, const char *)) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    int flags = mode ? flags_of_mode(mode) : -1, fd;
    if (flags < 0 || !ps_managed(AT_FDCWD, path, room, &name)) return real(path, mode);
    while ((fd = ps_open_anywhere(AT_FDCWD, path, flags, 0666)) < 0)
        if (errno != EINTR) return NULL;
    if (mode[0] == 'a' && !(flags & O_RDWR)) REAL(lseek)(fd, 0, SEEK_END);
    FILE *file = wants_cookie(fd) ? ps_stream_over(fd, mode) : REAL(fdopen)(fd, mode);
    if (!file) {
        int kept = errno;
        ps_close_body(fd);
        errno = kept;
    }
    return file;
}

PS_WRAPS FILE *fopen(const char *path, const char *mode) { return fopen_body(path, mode, REAL(fopen)); }
PS_WRAPS FILE *fopen64(const char *path, const char *mode) { return fopen_body(path, mode, REAL(fopen64)); }

PS_WRAPS FILE *fdopen(int fd, const char *mode) {
    int flags = mode ? flags_of_mode(mode) : -1;
    if (flags < 0 || !wants_cookie(fd)) return REAL(fdopen)(fd, mode);
    int has = REAL(fcntl)(fd, F_GETFL);
    if (has < 0) return NULL;
    if ((has & O_ACCMODE) != O_RDWR && (has & O_ACCMODE) != (flags & O_ACCMODE)) return errno = EINVAL, NULL;
    if (flags & O_APPEND && !(has & O_APPEND)) fcntl(fd, F_SETFL, has | O_APPEND);
    return ps_stream_over(fd, mode);
}

/* ---- standard streams, reopening, closing ------------------------------------------------------------------------------ */

static void replace_standard(int fd) {
    FILE **variable = fd == 0 ? &stdin : fd == 1 ? &stdout : &stderr;
    FILE *stream = ps_stream_over(fd, fd ? "w" : "r");
    if (!stream) return;
    if (fd == 2) setvbuf(stream, NULL, _IONBF, 0);
    *variable = stream;
}

void ps_streams_standard(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (wants_cookie(fd)) replace_standard(fd);
}

/* libc closed a descriptor of ours inside: let it go, unless the number already means something new. */
static void closed_inside(int fd, struct ps_description *before) {
    if (!before || ps_description(fd) != before || REAL(fcntl)(fd, F_GETFD) >= 0) return;
    struct ps_description *d = ps_descriptor_take(fd);
    if (d) ps_description_drop(d);
}

PS_WRAPS int fclose(FILE *file) {
    int fd = fileno(file);
    struct ps_description *before = fd < 0 ? NULL : ps_description(fd);
    struct stream *stream = streams ? stream_taken(file) : NULL;
    int result = REAL(fclose)(file);
    int kept = errno;
    if (stream) free(stream->wide);
    free(stream);
    closed_inside(fd, before);
    errno = kept;
    return result;
}

bool ps_stream_is_ours(const FILE *file) {
    streams_lock();
    struct stream *at = streams;
    while (at && at->file != file) at = at->next;
    streams_unlock();
    return at;
}

/* One of our streams: the new file takes the place of the old one under its descriptor. libc's freopen would take the
 * stream for one of its own. */
static FILE *freopen_ours(const char *path, int flags, FILE *file) {
    enum { NO_READS = 0x4, NO_WRITES = 0x8, AT_END = 0x10, FAILED = 0x20, PUTTING = 0x800, APPENDING = 0x1000 };
    char itself[32];
    int old = fileno(file);
    snprintf(itself, sizeof itself, "/proc/self/fd/%d", old);
    fflush(file);
    int fd = ps_open_anywhere(AT_FDCWD, path ? path : itself, flags, 0666);
    if (fd < 0) {
        int kept = errno;
        fclose(file);
        return errno = kept, NULL;
    }
    dup3(fd, old, flags & O_CLOEXEC);
    ps_close_body(fd);
    __fpurge(file);
    int access = flags & O_ACCMODE;
    file->_flags &= ~(NO_READS | NO_WRITES | AT_END | FAILED | PUTTING | APPENDING);
    file->_flags |= access == O_RDONLY ? NO_WRITES : access == O_WRONLY ? NO_READS : 0;
    if (flags & O_APPEND) file->_flags |= APPENDING;
    if (flags & O_APPEND && access == O_WRONLY) REAL(lseek)(old, 0, SEEK_END);
    file->_offset = -1; /* unknown */
    return file;
}

/* libc's own stream over a managed descriptor (a shell's, after dup2 onto 1) writes unseen, and is caught up with here. */
static int flushed(FILE *file, int result) {
    int kept = errno, fd = file ? file->_fileno : 1;
    struct ps_description *d = fd < 0 ? NULL : ps_tracked(fd);
    bool seen = file && file->_mode <= 0 && ps_stream_is_ours(file);
    if (d && !seen) ps_note_unseen(d, fd);
    errno = kept;
    return result;
}

PS_WRAPS int fflush(FILE *file) { return flushed(file, REAL(fflush)(file)); }
PS_WRAPS int fflush_unlocked(FILE *file) { return flushed(file, REAL(fflush_unlocked)(file)); }

/* One of libc's streams stays libc's, as its address has to stay: a reader waits for the commit first, a writer goes
 * unseen until it is closed. The standard streams are variables: those are replaced. */
static FILE *freopen_body(const char *path, const char *mode, FILE *file,
                          FILE *(*real)(const char *, const char *, FILE *)) {
    struct ps_open o;
    int fd = fileno(file), flags = mode ? flags_of_mode(mode) : -1;
    struct ps_description *before = fd < 0 ? NULL : ps_description(fd);
    bool standard = file == stdin || file == stdout || file == stderr;
    bool ours = flags >= 0 && ps_active() && path;
    if (ps_active() && ps_stream_is_ours(file)) return flags < 0 ? (errno = EINVAL, NULL) : freopen_ours(path, flags, file);
    if (ours) {
        int error = ps_open_before(&o, AT_FDCWD, path, flags);
        if (!error && o.waits && !standard) error = ps_await_slot(o.slot, PS_NEED_COMMIT);
        if (error) return errno = error, NULL;
    }
    FILE *result = real(path, mode, file);
    int kept = errno, now = result ? fileno(result) : -1;
    if (now != fd) closed_inside(fd, before);
    if (ours && result) {
        ps_open_after(&o, now, flags);
        struct ps_description *d = ps_tracked(now);
        if (d) atomic_fetch_or(&d->flags, PS_D_SHARED);
        if (standard && now <= 2 && wants_cookie(now)) {
            replace_standard(now);
            result = now == 0 ? stdin : now == 1 ? stdout : stderr;
        }
    }
    errno = kept;
    return result;
}

PS_WRAPS FILE *freopen(const char *path, const char *mode, FILE *file) {
    return freopen_body(path, mode, file, REAL(freopen));
}
PS_WRAPS FILE *freopen64(const char *path, const char *mode, FILE *file) {
    return freopen_body(path, mode, file, REAL(freopen64));
}

/* ---- printing to a descriptor ------------------------------------------------------------------------------------------ */

static int print_to(int fd, const char *format, va_list arguments) {
    char *text;
    int bytes = vasprintf(&text, format, arguments);
    if (bytes < 0) return bytes;
    struct stream to = {.fd = fd};
    ssize_t put = stream_write(&to, text, (size_t)bytes);
    free(text);
    return put == bytes ? bytes : -1;
}

PS_WRAPS int vdprintf(int fd, const char *format, va_list arguments) { return print_to(fd, format, arguments); }
PS_WRAPS int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments) {
    (void)flag;
    return print_to(fd, format, arguments);
}
PS_WRAPS int dprintf(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int bytes = print_to(fd, format, arguments);
    va_end(arguments);
    return bytes;
}
PS_WRAPS int __dprintf_chk(int fd, int flag, const char *format, ...) {
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int bytes = print_to(fd, format, arguments);
    va_end(arguments);
    return bytes;
}
