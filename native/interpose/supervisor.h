/* What the supervisor's sources share. It is a program of its own, made of the library's code: it acts for the programs
 * that it supervises as if the wrappers had been called there, with their names made absolute.
 *
 *     kernel ──notification──▶ supervisor.c: a thread ──▶ supervisor_calls.c ──▶ the wrappers and the table
 *                                                             │    └─▶ supervisor_tracee.c: names, rights
 *     kernel ──inotify───────▶ supervisor.c: main ──▶ supervisor_writers.c: closes
 */
#ifndef PENSTOCK_SUPERVISOR_H
#define PENSTOCK_SUPERVISOR_H

#include "interpose.h"
#include "supervise.h"

#include <limits.h>

struct ps_call { /* one call of a supervised program, which waits for its answer */
    uint64_t id;
    pid_t tid;
    int number;
    const uint64_t *arguments;
};

extern int ps_listener;

/* Answers of ps_handle besides a result or -errno. */
#define PS_GO_ON LONG_MIN         /* the kernel does it */
#define PS_ANSWERED (LONG_MIN + 1) /* or there is nobody to answer any more */
long ps_handle(const struct ps_call *call);
void ps_calls_start(uint32_t process); /* the one that the filter was installed by */
bool ps_said_goodbye(void);            /* it ended by itself */
int ps_check(void);                    /* supervisor_check.c */

int ps_receive_listener(int socket); /* -1: it does not come */
bool ps_still_waits(const struct ps_call *call);

/* ---- supervisor_tracee.c: the process that made a call. 0 or errno. EPERM: it may not be looked into ------------- */

struct ps_tracee {
    pid_t pid; /* of its process; the call has that of a thread */
    uid_t user;
    gid_t group; /* for files */
    mode_t mask;
};
bool ps_tracee(const struct ps_call *call, struct ps_tracee *out);
int ps_tracee_bytes(const struct ps_call *call, uint64_t from, void *to, size_t bytes);
int ps_tracee_give(const struct ps_call *call, uint64_t to, const void *from, size_t bytes);
int ps_tracee_text(const struct ps_call *call, uint64_t from, char *out); /* in 4096 bytes */
/* What a name leads to, absolute, in PS_PATH_ROOM bytes. An empty one names the directory's descriptor itself. */
int ps_tracee_path(const struct ps_call *call, int dirfd, uint64_t name, char *out);
int ps_tracee_descriptor_path(const struct ps_call *call, int fd, char *out);
int ps_tracee_descriptor(const struct ps_call *call, int fd); /* a descriptor of ours for the same description, or -errno */
int ps_tracee_stderr(void); /* of the call that this thread handles */
extern __thread const struct ps_call *ps_call_here;

/* ---- supervisor_writers.c: what supervised programs have open for writing ---------------------------------------- */

int ps_writers_start(void); /* a descriptor to poll, or -1: closes are not seen before the programs end */
/* `d` is what the table has of `fd`, opened for the process. It lasts until the kernel says that the last is closed. */
void ps_writers_add(struct ps_description *d, int fd, pid_t opener);
void ps_writers_events(void);
void ps_writers_goodbye(pid_t process);    /* it is about to end by itself: its closes count */
/* What came through `> file` and the like stands in the table alone. Told while whoever opened it still waits. */
void ps_writers_inherited(void);
bool ps_writers_end(void);                 /* nobody is left; false: some were killed while they wrote */

/* ---- supervisor_stat.c ------------------------------------------------------------------------------------------- */

/* The answer to a stat that has waited. `from`: its name, 0 if it is of the descriptor; `to`: where the program wants it. */
long ps_tell(const struct ps_call *call, long waited, int dirfd, uint64_t from, int flags, uint64_t to);

/* ---- supervisor_listing.c ---------------------------------------------------------------------------------------- */

long ps_list(const struct ps_call *call);

#endif
