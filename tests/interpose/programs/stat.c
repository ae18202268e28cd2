#include "family.h"
#include <sys/vfs.h>
int __xstat(int, const char *, struct stat *);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat(int, const char *, struct stat *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstat(int, int, struct stat *);
int __fxstat64(int, int, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __fxstatat64(int, int, const char *, struct stat64 *, int);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);

#define SIZE(expression) SHOW(expression), printf("size %ld mode %o\n", (long)s.st_size, s.st_mode), memset(&s, 0, sizeof s)
#define SIZE64(expression) SHOW(expression), printf("size %ld\n", (long)s64.st_size), memset(&s64, 0, sizeof s64)

int main(void) {
    struct stat s;
    struct stat64 s64;
    struct statx sx;
    struct statfs fs;
    char text[4096] = "";
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644), here = open(".", O_RDONLY);
    write(fd, "0123456789", 10);
    symlink("out", "out.link");
    symlink("nowhere", "out.broken");
    SIZE(stat("out", &s));
    SIZE(lstat("out.link", &s));
    SIZE(fstat(fd, &s));
    SIZE(fstatat(here, "out", &s, 0));
    SIZE(fstatat(here, "out.link", &s, AT_SYMLINK_NOFOLLOW));
    SIZE(fstatat(fd, "", &s, AT_EMPTY_PATH));
    SIZE64(stat64("out", &s64));
    SIZE64(lstat64("out", &s64));
    SIZE64(fstat64(fd, &s64));
    SIZE64(fstatat64(here, "./out", &s64, 0));
    SIZE(__xstat(1, "out", &s));
    SIZE64(__xstat64(1, "out", &s64));
    SIZE(__lxstat(1, "out.link", &s));
    SIZE64(__lxstat64(1, "out", &s64));
    SIZE(__fxstat(1, fd, &s));
    SIZE64(__fxstat64(1, fd, &s64));
    SIZE(__fxstatat(1, here, "out", &s, 0));
    SIZE64(__fxstatat64(1, here, "out", &s64, 0));
    SHOW(statx(here, "out", 0, STATX_SIZE, &sx)), printf("%ld\n", (long)sx.stx_size);
    SHOW(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &sx)), printf("%ld\n", (long)sx.stx_size);
    SHOW(statx(here, "out.none", 0, STATX_TYPE, &sx));
    SHOW(stat("out.missing", &s));
    SHOW(lstat("out.missing/x", &s));
    SHOW(stat("out.broken", &s));
    SHOW(fstat(-1, &s));
    SHOW(stat("out/", &s));
    SHOW(access("out", R_OK));
    SHOW(access("out.missing", F_OK));
    SHOW(eaccess("out", W_OK));
    SHOW(euidaccess("out", W_OK));
    SHOW(faccessat(here, "out", R_OK, AT_EACCESS));
    SHOW(faccessat(here, "out.broken", F_OK, AT_SYMLINK_NOFOLLOW));
    SHOW(readlink("out.link", text, sizeof text)), puts(text);
    SHOW(readlinkat(here, "out.broken", text, sizeof text)), puts(text);
    SHOW(__readlink_chk("out.link", text, 3, sizeof text));
    SHOW(__readlinkat_chk(here, "out.link", text, 2, sizeof text));
    SHOW(readlink("out", text, sizeof text));
    char *real = realpath("./out.link", text);
    puts(real ? strrchr(real, '/') : "none");
    real = __realpath_chk("out", text, sizeof text);
    puts(real ? strrchr(real, '/') : "none");
    real = canonicalize_file_name("out.missing");
    puts(real ? real : strerrorname_np(errno));
    SHOW(statfs(".", &fs));
    SHOW(chmod("out", 0600));
    SHOW(utimensat(here, "out", NULL, 0));
    SIZE(stat("out", &s));
    return 0;
}
