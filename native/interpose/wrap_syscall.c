/* syscall(2), the libc function: programs that name a call by its number (libuv's statx, say) get the same wrapper.
 * io_uring has no call per operation to wrap, so it is absent here; its users fall back to ordinary calls. */
#include "interpose.h"

#include <linux/openat2.h>

static long openat2_body(int dirfd, const char *path, struct open_how *how, size_t bytes) {
    struct ps_open o;
    int flags = how && bytes >= sizeof *how ? (int)how->flags : 0;
    int error = ps_open_before(&o, dirfd, path, flags);
    if (error) return ps_fail(error);
    long fd = REAL(syscall)(SYS_openat2, dirfd, path, how, bytes);
    if (fd >= 0) ps_open_after(&o, (int)fd, flags);
    return fd;
}

#define NAMED(name, call) \
    case SYS_##name: return (long)(call);

PS_WRAPS long syscall(long number, ...) {
    long a, b, c, d, e, f;
    va_list rest;
    va_start(rest, number);
    a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
    va_end(rest);
    if (!ps_active()) return REAL(syscall)(number, a, b, c, d, e, f);
    int A = (int)a, B = (int)b, C = (int)c, D = (int)d;
    char *path = (char *)a, *path_at = (char *)b;
    switch (number) {
        NAMED(openat, ps_open_anywhere(A, path_at, C, (mode_t)d))
        NAMED(openat2, openat2_body(A, path_at, (struct open_how *)c, (size_t)d))
        NAMED(close, close(A))
        NAMED(close_range, close_range((unsigned)a, (unsigned)b, C))
        NAMED(read, read(A, (void *)b, (size_t)c))
        NAMED(pread64, pread(A, (void *)b, (size_t)c, d))
        NAMED(readv, readv(A, (const struct iovec *)b, C))
        NAMED(preadv, preadv(A, (const struct iovec *)b, C, d))
        NAMED(preadv2, preadv2(A, (const struct iovec *)b, C, d, (int)f))
        NAMED(write, write(A, (const void *)b, (size_t)c))
        NAMED(pwrite64, pwrite(A, (const void *)b, (size_t)c, d))
        NAMED(writev, writev(A, (const struct iovec *)b, C))
        NAMED(pwritev, pwritev(A, (const struct iovec *)b, C, d))
        NAMED(pwritev2, pwritev2(A, (const struct iovec *)b, C, d, (int)f))
        NAMED(lseek, lseek(A, b, C))
        NAMED(fstat, fstat(A, (struct stat *)b))
        NAMED(newfstatat, fstatat(A, path_at, (struct stat *)c, D))
        NAMED(statx, statx(A, path_at, C, (unsigned)d, (struct statx *)e))
        NAMED(faccessat, faccessat(A, path_at, C, 0))
        NAMED(faccessat2, faccessat(A, path_at, C, D))
        NAMED(readlinkat, readlinkat(A, path_at, (char *)c, (size_t)d))
        NAMED(getdents64, getdents64(A, (void *)b, (size_t)c))
        NAMED(renameat, renameat(A, path_at, C, (char *)d))
        NAMED(renameat2, renameat2(A, path_at, C, (char *)d, (unsigned)e))
        NAMED(unlinkat, unlinkat(A, path_at, C))
        NAMED(mkdirat, mkdirat(A, path_at, (mode_t)c))
        NAMED(linkat, linkat(A, path_at, C, (char *)d, (int)e))
        NAMED(symlinkat, symlinkat(path, B, (char *)c))
        NAMED(mknodat, mknodat(A, path_at, (mode_t)c, (dev_t)d))
        NAMED(truncate, truncate(path, b))
        NAMED(ftruncate, ftruncate(A, b))
        NAMED(chdir, chdir(path))
        NAMED(fchdir, fchdir(A))
        NAMED(dup, dup(A))
        NAMED(dup3, dup3(A, B, C))
        NAMED(fcntl, fcntl(A, B, c))
        NAMED(sendfile, sendfile(A, B, (off_t *)c, (size_t)d))
        NAMED(splice, splice(A, (off64_t *)b, C, (off64_t *)d, (size_t)e, (unsigned)f))
        NAMED(copy_file_range, copy_file_range(A, (off64_t *)b, C, (off64_t *)d, (size_t)e, (unsigned)f))
        NAMED(io_submit, ps_io_submit((unsigned long)a, b, (void *)c))
        NAMED(execve, execve(path, (char *const *)b, (char *const *)c))
        NAMED(execveat, execveat(A, path_at, (char *const *)c, (char *const *)d, (int)e))
#ifdef SYS_open /* calls that newer machines do without */
        NAMED(open, ps_open_anywhere(AT_FDCWD, path, B, (mode_t)c))
        NAMED(creat, creat(path, (mode_t)b))
        NAMED(stat, stat(path, (struct stat *)b))
        NAMED(lstat, lstat(path, (struct stat *)b))
        NAMED(access, access(path, B))
        NAMED(readlink, readlink(path, (char *)b, (size_t)c))
        NAMED(rename, rename(path, (char *)b))
        NAMED(unlink, unlink(path))
        NAMED(rmdir, rmdir(path))
        NAMED(mkdir, mkdir(path, (mode_t)b))
        NAMED(link, link(path, (char *)b))
        NAMED(symlink, symlink(path, (char *)b))
        NAMED(mknod, mknod(path, (mode_t)b, (dev_t)c))
        NAMED(dup2, dup2(A, B))
#endif
        case SYS_io_uring_setup: return ps_fail(ENOSYS);
        case SYS_exit_group: ps_goodbye(); break;
    }
    const struct ps_held_call *held = ps_held_call(number);
    uint64_t arguments[] = {(uint64_t)a, (uint64_t)b, (uint64_t)c, (uint64_t)d, (uint64_t)e, (uint64_t)f};
    int error = held ? ps_await_held(held, arguments) : 0;
    if (error) return ps_fail(error);
    return REAL(syscall)(number, a, b, c, d, e, f);
}
