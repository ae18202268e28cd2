/* stat and its kin: sizes and times are final before a consumer sees them; existence waits for the birth. */
#include "interpose.h"

#include <stdlib.h>

/* Who has a directory open means to list it: its times and links are those that the listing will have (tar compares). */
static inline int await_fstat(int fd) {
    struct ps_description *d = ps_tracked(fd);
    return PS_OFTEN(!d || !(d->flags & PS_D_WAITS)) ? 0 : ps_await_slot(d->slot, PS_NEED_ENTRIES);
}

/* stat by descriptor, by path, or by descriptor and empty path. */
static int await_stat_for(int dirfd, const char *path, int flags, enum ps_need need) {
    if (ps_is_path(path) && path[0]) return ps_await_path(dirfd, path, need, !(flags & AT_SYMLINK_NOFOLLOW));
    return flags & AT_EMPTY_PATH ? await_fstat(dirfd) : 0;
}
static int await_stat(int dirfd, const char *path, int flags) {
    return await_stat_for(dirfd, path, flags, PS_NEED_STAT);
}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one stat for both");

/* What a call that was not held has told, of a directory as it would be at home. Where nothing is in memory nothing comes after
 * the call: one return more is felt. */
#define TOLD(error, dirfd, path, call)                                                             \
    if (PS_RARELY(error)) return ps_fail(error);                                                   \
    if (PS_OFTEN(!ps_in_memory())) return call;                                                    \
    int result = call;                                                                             \
    if (!result && S_ISDIR(out->st_mode)) ps_as_at_home(dirfd, path, (struct stat *)(void *)out);  \
    return result;

#define STAT_BY_PATH(name, parameters, path, flags, call)    \
    PS_WRAPS int name parameters {                           \
        int error = await_stat(AT_FDCWD, path, flags);       \
        TOLD(error, AT_FDCWD, path, REAL(name) call)         \
    }
STAT_BY_PATH(stat, (const char *path, struct stat *out), path, 0, (path, out))
STAT_BY_PATH(stat64, (const char *path, struct stat64 *out), path, 0, (path, out))
STAT_BY_PATH(lstat, (const char *path, struct stat *out), path, AT_SYMLINK_NOFOLLOW, (path, out))
STAT_BY_PATH(lstat64, (const char *path, struct stat64 *out), path, AT_SYMLINK_NOFOLLOW, (path, out))
STAT_BY_PATH(__xstat, (int version, const char *path, struct stat *out), path, 0, (version, path, out))
STAT_BY_PATH(__xstat64, (int version, const char *path, struct stat64 *out), path, 0, (version, path, out))
STAT_BY_PATH(__lxstat, (int version, const char *path, struct stat *out), path, AT_SYMLINK_NOFOLLOW,
             (version, path, out))
STAT_BY_PATH(__lxstat64, (int version, const char *path, struct stat64 *out), path, AT_SYMLINK_NOFOLLOW,
             (version, path, out))

#define STAT_BY_DESCRIPTOR(name, parameters, fd, call)       \
    PS_WRAPS int name parameters {                           \
        int error = await_fstat(fd);                         \
        TOLD(error, fd, NULL, REAL(name) call)               \
    }
STAT_BY_DESCRIPTOR(fstat, (int fd, struct stat *out), fd, (fd, out))
STAT_BY_DESCRIPTOR(fstat64, (int fd, struct stat64 *out), fd, (fd, out))
STAT_BY_DESCRIPTOR(__fxstat, (int version, int fd, struct stat *out), fd, (version, fd, out))
STAT_BY_DESCRIPTOR(__fxstat64, (int version, int fd, struct stat64 *out), fd, (version, fd, out))

#define STAT_AT(name, parameters, dirfd, path, flags, call)  \
    PS_WRAPS int name parameters {                           \
        int error = await_stat(dirfd, path, flags);          \
        TOLD(error, dirfd, path, REAL(name) call)            \
    }
STAT_AT(fstatat, (int dirfd, const char *path, struct stat *out, int flags), dirfd, path, flags,
        (dirfd, path, out, flags))
STAT_AT(fstatat64, (int dirfd, const char *path, struct stat64 *out, int flags), dirfd, path, flags,
        (dirfd, path, out, flags))
STAT_AT(__fxstatat, (int version, int dirfd, const char *path, struct stat *out, int flags), dirfd, path, flags,
        (version, dirfd, path, out, flags))
STAT_AT(__fxstatat64, (int version, int dirfd, const char *path, struct stat64 *out, int flags), dirfd, path, flags,
        (version, dirfd, path, out, flags))

/* A statx that asks only for what cannot change (type, inode) waits for the birth. One that asks for some things, and for
 * one among them that the entries of a directory change, means it (`stat -c %h`); many ask for all there is. */
PS_WRAPS int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *out) {
    unsigned entries = STATX_NLINK | STATX_MTIME | STATX_CTIME | STATX_SIZE | STATX_BLOCKS;
    enum ps_need need = mask & entries && (mask & STATX_BASIC_STATS) != STATX_BASIC_STATS ? PS_NEED_ENTRIES : PS_NEED_STAT;
    bool kind_only = !(mask & ~(unsigned)(STATX_TYPE | STATX_MODE | STATX_INO | STATX_UID | STATX_GID | STATX_BTIME));
    bool empty = ps_is_path(path) && !path[0] && flags & AT_EMPTY_PATH;
    int error = !kind_only ? await_stat_for(dirfd, path, flags, need)
                : empty    ? 0
                           : ps_await_path(dirfd, path, PS_NEED_BIRTH, !(flags & AT_SYMLINK_NOFOLLOW));
    int result = error ? ps_fail(error) : REAL(statx)(dirfd, path, flags, mask, out);
    if (!result && S_ISDIR(out->stx_mode)) ps_as_at_home_extended(dirfd, path, mask, out);
    return result;
}

/* Whether a file may be executed is known when it is whole. */
static int await_access(int dirfd, const char *path, int mode, bool follow) {
    if (PS_RARELY(mode & X_OK)) return ps_await_program(dirfd, path, follow);
    return ps_await_path(dirfd, path, PS_NEED_BIRTH, follow);
}

#define EXISTENCE_AT(name, parameters, dirfd, path, follow, call)                        \
    PS_WRAPS int name parameters {                                                       \
        int error = await_access(dirfd, path, mode, follow);                             \
        return PS_RARELY(error) ? ps_fail(error) : REAL(name) call;                      \
    }
EXISTENCE_AT(access, (const char *path, int mode), AT_FDCWD, path, true, (path, mode))
EXISTENCE_AT(eaccess, (const char *path, int mode), AT_FDCWD, path, true, (path, mode))
EXISTENCE_AT(euidaccess, (const char *path, int mode), AT_FDCWD, path, true, (path, mode))
EXISTENCE_AT(faccessat, (int dirfd, const char *path, int mode, int flags), dirfd, path,
             !(flags & AT_SYMLINK_NOFOLLOW), (dirfd, path, mode, flags))

PS_WRAPS ssize_t readlink(const char *path, char *buffer, size_t room) {
    int error = ps_await_path(AT_FDCWD, path, PS_NEED_BIRTH, false);
    return error ? ps_fail(error) : REAL(readlink)(path, buffer, room);
}

PS_WRAPS ssize_t readlinkat(int dirfd, const char *path, char *buffer, size_t room) {
    int error = ps_await_path(dirfd, path, PS_NEED_BIRTH, false);
    return error ? ps_fail(error) : REAL(readlinkat)(dirfd, path, buffer, room);
}

PS_WRAPS ssize_t __readlink_chk(const char *path, char *buffer, size_t bytes, size_t room) {
    int error = ps_await_path(AT_FDCWD, path, PS_NEED_BIRTH, false);
    return error ? ps_fail(error) : REAL(__readlink_chk)(path, buffer, bytes, room);
}

PS_WRAPS ssize_t __readlinkat_chk(int dirfd, const char *path, char *buffer, size_t bytes, size_t room) {
    int error = ps_await_path(dirfd, path, PS_NEED_BIRTH, false);
    return error ? ps_fail(error) : REAL(__readlinkat_chk)(dirfd, path, buffer, bytes, room);
}

static char *no_path(int error) {
    errno = error;
    return NULL;
}

PS_WRAPS char *realpath(const char *path, char *out) {
    int error = ps_await_path(AT_FDCWD, path, PS_NEED_BIRTH, true);
    return error ? no_path(error) : REAL(realpath)(path, out);
}

PS_WRAPS char *__realpath_chk(const char *path, char *out, size_t room) {
    int error = ps_await_path(AT_FDCWD, path, PS_NEED_BIRTH, true);
    return error ? no_path(error) : REAL(__realpath_chk)(path, out, room);
}

PS_WRAPS char *canonicalize_file_name(const char *path) {
    int error = ps_await_path(AT_FDCWD, path, PS_NEED_BIRTH, true);
    return error ? no_path(error) : REAL(canonicalize_file_name)(path);
}
