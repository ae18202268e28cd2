/* Whether this machine lets a supervisor work, tried out: a child under the filter asks for a file and is given one. */
#include "supervisor.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

static const char tried[] = "/penstock/asks/whether/this/is/seen";

static void ask(int socket) {
    int listener = ps_filter_install();
    if (listener < 0) PS_KERNEL(SYS_exit_group, -listener, 0, 0, 0, 0, 0);
    ps_hand_over(socket, listener);
    PS_KERNEL(SYS_close, listener, 0, 0, 0, 0, 0); /* if nobody answers, the call fails */
    PS_KERNEL(SYS_exit, PS_KERNEL(SYS_openat, AT_FDCWD, tried, O_RDONLY, 0, 0, 0) < 0, 0, 0, 0, 0, 0);
}

/* The first thing that does not work, in words; NULL. */
static const char *answer_it(int socket) {
    union {
        struct seccomp_notif call;
        char room[1024];
    } record = {.room = {0}};
    char name[4096];
    ps_listener = ps_receive_listener(socket);
    if (ps_listener < 0) return "the kernel does not let a process hand over its calls (seccomp user notification)";
    PS_KERNEL(SYS_sendto, socket, "", 1, MSG_NOSIGNAL, 0, 0);
    if (ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_RECV, &record)) return "no call of a program arrives";
    struct ps_call call = {record.call.id, (pid_t)record.call.pid, record.call.data.nr,
                           (const uint64_t *)record.call.data.args};
    if (ps_tracee_text(&call, call.arguments[1], name) || strcmp(name, tried))
        return "the memory of a program may not be read (kernel.yama.ptrace_scope, or a container without it)";
    struct seccomp_notif_addfd gift = {.id = call.id, .flags = SECCOMP_ADDFD_FLAG_SEND, .srcfd = (uint32_t)socket};
    if (ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_ADDFD, &gift) < 0) return "no file can be opened for a program";
    return NULL;
}

int ps_check(void) {
    int ends[2], status = 0;
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    const char *reason = "the kernel is too old: it takes Linux 5.19";
    if (PS_KERNEL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, NULL, 0, 0, 0) == -EFAULT &&
        !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        pid_t child = fork();
        if (!child) ask(ends[1]);
        PS_KERNEL(SYS_close, ends[1], 0, 0, 0, 0, 0);
        reason = answer_it(ends[0]);
        PS_KERNEL(SYS_close, ps_listener, 0, 0, 0, 0, 0);
        PS_KERNEL(SYS_close, ends[0], 0, 0, 0, 0, 0);
        waitpid(child, &status, 0);
        if (!reason && status) reason = "a file that was opened for a program does not arrive there";
    }
    if (reason) puts(reason);
    return reason != NULL;
}
