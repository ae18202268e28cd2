/* penstock_supervisor: holds the file calls of programs that the library cannot get into, and of all that they start.
 *
 *     penstock_supervisor watch TABLE PROCESS   with a socket as descriptor 0, started by the library (supervise.c)
 *     penstock_supervisor launch FILE ARGV…     executes a program from one that has the library (posix_spawn)
 *     penstock_supervisor check                 whether this machine lets it: status 0, or the reason and status 1
 *
 * Every thread takes one call at a time and may sleep in it: another thread is always there to take the next. It ends when
 * the kernel says that nobody is left under its filter. If it is killed, the programs' calls fail with ENOSYS. */
#include "supervisor.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define IDLE_AT_MOST 4
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* Linux 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

int ps_listener = -1;
static _Atomic int idle;

/* The kernel's records may be longer than those that this was compiled with. */
union record {
    struct seccomp_notif call;
    struct seccomp_notif_resp answer;
    char room[1024];
};

bool ps_still_waits(const struct ps_call *call) {
    return !ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &call->id);
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

static void answer(uint64_t id, long result) {
    union record record = {.answer = {.id = id}};
    if (result == PS_ANSWERED) return;
    if (result == PS_GO_ON) record.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else if (result < 0) record.answer.error = (int)result;
    else record.answer.val = result;
    ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_SEND, &record);
}

static void *serve(void *nothing);

static void one_more(void) {
    pthread_t thread;
    atomic_fetch_add(&idle, 1);
    if (pthread_create(&thread, NULL, serve, NULL)) atomic_fetch_sub(&idle, 1);
    else pthread_detach(thread);
}

static void *serve(void *nothing) {
    union record record;
    unshare(CLONE_FS); /* each thread has a umask of its own: that of the program it acts for */
    for (;;) {
        memset(&record, 0, sizeof record);
        if (ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_RECV, &record)) {
            struct pollfd more = {.fd = ps_listener, .events = POLLIN};
            poll(&more, 1, -1); /* the caller was killed meanwhile, or nobody is left: then the main thread ends us */
            if (more.revents & POLLHUP) pause();
            continue;
        }
        if (atomic_fetch_sub(&idle, 1) == 1) one_more();
        struct ps_call call = {record.call.id, (pid_t)record.call.pid, record.call.data.nr,
                               (const uint64_t *)record.call.data.args};
        ps_call_here = &call;
        long result = ps_handle(&call);
        ps_call_here = NULL;
        answer(call.id, result);
        if (atomic_fetch_add(&idle, 1) >= IDLE_AT_MOST && atomic_fetch_sub(&idle, 1) > 1) return nothing;
    }
}

/* ---- watch ------------------------------------------------------------------------------------------------------- */

int ps_receive_listener(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec text = {&byte, 1};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int listener = -1;
    if (PS_KERNEL(SYS_recvmsg, socket, &message, MSG_CMSG_CLOEXEC, 0, 0, 0) != 1) return -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS) memcpy(&listener, CMSG_DATA(head), sizeof listener);
    return listener;
}

static void watch_until_the_end(void) {
    struct pollfd sources[2] = {{.fd = ps_listener}, {.fd = ps_writers_start(), .events = POLLIN}};
    one_more();
    for (;;) {
        if (poll(sources, 2, -1) < 0) continue;
        if (sources[1].revents & POLLIN) ps_writers_events();
        if (sources[0].revents & POLLHUP) return;
    }
}

static int watch(const char *table, const char *process) {
    int32_t pid = getpid();
    uint32_t number = (uint32_t)strtoul(process, NULL, 10);
    if (ps_attach(table)) return 1;
    ps_paths_start();
    ps_calls_start(number);
    ps_say_through = ps_tracee_stderr;
    if (PS_KERNEL(SYS_sendto, 0, &pid, sizeof pid, MSG_NOSIGNAL, 0, 0) != sizeof pid) return 1;
    ps_listener = ps_receive_listener(0);
    if (ps_listener < 0 || ps_process_take_over(number) == PS_NONE) return 1;
    ps_state = PS_ACTIVE;
    uint64_t hand_over_at_once = SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP;
    ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, hand_over_at_once); /* quicker, where the kernel knows it */
    PS_KERNEL(SYS_sendto, 0, "", 1, MSG_NOSIGNAL, 0, 0);
    PS_KERNEL(SYS_close, 0, 0, 0, 0, 0, 0);
    watch_until_the_end();
    ps_writers_events();
    bool orderly = ps_writers_end();
    if (orderly && ps_said_goodbye()) ps_goodbye(); /* else the server lets go of what is left, as of one that was killed */
    PS_KERNEL(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    return 0;
}

/* ---- launch, check ----------------------------------------------------------------------------------------------- */

static int launch(const char *file, char **argv) {
    REAL(execve)(file, argv, environ); /* that of the preloaded library */
    fprintf(stderr, "penstock: %s cannot be started: %s\n", file, strerror(errno));
    return errno == ENOENT ? 127 : 126;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "watch")) return watch(argv[2], argv[3]);
    if (argc >= 3 && !strcmp(argv[1], "launch")) return launch(argv[2], argv + 3);
    if (argc == 2 && !strcmp(argv[1], "check")) return ps_check();
    fprintf(stderr, "penstock_supervisor: started by penstock stream, for programs that cannot be preloaded\n");
    return 2;
}
