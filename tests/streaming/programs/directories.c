/* What each call tells of the directories that are named: bytes, blocks, bytes of a block, links. All calls must agree. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *path, const char *call, int error, const struct stat *s) {
    printf("%s %s: %d %ld %ld %ld %ld\n", path, call, error, (long)s->st_size, (long)s->st_blocks, (long)s->st_blksize,
           (long)s->st_nlink);
}

static void say_extended(const char *path, const char *call, int error, const struct statx *s) {
    printf("%s %s: %d %ld %ld %ld %ld\n", path, call, error, (long)s->stx_size, (long)s->stx_blocks, (long)s->stx_blksize,
           (long)s->stx_nlink);
}

#define SAY(call) say(path, #call, (int)(call), &s)
#define SAY_EXTENDED(call) say_extended(path, #call, (int)(call), &x)

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *path = argv[i];
        struct stat s;
        struct statx x;
        unsigned asked = STATX_SIZE | STATX_BLOCKS | STATX_NLINK;
        int fd = open(path, O_RDONLY | O_DIRECTORY), place = open(path, O_PATH);
        SAY(stat(path, &s));
        SAY(lstat(path, &s));
        SAY(fstat(fd, &s));
        SAY(fstat(place, &s));
        SAY(fstatat(AT_FDCWD, path, &s, AT_SYMLINK_NOFOLLOW));
        SAY(fstatat(fd, "", &s, AT_EMPTY_PATH));
        SAY(fstatat(fd, ".", &s, 0));
        SAY(syscall(SYS_newfstatat, AT_FDCWD, path, &s, 0));
        SAY(syscall(SYS_fstat, fd, &s));
#ifdef SYS_stat
        SAY(syscall(SYS_stat, path, &s));
        SAY(syscall(SYS_lstat, path, &s));
#endif
        SAY_EXTENDED(statx(AT_FDCWD, path, 0, STATX_ALL, &x));
        SAY_EXTENDED(statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, asked, &x));
        SAY_EXTENDED(statx(fd, "", AT_EMPTY_PATH, asked, &x));
        SAY_EXTENDED(syscall(SYS_statx, AT_FDCWD, path, 0, asked, &x));
        if (chdir(path)) return 1;
        SAY(stat(".", &s));
        if (chdir(getenv("TOP"))) return 1;
    }
    return 0;
}
