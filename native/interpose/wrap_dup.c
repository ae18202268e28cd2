/* Descriptors come and go: dup, fcntl, close, and those that arrive in messages. A file's writer is gone when the last
 * duplicate in this process is. */
#include "interpose.h"

PS_WRAPS int dup(int fd) {
    int copy = REAL(dup)(fd);
    if (copy >= 0 && (ps_description(fd) || ps_description(copy))) ps_descriptor_copy(fd, copy);
    return copy;
}

static int copied_onto(int fd, int copy) {
    if (copy >= 0 && copy != fd && (ps_description(fd) || ps_description(copy))) {
        int kept = errno;
        ps_descriptor_copy(fd, copy);
        errno = kept;
    }
    return copy;
}

PS_WRAPS int dup2(int fd, int onto) { return copied_onto(fd, REAL(dup2)(fd, onto)); }
PS_WRAPS int dup3(int fd, int onto, int flags) { return copied_onto(fd, REAL(dup3)(fd, onto, flags)); }

static void flags_set(int fd, int flags) {
    struct ps_description *d = ps_tracked(fd);
    if (!d) return;
    if (flags & O_APPEND) atomic_fetch_or(&d->flags, PS_D_APPENDS);
    else atomic_fetch_and(&d->flags, ~(uint32_t)PS_D_APPENDS);
}

/* The third argument is an int or a pointer: both travel in one register. */
static int fcntl_body(int fd, int command, void *argument) {
    int result = REAL(fcntl)(fd, command, argument);
    if (result < 0) return result;
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) copied_onto(fd, result);
    if (command == F_SETFL) flags_set(fd, (int)(intptr_t)argument);
    return result;
}

PS_WRAPS int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fcntl_body(fd, command, argument);
}

PS_WRAPS int fcntl64(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fcntl_body(fd, command, argument);
}

/* Out of our table first: once the kernel has closed it, another thread may get the number. */
int ps_close_body(int fd) {
    struct ps_description *d = ps_descriptor_take(fd);
    int result = REAL(close)(fd);
    int kept = errno;
    if (d) ps_description_drop(d);
    errno = kept;
    return result;
}

PS_WRAPS int close(int fd) { return PS_OFTEN(!ps_description(fd)) ? REAL(close)(fd) : ps_close_body(fd); }

static void forget_range(unsigned first, unsigned last) {
    unsigned end = (unsigned)ps_descriptors_end();
    int kept = errno;
    for (unsigned fd = first; fd < end && fd <= last; fd++) {
        struct ps_description *d = ps_descriptor_take((int)fd);
        if (d) ps_description_drop(d);
    }
    errno = kept;
}

PS_WRAPS int close_range(unsigned first, unsigned last, int flags) {
    int result = REAL(close_range)(first, last, flags);
    if (!result && !(flags & CLOSE_RANGE_CLOEXEC)) forget_range(first, last);
    return result;
}

PS_WRAPS void closefrom(int first) {
    REAL(closefrom)(first);
    forget_range(first < 0 ? 0 : (unsigned)first, ~0u);
}

/* A descriptor from another process is recognised like one that exec left open. */
PS_WRAPS ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
    ssize_t got = REAL(recvmsg)(socket, message, flags);
    if (got < 0 || !message->msg_controllen || !ps_active()) return got;
    int kept = errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const int *fds = (const int *)CMSG_DATA(c);
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
        for (size_t i = 0; i < n; i++) ps_adopt_received(fds[i]);
    }
    errno = kept;
    return got;
}
