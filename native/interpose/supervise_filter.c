/* Which calls of a program without the library are held until its supervisor has seen them. Those that name a file, list a
 * directory, execute a program, or end it; all others cost nothing. What has been opened is whole, so reads are not seen. */
#include "interpose.h"
#include "supervise.h"

#include <linux/audit.h>
#include <stddef.h>
#include <sys/prctl.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#define OTHER_ABI 0x40000000u /* x32: its programs are held before they start */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, action)
#define IF(value, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1), ANSWER(action)
#define HOLD(name) IF(SYS_##name, SECCOMP_RET_USER_NOTIF)
#define FAIL(error) (SECCOMP_RET_ERRNO | (error))

static struct sock_filter program[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    ANSWER(SECCOMP_RET_ALLOW),
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, OTHER_ABI, 0, 1),
    ANSWER(SECCOMP_RET_ALLOW),
    HOLD(openat),
    HOLD(newfstatat),
    HOLD(statx),
    HOLD(fstat),
    HOLD(getdents64),
    HOLD(openat2),
    HOLD(faccessat),
    HOLD(faccessat2),
    HOLD(readlinkat),
    HOLD(unlinkat),
    HOLD(renameat),
    HOLD(renameat2),
    HOLD(mkdirat),
    HOLD(symlinkat),
    HOLD(linkat),
    HOLD(mknodat),
    HOLD(truncate),
    HOLD(chdir),
    HOLD(execve),
    HOLD(execveat),
    HOLD(exit_group),
#define HELD(name, ...) HOLD(name),
#include "attributes.def"
#undef HELD
#ifdef SYS_open /* x86 has the older ones too */
    HOLD(open),
    HOLD(creat),
    HOLD(stat),
    HOLD(lstat),
    HOLD(access),
    HOLD(readlink),
    HOLD(unlink),
    HOLD(rmdir),
    HOLD(rename),
    HOLD(mkdir),
    HOLD(symlink),
    HOLD(link),
    HOLD(mknod),
    HOLD(getdents),
#endif
    IF(SYS_io_uring_setup, FAIL(ENOSYS)), /* its users fall back to calls that are seen */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
    LOAD(args[0]),
    IF(PS_ASK_SUPERVISED, FAIL(EALREADY)),
    ANSWER(SECCOMP_RET_ALLOW),
};

const struct sock_fprog ps_filter = {.len = sizeof program / sizeof *program, .filter = program};

int ps_filter_install(void) {
    /* A call that the supervisor has taken up is not begun anew because of a signal: what it changed would be done twice. */
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    long listener = PS_KERNEL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &ps_filter, 0, 0, 0);
    if (listener != -EACCES) return (int)listener;
    /* Only root may do it without: then programs with more rights that this one starts keep them. */
    if (PS_KERNEL(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)) return -EACCES;
    return (int)PS_KERNEL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &ps_filter, 0, 0, 0);
}
