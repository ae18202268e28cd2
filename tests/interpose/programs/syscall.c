#include "family.h"
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>

int main(void) {
    struct stat s;
    struct statx sx;
    struct open_how how = {.flags = O_RDONLY};
    char text[4096] = "";
    struct iovec iov = {text, 4};
    int fd = SHOW_FD(syscall(SYS_openat, AT_FDCWD, "out", O_RDWR | O_CREAT | O_TRUNC, 0644));
    SHOW(syscall(SYS_write, fd, "0123456789", 10)), SHOW(syscall(SYS_pwrite64, fd, "AB", 2, 2));
    SHOW(syscall(SYS_lseek, fd, 1, SEEK_SET)), SHOW(syscall(SYS_read, fd, text, 3)), puts(text);
    SHOW(syscall(SYS_pread64, fd, text, 3, 5)), SHOW(syscall(SYS_readv, fd, &iov, 1)), puts(text);
    SHOW(syscall(SYS_fstat, fd, &s)), SHOW(s.st_size), SHOW(syscall(SYS_newfstatat, AT_FDCWD, "out", &s, 0));
    SHOW(syscall(SYS_statx, AT_FDCWD, "out", 0, STATX_SIZE, &sx)), SHOW(sx.stx_size);
    SHOW(syscall(SYS_ftruncate, fd, 5)), SHOW(syscall(SYS_truncate, "out", 6));
    SHOW(syscall(SYS_faccessat, AT_FDCWD, "out.none", F_OK)), SHOW(syscall(SYS_dup3, fd, 30, 0));
    SHOW(syscall(SYS_write, 30, "X", 1)), SHOW(syscall(SYS_close, 30)), SHOW(syscall(SYS_close, fd));
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "out", AT_FDCWD, "out.2", 0)), show_file("out.2");
    fd = SHOW_FD(syscall(SYS_openat2, AT_FDCWD, "out.2", &how, sizeof how)), SHOW(syscall(SYS_close, fd));
    SHOW(syscall(SYS_linkat, AT_FDCWD, "out.2", AT_FDCWD, "out.3", 0));
    SHOW(syscall(SYS_symlinkat, "out.3", AT_FDCWD, "out.4")), SHOW(syscall(SYS_readlinkat, AT_FDCWD, "out.4", text, 9));
    SHOW(syscall(SYS_mkdirat, AT_FDCWD, "made", 0755)), SHOW(syscall(SYS_chdir, "made"));
    SHOW(syscall(SYS_chdir, "..")), SHOW(syscall(SYS_unlinkat, AT_FDCWD, "made", AT_REMOVEDIR));
    SHOW(syscall(SYS_getpid) == getpid()), SHOW(syscall(SYS_openat, AT_FDCWD, "out.none", O_RDONLY));
    return 0;
}
