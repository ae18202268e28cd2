/* Before a program is executed that no library can get into: the process puts itself under a supervisor, which then sees
 * its file calls through the kernel (seccomp user notification) and holds them as the wrappers would. See supervise.h.
 *
 * It may be the child of a fork in a program with threads: nothing here allocates, and only the kernel is called. */
#include "interpose.h"
#include "supervise.h"

#include <limits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct start {
    char supervisor[PATH_MAX], process[16];
    int ours, its; /* the two ends of the socket */
};

static long fork_silently(void) { return PS_KERNEL(SYS_clone, 0, 0, 0, 0, 0, 0); } /* no SIGCHLD at its end */

bool ps_supervisor(char *room) {
    if (!ps_environment_beside(PS_SUPERVISOR, room) || PS_KERNEL(SYS_faccessat, AT_FDCWD, room, X_OK, 0, 0, 0)) return false;
    /* Without a filter to read it fails, but for a flag that it does not know with another error. */
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    return PS_KERNEL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, NULL, 0, 0, 0) == -EFAULT;
}

/* In the supervisor to be. It keeps no descriptor of the program: whoever reads from a pipe waits for the last of them. */
static void become(struct start *s) {
    char *const argv[] = {s->supervisor, "watch", (char *)ps_environment_table(), s->process, NULL};
    char *const environment[] = {NULL};
    PS_KERNEL(SYS_setsid, 0, 0, 0, 0, 0, 0); /* what is meant for the program's group does not reach it */
    PS_KERNEL(SYS_dup3, s->its, 0, 0, 0, 0, 0);
    long null = PS_KERNEL(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0, 0, 0);
    for (int fd = 1; fd <= 2; fd++)
        if (null != fd) PS_KERNEL(SYS_dup3, null, fd, 0, 0, 0, 0);
    PS_KERNEL(SYS_close_range, 3, ~0u, 0, 0, 0, 0);
    PS_KERNEL(SYS_execve, s->supervisor, argv, environment, 0, 0, 0);
    PS_KERNEL(SYS_exit_group, 127, 0, 0, 0, 0, 0);
}

/* Its parent ends at once, so that the program does not find a child that it has not started. */
static bool start(struct start *s) {
    int ends[2];
    if (PS_KERNEL(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends, 0, 0)) return false;
    s->ours = ends[0];
    s->its = ends[1];
    long between = fork_silently();
    if (!between) {
        if (!fork_silently()) become(s);
        PS_KERNEL(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    }
    PS_KERNEL(SYS_close, s->its, 0, 0, 0, 0, 0);
    if (between < 0) PS_KERNEL(SYS_close, s->ours, 0, 0, 0, 0, 0);
    while (between > 0 && PS_KERNEL(SYS_wait4, between, NULL, __WALL, NULL, 0, 0) == -EINTR) {}
    return between > 0;
}

bool ps_hand_over(int socket, int listener) {
    char byte = 0, room[CMSG_SPACE(sizeof listener)] = {0};
    struct iovec text = {&byte, 1};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof listener);
    memcpy(CMSG_DATA(head), &listener, sizeof listener);
    return PS_KERNEL(SYS_sendmsg, socket, &message, MSG_NOSIGNAL, 0, 0, 0) == 1 &&
           PS_KERNEL(SYS_recvfrom, socket, &byte, 1, 0, 0, 0) == 1;
}

static int supervised_by(struct start *s) {
    int32_t pid;
    if (PS_KERNEL(SYS_recvfrom, s->ours, &pid, sizeof pid, 0, 0, 0) != sizeof pid) return PS_NOT_SUPERVISED;
    PS_KERNEL(SYS_prctl, PR_SET_PTRACER, pid, 0, 0, 0, 0); /* it reads the names that calls are given */
    int listener = ps_filter_install();
    if (listener < 0) return PS_NOT_SUPERVISED;
    bool done = ps_hand_over(s->ours, listener);
    PS_KERNEL(SYS_close, listener, 0, 0, 0, 0, 0);
    return done ? 0 : EIO; /* the filter stays: nobody would answer the program's calls */
}

/* What it inherits is read without anybody's knowing: it is whole, as a file that it opens itself. */
static int await_inherited(void) {
    for (int fd = 0; fd < ps_descriptors_end(); fd++) {
        struct ps_description *d = ps_tracked(fd);
        if (!d || (d->flags & (PS_D_READS | PS_D_WAITS)) != (PS_D_READS | PS_D_WAITS)) continue;
        long flags = PS_KERNEL(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0);
        if (flags < 0 || flags & FD_CLOEXEC) continue;
        int error = ps_await_slot(d->slot, PS_NEED_COMMIT);
        if (error) return error;
    }
    return 0;
}

int ps_supervise(void) {
    struct start s;
    struct ps_quiet quiet;
    if (ps_self == PS_NONE || !ps_supervisor(s.supervisor)) return PS_NOT_SUPERVISED;
    int error = await_inherited();
    if (error) return error;
    snprintf(s.process, sizeof s.process, "%u", ps_self);
    ps_quiet_begin(&quiet); /* the supervisor is to inherit that: it ends when nobody is left to be supervised */
    if (start(&s)) {
        error = supervised_by(&s);
        PS_KERNEL(SYS_close, s.ours, 0, 0, 0, 0, 0);
    } else {
        error = PS_NOT_SUPERVISED;
    }
    ps_quiet_end(&quiet);
    if (!error) ps_environment_supervised();
    return error;
}

bool ps_is_supervised(void) { return PS_KERNEL(SYS_prctl, PS_ASK_SUPERVISED, 0, 0, 0, 0, 0) == -EALREADY; }
