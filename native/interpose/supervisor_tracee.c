/* Looks into the process that made a call: the names that it passed, where it stands, whose rights it has. */
#include "supervisor.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define NAME_ROOM 4096u

__thread const struct ps_call *ps_call_here;

int ps_tracee_bytes(const struct ps_call *call, uint64_t from, void *to, size_t bytes) {
    struct iovec here = {to, bytes}, there = {(void *)from, bytes};
    long got = PS_KERNEL(SYS_process_vm_readv, call->tid, &here, 1, &there, 1, 0);
    return got == (long)bytes ? 0 : got < 0 ? (int)-got : EFAULT;
}

int ps_tracee_give(const struct ps_call *call, uint64_t to, const void *from, size_t bytes) {
    struct iovec here = {(void *)from, bytes}, there = {(void *)to, bytes};
    long given = PS_KERNEL(SYS_process_vm_writev, call->tid, &here, 1, &there, 1, 0);
    return given == (long)bytes ? 0 : given < 0 ? (int)-given : EFAULT;
}

/* Up to its NUL; no further than the page that it ends in, the next may not be there. */
int ps_tracee_text(const struct ps_call *call, uint64_t from, char *out) {
    for (size_t used = 0; used < NAME_ROOM;) {
        size_t part = PAGE - (size_t)((from + used) % PAGE);
        if (part > 256) part = 256;
        if (part > NAME_ROOM - used) part = NAME_ROOM - used;
        int error = ps_tracee_bytes(call, from + used, out + used, part);
        if (error) return error;
        if (memchr(out + used, 0, part)) return 0;
        used += part;
    }
    return ENAMETOOLONG;
}

static int link_of(const struct ps_call *call, const char *what, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/%s", (int)call->tid, what);
    long bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, out, NAME_ROOM - 1, 0, 0);
    if (bytes < 0) return bytes == -EACCES ? EPERM : (int)-bytes;
    out[bytes] = 0;
    return 0;
}

int ps_tracee_descriptor_path(const struct ps_call *call, int fd, char *out) {
    char what[24];
    snprintf(what, sizeof what, "fd/%d", fd);
    int error = link_of(call, what, out);
    return error == ENOENT ? EBADF : error;
}

/* Names by which a process speaks of itself mean another when they are used here. */
static bool of_itself(const struct ps_call *call, const char *name, char *out) {
    static const char *const words[][2] = {{"/proc/self/", ""},    {"/proc/thread-self/", ""}, {"/dev/fd/", "fd/"},
                                           {"/dev/stdin", "fd/0"}, {"/dev/stdout", "fd/1"},    {"/dev/stderr", "fd/2"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t bytes = strlen(words[i][0]);
        if (strncmp(name, words[i][0], bytes) || (words[i][0][bytes - 1] != '/' && name[bytes])) continue;
        snprintf(out, PS_PATH_ROOM, "/proc/%d/%s%s", (int)call->tid, words[i][1], name + bytes);
        return true;
    }
    return false;
}

int ps_tracee_path(const struct ps_call *call, int dirfd, uint64_t from, char *out) {
    char name[NAME_ROOM];
    int error = ps_tracee_text(call, from, name);
    if (error) return error;
    if (name[0] == '/') {
        if (of_itself(call, name, out)) return 0;
        error = link_of(call, "root", out);
        if (error) return error;
        strcpy(out[0] == '/' && !out[1] ? out : out + strlen(out), name);
        return 0;
    }
    if (dirfd != AT_FDCWD && dirfd < 0) return EBADF;
    error = dirfd == AT_FDCWD ? link_of(call, "cwd", out) : ps_tracee_descriptor_path(call, dirfd, out);
    if (error || !name[0]) return error;
    size_t bytes = strlen(out);
    if (bytes != 1 || out[0] != '/') out[bytes++] = '/';
    strcpy(out + bytes, name);
    return 0;
}

/* One number of the line of /proc/PID/status that begins with `word`: the `which`th. */
static bool number_of(const char *text, const char *word, int which, int base, unsigned long *out) {
    const char *at = strstr(text, word);
    if (!at) return false;
    at += strlen(word);
    for (char *end; which >= 0; which--, at = end) *out = strtoul(at, &end, base);
    return true;
}

bool ps_tracee(const struct ps_call *call, struct ps_tracee *out) {
    char path[32], text[2048];
    unsigned long pid, user, group, mask;
    snprintf(path, sizeof path, "/proc/%d/status", (int)call->tid);
    long fd = PS_KERNEL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    long bytes = fd < 0 ? -1 : PS_KERNEL(SYS_read, fd, text, sizeof text - 1, 0, 0, 0);
    if (fd >= 0) PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
    if (bytes <= 0) return false;
    text[bytes] = 0;
    if (!number_of(text, "\nUmask:", 0, 8, &mask) || !number_of(text, "\nTgid:", 0, 10, &pid) ||
        !number_of(text, "\nUid:", 3, 10, &user) || !number_of(text, "\nGid:", 3, 10, &group))
        return false;
    *out = (struct ps_tracee){(pid_t)pid, (uid_t)user, (gid_t)group, (mode_t)mask};
    return true;
}

int ps_tracee_descriptor(const struct ps_call *call, int fd) {
    struct ps_tracee tracee;
    if (!ps_tracee(call, &tracee)) return -ESRCH;
    long pidfd = PS_KERNEL(SYS_pidfd_open, tracee.pid, 0, 0, 0, 0, 0);
    if (pidfd < 0) return (int)pidfd;
    long ours = PS_KERNEL(SYS_pidfd_getfd, pidfd, fd, 0, 0, 0, 0);
    PS_KERNEL(SYS_close, pidfd, 0, 0, 0, 0, 0);
    return (int)ours;
}

int ps_tracee_stderr(void) {
    char path[32];
    if (!ps_call_here) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/2", (int)ps_call_here->tid);
    return (int)PS_KERNEL(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0, 0, 0);
}
