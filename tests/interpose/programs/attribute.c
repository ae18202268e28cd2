#include "family.h"
#include <sys/inotify.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <utime.h>

/* A time that was set; the present is another one in the next run. */
static long set(time_t time) { return time < 1000000000 ? (long)time : -1; }

static void looks(const char *path) {
    struct stat s;
    if (lstat(path, &s)) printf("%s: %s\n", path, strerrorname_np(errno));
    else printf("%s: %o %ld %ld\n", path, s.st_mode, set(s.st_atime), set(s.st_mtime));
}

int main(void) {
    struct utimbuf old = {1000000, 2000000};
    struct timeval in_micros[2] = {{3000000, 1}, {4000000, 1}};
    struct timespec in_nanos[2] = {{5000000, 1}, {6000000, 1}};
    struct statfs fs;
    struct statfs64 fs64;
    struct statvfs vfs;
    struct statvfs64 vfs64;
    char text[256] = "";
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644), here = open(".", O_RDONLY), watch = inotify_init();
    symlink("out", "out.link");
    symlink("nowhere", "out.broken");
    utimensat(here, "out.link", in_nanos, AT_SYMLINK_NOFOLLOW);
    SHOW(chmod("out", 0600)), looks("out");
    SHOW(chmod("out.link", 0640)), looks("out");
    SHOW(fchmodat(here, "out", 0644, 0)), looks("out");
    SHOW(fchmod(fd, 0604)), looks("out");
    SHOW(lchmod("out", 0606)), looks("out");
    SHOW(chmod("out.missing", 0600));
    SHOW(chmod("out.broken", 0600));
    SHOW(chmod("out/x", 0600));
    SHOW_BAD(chmod(NULL, 0600));
    SHOW(chown("out", getuid(), getgid()));
    SHOW(lchown("out.broken", getuid(), getgid()));
    SHOW(fchownat(here, "out.link", getuid(), getgid(), AT_SYMLINK_NOFOLLOW));
    SHOW(fchownat(fd, "", getuid(), getgid(), AT_EMPTY_PATH));
    SHOW(fchown(fd, getuid(), getgid()));
    SHOW(chown("out.broken", getuid(), getgid()));
    SHOW(utime("out", &old)), looks("out");
    SHOW(utimes("out", in_micros)), looks("out");
    SHOW(lutimes("out.link", in_micros)), looks("out.link");
    SHOW(futimesat(here, "out", in_micros)), looks("out");
    SHOW(utimensat(here, "out", in_nanos, 0)), looks("out");
    SHOW(utimensat(fd, NULL, in_nanos, 0)), looks("out");
    SHOW(futimes(fd, in_micros)), looks("out");
    SHOW(futimens(fd, in_nanos)), looks("out");
    SHOW(utime("out.missing", NULL));
    SHOW(setxattr("out", "user.a", "1", 1, 0));
    SHOW(lsetxattr("out", "user.b", "22", 2, XATTR_CREATE));
    SHOW(fsetxattr(fd, "user.c", "333", 3, 0));
    SHOW(setxattr("out", "user.a", "1", 1, XATTR_CREATE));
    SHOW(getxattr("out.link", "user.a", text, sizeof text));
    SHOW(lgetxattr("out.link", "user.a", text, sizeof text));
    SHOW(lgetxattr("out", "user.b", text, sizeof text)), puts(text);
    SHOW(fgetxattr(fd, "user.c", text, 1));
    SHOW(listxattr("out", NULL, 0) > 0);
    SHOW(llistxattr("out.broken", NULL, 0));
    SHOW(listxattr("out.broken", NULL, 0));
    SHOW(flistxattr(fd, text, sizeof text) > 0);
    SHOW(removexattr("out.link", "user.a"));
    SHOW(lremovexattr("out", "user.b"));
    SHOW(fremovexattr(fd, "user.c"));
    SHOW(removexattr("out", "user.a"));
    SHOW(statfs("out", &fs));
    SHOW(statfs64("out.link", &fs64));
    SHOW(statvfs("out", &vfs));
    SHOW(statvfs64("out.missing", &vfs64));
    SHOW(pathconf("out", _PC_NAME_MAX));
    SHOW(pathconf("out.missing", _PC_LINK_MAX) != -1);
    SHOW(inotify_add_watch(watch, "out", IN_MODIFY) > 0);
    SHOW(inotify_add_watch(watch, "out.missing", IN_MODIFY));
    SHOW(syscall(SYS_fchmodat, here, "out", 0600)), looks("out");
    SHOW(syscall(SYS_utimensat, here, "out.missing", NULL, 0));
    SHOW(syscall(SYS_getxattr, "out", "user.none", text, sizeof text));
    return 0;
}
