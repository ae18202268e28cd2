/* open and its kin. A consumer's open waits for the birth of the file; an open for writing is a birth. */
#include "interpose.h"

#include <stdlib.h>

static bool only_reads(int flags) { return (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)); }

/* A consumer that opens for update without truncating means the file that is to come (a database, say). */
static bool means_what_is_there(int flags) { return (flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC); }

/* An open that only names a file disregards most of its flags, as the kernel does. */
static int heeded(int flags) { return flags & O_PATH ? flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW) : flags; }

int ps_open_before(struct ps_open *o, int dirfd, const char *path, int flags) {
    flags = heeded(flags);
    o->slot = PS_NONE;
    o->waits = false;
    o->place = ps_active() && ps_is_path(path) ? ps_place_of(dirfd, path, o->room, &o->path) : PS_OUTSIDE;
    if (o->place != PS_INSIDE || (flags & O_TMPFILE) == O_TMPFILE) return 0;
    bool follow = !(flags & O_NOFOLLOW);
    if (only_reads(flags)) {
        int error = ps_reach_or_signal(&o->path, follow, PS_NEED_BIRTH, &o->slot);
        if (o->slot != PS_NONE) o->waits = ps_awaited(o->slot, ps_self_app) != 0;
        return error;
    }
    o->slot = ps_slot_made(&o->path);
    if (o->slot != PS_NONE && follow && ps_flags_of(o->slot) & PS_SYMLINK) {
        int error = ps_reach_or_signal(&o->path, true, PS_NEED_BIRTH, &o->slot);
        if (error) return error;
    }
    if (o->slot == PS_NONE) return 0;
    o->waits = ps_awaited(o->slot, ps_self_app) != 0;
    return o->waits && means_what_is_there(flags) ? ps_await_slot_or_signal(o->slot, PS_NEED_BIRTH) : 0;
}

/* Whether an open has made the file: it is empty, and neither known to the run nor left by an earlier one. */
static bool is_created(uint32_t known, const struct stat *found) {
    return !found->st_size && !(known & PS_BORN) && ps_of_this_run(found);
}

static void created_to_be_read(uint32_t slot, int fd) {
    struct stat found;
    if (!REAL(fstat)(fd, &found) && is_created(ps_flags_of(slot), &found)) ps_born(slot, ps_self_app, PS_A_FILE);
}

static void opened_for_writing(struct ps_description *d, int fd, int flags) {
    uint32_t slot = d->slot, known = ps_flags_of(slot);
    struct stat found = {.st_mode = S_IFREG};
    bool looked = !(flags & O_TRUNC) || known & PS_COMMITTED;
    if (looked && REAL(fstat)(fd, &found)) found = (struct stat){.st_mode = S_IFREG};
    if (!S_ISREG(found.st_mode)) { /* a pipe or device that stands in the directory */
        atomic_store(&d->flags, 0);
        return;
    }
    /* What was there is looked at (HDF5), locked or overwritten later (gfortran, `sort -o`): the first write tells. */
    bool made = flags & O_TRUNC || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) || is_created(known, &found);
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    d->holding = ps_writer_opened(ps_self, slot, ps_self_app, made ? PS_OPENED_EMPTY : PS_OPENED_FOUND);
    if (!made && !(known & PS_BORN) && d->holding != PS_NONE && ps_of_this_run(&found)) {
        ps_born(slot, ps_self_app, PS_A_FILE); /* a program without the library has made it */
        if (flags & O_APPEND) ps_written(slot, 0, (uint64_t)found.st_size);
    }
    ps_quiet_end(&quiet);
    if (d->holding == PS_NONE) atomic_fetch_or(&d->flags, PS_D_FOREIGN);
    else if (!made) atomic_fetch_or(&d->flags, PS_D_IDLE);
}

void ps_open_after(struct ps_open *o, int fd, int flags) {
    if (o->place == PS_OUTSIDE) {
        struct ps_description *stale = PS_RARELY(ps_description(fd) != NULL) ? ps_descriptor_take(fd) : NULL;
        if (stale) ps_description_drop(stale); /* was closed in a way that nobody saw */
        return;
    }
    int kept = errno;
    flags = heeded(flags);
    struct ps_description *d =
        o->slot == PS_NONE ? &ps_plain : ps_description_new(ps_now(o->slot), flags, o->waits);
    if (!d) d = &ps_plain;
    if (d != &ps_plain && (flags & O_ACCMODE) != O_RDONLY) opened_for_writing(d, fd, flags);
    else if (d != &ps_plain && flags & O_TRUNC) ps_truncated(d->slot, 0);
    else if (d != &ps_plain && flags & O_CREAT && !o->waits) created_to_be_read(d->slot, fd);
    ps_descriptor_set(fd, d);
    errno = kept;
}

int ps_open_anywhere(int dirfd, const char *path, int flags, mode_t mode) {
    struct ps_open o;
    int error = ps_open_before(&o, dirfd, path, flags);
    if (PS_RARELY(error)) return ps_fail(error);
    int fd = REAL(openat)(dirfd, path, flags, mode);
    if (fd >= 0) ps_open_after(&o, fd, flags);
    return fd;
}

static inline bool takes_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

#define MODE_AFTER(flags)                          \
    mode_t mode = 0;                               \
    if (takes_mode(flags)) {                       \
        va_list rest;                              \
        va_start(rest, flags);                     \
        mode = (mode_t)va_arg(rest, unsigned int); \
        va_end(rest);                              \
    }

PS_WRAPS int open(const char *path, int flags, ...) {
    MODE_AFTER(flags)
    return ps_open_anywhere(AT_FDCWD, path, flags, mode);
}

PS_WRAPS int open64(const char *path, int flags, ...) {
    MODE_AFTER(flags)
    return ps_open_anywhere(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

PS_WRAPS int openat(int dirfd, const char *path, int flags, ...) {
    MODE_AFTER(flags)
    return ps_open_anywhere(dirfd, path, flags, mode);
}

PS_WRAPS int openat64(int dirfd, const char *path, int flags, ...) {
    MODE_AFTER(flags)
    return ps_open_anywhere(dirfd, path, flags | O_LARGEFILE, mode);
}

/* What -D_FORTIFY_SOURCE makes of an open without a mode. */
PS_WRAPS int __open_2(const char *path, int flags) { return ps_open_anywhere(AT_FDCWD, path, flags, 0); }
PS_WRAPS int __open64_2(const char *path, int flags) { return ps_open_anywhere(AT_FDCWD, path, flags | O_LARGEFILE, 0); }
PS_WRAPS int __openat_2(int dirfd, const char *path, int flags) { return ps_open_anywhere(dirfd, path, flags, 0); }
PS_WRAPS int __openat64_2(int dirfd, const char *path, int flags) {
    return ps_open_anywhere(dirfd, path, flags | O_LARGEFILE, 0);
}

PS_WRAPS int creat(const char *path, mode_t mode) {
    return ps_open_anywhere(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
PS_WRAPS int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* A name that libc chose: known only afterwards. */
static int made_temporary(int fd, const char *path, int flags) {
    if (fd < 0) return fd;
    struct ps_open o;
    flags |= O_RDWR | O_CREAT | O_EXCL | O_TRUNC;
    int kept = errno;
    if (!ps_open_before(&o, AT_FDCWD, path, flags)) ps_open_after(&o, fd, flags);
    errno = kept;
    return fd;
}

PS_WRAPS int mkstemp(char *path) { return made_temporary(REAL(mkstemp)(path), path, 0); }
PS_WRAPS int mkstemp64(char *path) { return made_temporary(REAL(mkstemp64)(path), path, 0); }
PS_WRAPS int mkostemp(char *path, int flags) { return made_temporary(REAL(mkostemp)(path, flags), path, flags); }
PS_WRAPS int mkostemp64(char *path, int flags) { return made_temporary(REAL(mkostemp64)(path, flags), path, flags); }
PS_WRAPS int mkstemps(char *path, int tail) { return made_temporary(REAL(mkstemps)(path, tail), path, 0); }
PS_WRAPS int mkstemps64(char *path, int tail) { return made_temporary(REAL(mkstemps64)(path, tail), path, 0); }
PS_WRAPS int mkostemps(char *path, int tail, int flags) {
    return made_temporary(REAL(mkostemps)(path, tail, flags), path, flags);
}
PS_WRAPS int mkostemps64(char *path, int tail, int flags) {
    return made_temporary(REAL(mkostemps64)(path, tail, flags), path, flags);
}
