/* Rights, owners, times and extended attributes; file systems, watches, handles. Who changes an attribute of another
 * step's file, or asks for one, means the file as that step leaves it; the rest waits for the birth. Nothing of this is
 * noted in the table. */
#include "interpose.h"

static int await_descriptor(int fd, enum ps_need need) {
    struct ps_description *d = ps_tracked(fd);
    return PS_OFTEN(!d || !(d->flags & PS_D_WAITS)) ? 0 : ps_await_slot(d->slot, need);
}

/* By path; by descriptor where there is none (utimensat) or it is empty and may be. */
static int await_at(int dirfd, const char *path, int flags, enum ps_need need) {
    if (!ps_is_path(path) || (!path[0] && flags & AT_EMPTY_PATH)) return await_descriptor(dirfd, need);
    return ps_await_path(dirfd, path, need, !(flags & AT_SYMLINK_NOFOLLOW));
}

/* ---- by number ------------------------------------------------------------------------------------------------------- */

const struct ps_held_call *ps_held_call(long number) {
    static const struct ps_held_call held[] = {
#define HELD(name, dirfd, path, flags, need, follow) {SYS_##name, dirfd, path, flags, need, follow},
#include "attributes.def"
#undef HELD
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i].number == number) return held + i;
    return NULL;
}

int ps_held_flags(const struct ps_held_call *held, const uint64_t *arguments) {
    int given = held->flags < 0 ? 0 : (int)arguments[held->flags];
    return held->follow ? given : given | AT_SYMLINK_NOFOLLOW;
}

int ps_await_held(const struct ps_held_call *held, const uint64_t *arguments) {
    int dirfd = held->dirfd < 0 ? AT_FDCWD : (int)arguments[held->dirfd];
    return await_at(dirfd, (const char *)arguments[held->path], ps_held_flags(held, arguments), held->need);
}

/* ---- by name --------------------------------------------------------------------------------------------------------- */

#define AT(result, name, parameters, dirfd, path, flags, need, call)    \
    PS_WRAPS result name parameters {                                   \
        int error = await_at(dirfd, path, flags, need);                 \
        return PS_RARELY(error) ? ps_fail(error) : REAL(name) call;     \
    }
#define CHANGES(name, parameters, dirfd, path, flags, call) AT(int, name, parameters, dirfd, path, flags, PS_NEED_COMMIT, call)
#define LINK AT_SYMLINK_NOFOLLOW

CHANGES(chmod, (const char *path, mode_t mode), AT_FDCWD, path, 0, (path, mode))
CHANGES(lchmod, (const char *path, mode_t mode), AT_FDCWD, path, LINK, (path, mode))
CHANGES(fchmodat, (int dirfd, const char *path, mode_t mode, int flags), dirfd, path, flags, (dirfd, path, mode, flags))
CHANGES(chown, (const char *path, uid_t user, gid_t group), AT_FDCWD, path, 0, (path, user, group))
CHANGES(lchown, (const char *path, uid_t user, gid_t group), AT_FDCWD, path, LINK, (path, user, group))
CHANGES(fchownat, (int dirfd, const char *path, uid_t user, gid_t group, int flags), dirfd, path, flags,
        (dirfd, path, user, group, flags))
CHANGES(utime, (const char *path, const struct utimbuf *times), AT_FDCWD, path, 0, (path, times))
CHANGES(utimes, (const char *path, const struct timeval times[2]), AT_FDCWD, path, 0, (path, times))
CHANGES(lutimes, (const char *path, const struct timeval times[2]), AT_FDCWD, path, LINK, (path, times))
CHANGES(futimesat, (int dirfd, const char *path, const struct timeval times[2]), dirfd, path, 0, (dirfd, path, times))
CHANGES(utimensat, (int dirfd, const char *path, const struct timespec times[2], int flags), dirfd, path, flags,
        (dirfd, path, times, flags))
CHANGES(setxattr, (const char *path, const char *name, const void *value, size_t bytes, int how), AT_FDCWD, path, 0,
        (path, name, value, bytes, how))
CHANGES(lsetxattr, (const char *path, const char *name, const void *value, size_t bytes, int how), AT_FDCWD, path, LINK,
        (path, name, value, bytes, how))
CHANGES(removexattr, (const char *path, const char *name), AT_FDCWD, path, 0, (path, name))
CHANGES(lremovexattr, (const char *path, const char *name), AT_FDCWD, path, LINK, (path, name))

AT(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t room), AT_FDCWD, path, 0, PS_NEED_STAT,
   (path, name, value, room))
AT(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t room), AT_FDCWD, path, LINK, PS_NEED_STAT,
   (path, name, value, room))
AT(ssize_t, listxattr, (const char *path, char *names, size_t room), AT_FDCWD, path, 0, PS_NEED_STAT, (path, names, room))
AT(ssize_t, llistxattr, (const char *path, char *names, size_t room), AT_FDCWD, path, LINK, PS_NEED_STAT,
   (path, names, room))

#define EXISTS(result, name, parameters, dirfd, path, flags, call) \
    AT(result, name, parameters, dirfd, path, flags, PS_NEED_BIRTH, call)
EXISTS(int, statfs, (const char *path, struct statfs *out), AT_FDCWD, path, 0, (path, out))
EXISTS(int, statfs64, (const char *path, struct statfs64 *out), AT_FDCWD, path, 0, (path, out))
EXISTS(int, statvfs, (const char *path, struct statvfs *out), AT_FDCWD, path, 0, (path, out))
EXISTS(int, statvfs64, (const char *path, struct statvfs64 *out), AT_FDCWD, path, 0, (path, out))
EXISTS(long, pathconf, (const char *path, int what), AT_FDCWD, path, 0, (path, what))
EXISTS(int, inotify_add_watch, (int fd, const char *path, uint32_t events), AT_FDCWD, path, 0, (fd, path, events))
EXISTS(int, name_to_handle_at, (int dirfd, const char *path, struct file_handle *out, int *mount, int flags), dirfd, path,
       flags & AT_SYMLINK_FOLLOW ? flags : flags | LINK, (dirfd, path, out, mount, flags))

/* ---- by descriptor ------------------------------------------------------------------------------------------------------ */

#define OF(result, name, parameters, need, call)                        \
    PS_WRAPS result name parameters {                                   \
        int error = await_descriptor(fd, need);                         \
        return PS_RARELY(error) ? ps_fail(error) : REAL(name) call;     \
    }
OF(int, fchmod, (int fd, mode_t mode), PS_NEED_COMMIT, (fd, mode))
OF(int, fchown, (int fd, uid_t user, gid_t group), PS_NEED_COMMIT, (fd, user, group))
OF(int, futimes, (int fd, const struct timeval times[2]), PS_NEED_COMMIT, (fd, times))
OF(int, futimens, (int fd, const struct timespec times[2]), PS_NEED_COMMIT, (fd, times))
OF(int, fsetxattr, (int fd, const char *name, const void *value, size_t bytes, int how), PS_NEED_COMMIT,
   (fd, name, value, bytes, how))
OF(int, fremovexattr, (int fd, const char *name), PS_NEED_COMMIT, (fd, name))
OF(ssize_t, fgetxattr, (int fd, const char *name, void *value, size_t room), PS_NEED_STAT, (fd, name, value, room))
OF(ssize_t, flistxattr, (int fd, char *names, size_t room), PS_NEED_STAT, (fd, names, room))
