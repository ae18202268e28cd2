/* What the wrappers share: the real calls, managed paths, descriptions of open files, this process.
 *
 * One call in one breath: the wrapper asks "mine?" (a path below a managed directory, or a descriptor with a
 * description) → waits for what batch order would show → makes the real call → publishes what it changed. Everything
 * else goes to the real call at once. README.md tells the flow and how to add a call.
 */
#ifndef PENSTOCK_INTERPOSE_H
#define PENSTOCK_INTERPOSE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>

#include "table.h"
#include "table_sys.h"

#define PS_WRAPS __attribute__((visibility("default")))
#define PS_HIDDEN __attribute__((visibility("hidden")))
#define PS_RARELY(x) __builtin_expect(!!(x), 0)
#define PS_OFTEN(x) __builtin_expect(!!(x), 1)
/* The kernel itself, past every wrapper: a value or -errno; errno stays as it is. */
#define PS_KERNEL(number, a, b, c, d, e, f) ps_sys(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

struct aiocb;
struct sigevent;

/* ---- real.c: the next definition of every wrapped call ---------------------------------------------------------- */

struct ps_real_calls {
#define CALL(result, name, parameters) result(*name) parameters;
#include "calls.def"
#undef CALL
};
extern struct ps_real_calls ps_real_calls PS_HIDDEN;
PS_HIDDEN void ps_resolve_calls(void);

/* The real call. Resolved at start; a call that comes before any constructor resolves all of them. */
#define REAL(name) (PS_OFTEN(ps_real_calls.name) ? ps_real_calls.name : (ps_resolve_calls(), ps_real_calls.name))

/* ---- process.c: this process in the table ----------------------------------------------------------------------- */

enum ps_state { PS_UNKNOWN = 0, PS_STARTS = 1, PS_INERT = 2, PS_ACTIVE = 3 };
extern int ps_state PS_HIDDEN;
PS_HIDDEN bool ps_start(char **environment);

/* Whether a workflow is given: without one every wrapper is the real call. */
static inline bool ps_active(void) {
    if (PS_OFTEN(ps_state == PS_ACTIVE)) return true;
    return ps_state == PS_UNKNOWN && ps_start(NULL);
}
#define PS_THREAD __thread __attribute__((tls_model("initial-exec"), visibility("hidden")))
extern PS_THREAD uint32_t ps_tid_here;
PS_HIDDEN uint32_t ps_tid_asked(void);
static inline uint32_t ps_tid(void) { return PS_OFTEN(ps_tid_here) ? ps_tid_here : ps_tid_asked(); }
PS_HIDDEN void ps_goodbye(void); /* closes what the process holds, in the table; before the process ends */
PS_HIDDEN uint32_t ps_child_before(void);       /* before a fork or spawn: the child's process slot */
PS_HIDDEN void ps_child_is_me(uint32_t child); /* in the child of a fork */
PS_HIDDEN void ps_child_of_mine(uint32_t child, pid_t pid); /* in its parent; pid < 0: there is none after all */
PS_HIDDEN void ps_adopt_received(int fd);      /* a descriptor that came in a message */
PS_HIDDEN bool ps_adopt_named(int fd, uint32_t slot); /* a nameless file got a name; true: it is still written to */

/* Signals stay out while a thread holds a lock of the table: a handler that opens a file would wait for itself. */
struct ps_quiet {
    uint64_t mask;
};
PS_HIDDEN void ps_quiet_begin(struct ps_quiet *quiet);
PS_HIDDEN void ps_quiet_end(const struct ps_quiet *quiet);

/* ---- environment.c ---------------------------------------------------------------------------------------------- */

PS_HIDDEN void ps_environment_keep(char **environment); /* remembers what children need */
PS_HIDDEN const char *ps_environment_table(void);
PS_HIDDEN const char *ps_environment_app(void);
PS_HIDDEN bool ps_environment_beside(const char *name, char *room); /* a file beside the library, PATH_MAX bytes */
PS_HIDDEN void ps_environment_supervised(void); /* what this process executes next does without the library */
/* The environment for a child: `given` itself if nothing is missing, else an array in `room` (see ps_environment_room). */
PS_HIDDEN size_t ps_environment_room(char *const *given);
PS_HIDDEN char *const *ps_environment_for_child(char *const *given, void *room);

/* ---- program.c and elf.c: before a program is executed, a library loaded. 0 or errno ------------------------------- */

PS_HIDDEN int ps_await_program(int dirfd, const char *path, bool follow); /* it is whole, and executable if it will be */
enum ps_way {
    PS_BY_EXEC,       /* this process executes it now */
    PS_BY_SPAWN,      /* libc does, in a child */
    PS_BY_SUPERVISED, /* a program under this supervisor does */
};
#define PS_LAUNCH (-1) /* PS_BY_SPAWN: have the supervisor's program execute it (`launch FILE ARGV…`), which has the library */
PS_HIDDEN int ps_exec_before(const char *path, char *const *environment, enum ps_way way);
/* Through PATH; where it was found to `found`, of PATH_MAX bytes, unless NULL. */
PS_HIDDEN int ps_exec_before_search(const char *file, char *const *environment, enum ps_way way, char *found);
PS_HIDDEN int ps_exec_before_at(int dirfd, const char *path, int flags, char *const *environment);

enum ps_unseen ps_elf_unseen(int fd) PS_HIDDEN; /* PS_SEEN: the library can get into it */
/* What the loader will look for when it runs or loads the file `path`, open as `fd`. */
PS_HIDDEN int ps_await_objects_of(const char *path, int fd, const char *library_path);
PS_HIDDEN int ps_await_library(const char *name, const char *library_path, void *caller); /* as dlopen takes it */

/* ---- supervise.c: a program that the library cannot get into is executed under a supervisor ------------------------- */

#define PS_NOT_SUPERVISED (-1)
PS_HIDDEN int ps_supervise(void); /* this process, from now on: 0, PS_NOT_SUPERVISED, or errno (it must not be executed) */
PS_HIDDEN bool ps_supervisor(char *room); /* its program, to PATH_MAX bytes; false if it is not there or cannot work */
PS_HIDDEN bool ps_is_supervised(void);

/* ---- paths.c: is it ours? --------------------------------------------------------------------------------------- */

#define PS_PATH_ROOM 8448 /* a name and what it is built from */

struct ps_path { /* a managed name; `name` lies in the caller's path or in its room; not always NUL-terminated */
    const char *name;
    size_t bytes;
};
enum ps_place { PS_OUTSIDE = 0, PS_ABOVE, PS_INSIDE };

PS_HIDDEN void ps_paths_start(void);
PS_HIDDEN enum ps_place ps_place_of(int dirfd, const char *path, char *room, struct ps_path *out);
PS_HIDDEN void ps_cwd_changed(void);
PS_HIDDEN bool ps_around_cwd(const char *name, size_t bytes); /* the working directory, or one that it lies in */
/* The absolute path of a managed name, NUL-terminated; false if it is too long. */
PS_HIDDEN bool ps_absolute(const char *name, size_t bytes, char *out, size_t room);

/* libc declares the paths of most calls to be there; a program that passes NULL is to get EFAULT all the same. */
static inline bool ps_is_path(const char *path) {
    __asm__("" : "+r"(path));
    return path != NULL;
}

static inline bool ps_managed(int dirfd, const char *path, char *room, struct ps_path *out) {
    return ps_active() && ps_is_path(path) && ps_place_of(dirfd, path, room, out) == PS_INSIDE;
}

/* ---- directories.c: what a directory in memory is told to be --------------------------------------------------------- */

/* Whether directories are told to be others than they are. */
static inline bool ps_in_memory(void) { return ps_active() && ps->measure.links; }
/* After the kernel told of a directory, by this name or, if it is NULL or empty, of the descriptor itself. False: as it is. */
PS_HIDDEN bool ps_as_at_home(int dirfd, const char *path, struct stat *out);
PS_HIDDEN bool ps_as_at_home_extended(int dirfd, const char *path, unsigned asked, struct statx *out);

/* ---- gate.c: what a consumer waits for -------------------------------------------------------------------------- */

/* ENTRIES: a stat whose caller is after what the entries of a directory change. */
enum ps_need { PS_NEED_BIRTH, PS_NEED_COMMIT, PS_NEED_STAT, PS_NEED_ENTRIES };

/* The slot of a name if anything is known or declared of it; PS_NONE for plain and excluded names. */
PS_HIDDEN uint32_t ps_slot_of(const struct ps_path *path);
/* The same once the name is as `need` says, through links that the run made if `follow`. 0 or errno. */
PS_HIDDEN int ps_reach(const struct ps_path *path, bool follow, enum ps_need need, uint32_t *slot);
PS_HIDDEN int ps_reach_or_signal(const struct ps_path *path, bool follow, enum ps_need need, uint32_t *slot);
PS_HIDDEN uint32_t ps_slot_made(const struct ps_path *path); /* for a name this process makes; PS_NONE if excluded */
/* 0 or errno. Calls that no signal interrupts natively (stat, rename, readdir…) wait on after a handler ran. */
PS_HIDDEN int ps_await_slot(uint32_t slot, enum ps_need need);
PS_HIDDEN int ps_await_slot_or_signal(uint32_t slot, enum ps_need need); /* open: EINTR too */
PS_HIDDEN bool ps_python_imports(void); /* python_import.c: the call comes from CPython's import system */
PS_HIDDEN int ps_await_path(int dirfd, const char *path, enum ps_need need, bool follow);

static inline uint32_t ps_flags_of(uint32_t slot) {
    return atomic_load_explicit(&ps_slot(slot)->flags, memory_order_acquire);
}
static inline uint64_t ps_nanoseconds(const struct timespec *time) {
    return time->tv_sec < 0 ? 0 : (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}
/* Whether a file was made or changed since the run began; an earlier run left it otherwise. */
static inline bool ps_of_this_run(const struct stat *found) {
    return ps_nanoseconds(&found->st_mtim) > ps->started_ns && ps_nanoseconds(&found->st_ctim) > ps->started_ns;
}
static inline int ps_fail(int error) {
    errno = error;
    return -1;
}

/* ---- fdtable.c: descriptor → description ------------------------------------------------------------------------ */

enum ps_description_flags {
    PS_D_READS = 1u << 0,
    PS_D_WRITES = 1u << 1,
    PS_D_APPENDS = 1u << 2,
    PS_D_WAITS = 1u << 3,     /* of a consumer: reads wait */
    PS_D_SHARED = 1u << 4,    /* somebody else moves the offset too: ask the kernel for it */
    PS_D_IDLE = 1u << 5,      /* of another process, or found a file that was there; not written through yet */
    PS_D_FOREIGN = 1u << 6,   /* written by an app that is no producer of it */
    PS_D_PLAIN = 1u << 7,     /* below a managed directory, nothing to track */
};

/* An open file description as this process knows it; memory is never given back, so a stale pointer is only stale. */
struct ps_description {
    _Atomic uint32_t references; /* descriptors, mappings and sleeping calls of this process */
    _Atomic uint32_t owner;      /* thread that moves the offset */
    _Atomic uint32_t flags;
    uint32_t slot;
    uint32_t holding;
    uint32_t index, next_free;
    _Atomic int64_t offset;      /* the kernel's, unless PS_D_SHARED */
    uint64_t consumed;           /* a consumer that reads in order has read [0, consumed) */
    _Atomic(void *) listing;     /* wrap_dir.c */
};

#define PS_CHUNK_BITS 10u
#define PS_CHUNKS 1024u
extern _Atomic(_Atomic(struct ps_description *) *) ps_descriptors[PS_CHUNKS] PS_HIDDEN;
extern struct ps_description ps_plain PS_HIDDEN; /* of every descriptor that only marks a place */

static inline struct ps_description *ps_description(int fd) {
    unsigned number = (unsigned)fd;
    if (PS_RARELY(number >> PS_CHUNK_BITS >= PS_CHUNKS)) return NULL;
    _Atomic(struct ps_description *) *chunk =
        atomic_load_explicit(&ps_descriptors[number >> PS_CHUNK_BITS], memory_order_acquire);
    return chunk ? atomic_load_explicit(&chunk[number & ((1u << PS_CHUNK_BITS) - 1)], memory_order_acquire) : NULL;
}
/* The same, without those that only mark a place. */
static inline struct ps_description *ps_tracked(int fd) {
    struct ps_description *d = ps_description(fd);
    return PS_OFTEN(d != &ps_plain) ? d : NULL;
}

PS_HIDDEN struct ps_description *ps_description_new(uint32_t slot, int open_flags, bool waits);
PS_HIDDEN void ps_descriptor_set(int fd, struct ps_description *d); /* takes over one reference; drops what was there */
PS_HIDDEN struct ps_description *ps_descriptor_take(int fd);        /* the reference goes to the caller; NULL */
PS_HIDDEN void ps_descriptor_copy(int from, int to);                /* after dup */
PS_HIDDEN void ps_description_keep(struct ps_description *d);
PS_HIDDEN void ps_description_drop(struct ps_description *d); /* the last one closes the writer */
PS_HIDDEN bool ps_description_lock(struct ps_description *d); /* false: this thread has it already (signal handler) */
PS_HIDDEN void ps_description_unlock(struct ps_description *d);
PS_HIDDEN void ps_descriptions_shared(void); /* another process is about to have them too */
PS_HIDDEN int ps_descriptors_end(void);                        /* one past the highest descriptor ever set */
PS_HIDDEN void ps_each_description(void (*visit)(struct ps_description *d, void *context), void *context);

/* ---- bodies shared by families ---------------------------------------------------------------------------------- */

struct ps_held_call { /* attributes.def */
    long number;
    int dirfd, path, flags; /* which arguments; -1: it has none */
    enum ps_need need;
    bool follow;
};
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
PS_HIDDEN const struct ps_held_call *ps_held_call(long number); /* wrap_attribute.c; NULL: another one */
PS_HIDDEN int ps_held_flags(const struct ps_held_call *held, const uint64_t *arguments);
PS_HIDDEN int ps_await_held(const struct ps_held_call *held, const uint64_t *arguments); /* 0 or errno */

struct ps_open { /* wrap_open.c: an open in two halves around the real call */
    struct ps_path path;
    enum ps_place place;
    uint32_t slot;
    bool waits;
    char room[PS_PATH_ROOM];
};
PS_HIDDEN int ps_open_before(struct ps_open *o, int dirfd, const char *path, int flags); /* 0 or errno */
PS_HIDDEN void ps_open_after(struct ps_open *o, int fd, int flags);
PS_HIDDEN int ps_open_anywhere(int dirfd, const char *path, int flags, mode_t mode);
PS_HIDDEN int ps_close_body(int fd);

/* One read or write in any of its spellings. The bodies wait and publish around `call`. */
struct ps_transfer {
    ssize_t (*call)(const struct ps_transfer *t);
    int fd, n, flags; /* of iov; RWF_* */
    void *buffer;
    size_t bytes; /* in all */
    const struct iovec *iov;
    off_t at; /* < 0: at the description's offset, which moves */
};
PS_HIDDEN size_t ps_iov_bytes(const struct iovec *iov, int n);
PS_HIDDEN long ps_io_submit(unsigned long context, long n, void *list); /* after what it reads is there */

/* wrap_read.c. `some`: a short answer will do (stdio): what is there after the first byte came. */
PS_HIDDEN ssize_t ps_read_body(struct ps_description *d, struct ps_transfer *t, bool some);
PS_HIDDEN ssize_t ps_read_flat(const struct ps_transfer *t);
/* How many of `bytes` at `start` may be had, after waiting for the first; 0 with *error set. */
PS_HIDDEN size_t ps_await_some(struct ps_description *d, int fd, uint64_t start, size_t bytes, int *error);
PS_HIDDEN void ps_note_read(struct ps_description *d, uint64_t start, uint64_t end);
PS_HIDDEN int ps_read_too_late(struct ps_description *d, int fd, uint64_t start); /* after the real call: 0 or errno */
PS_HIDDEN void ps_reads_own(struct ps_description *d); /* before: what its own step makes is kept from now on */
PS_HIDDEN int64_t ps_offset_now(struct ps_description *d, int fd);

/* wrap_write.c */
PS_HIDDEN ssize_t ps_write_body(struct ps_description *d, struct ps_transfer *t);
/* What libc's own stream over this descriptor has written meanwhile. */
PS_HIDDEN void ps_note_unseen(struct ps_description *d, int fd);
PS_HIDDEN ssize_t ps_write_flat(const struct ps_transfer *t);
PS_HIDDEN void ps_note_written(struct ps_description *d, uint64_t start, uint64_t end);
/* Something of the file is about to differ from what was there, at `at` or beyond. */
PS_HIDDEN void ps_note_touched(struct ps_description *d, uint64_t at);

PS_HIDDEN FILE *ps_stream_over(int fd, const char *mode); /* wrap_stdio.c */
PS_HIDDEN bool ps_stream_is_ours(const FILE *file);
PS_HIDDEN void ps_streams_flush(void);
PS_HIDDEN void ps_streams_in_child(void);
PS_HIDDEN void ps_streams_standard(void); /* stdin, stdout, stderr over managed descriptors */
PS_HIDDEN void ps_listing_free(void *listing); /* wrap_dir.c */
PS_HIDDEN void ps_listing_rewind(void *listing);

#endif
