/* This process in the table: start, inherited descriptors, fork, end.
 *
 *     constructor → attach the table → hello → adopt what exec left open → stdin, stdout, stderr over managed files
 *
 * The library is linked `initfirst`: it is ready before any other library's constructor opens a file or looks at
 * stdout. The handler registered at start runs last at exit; a process that ends without it (killed) is noticed by
 * the server.
 */
#include "interpose.h"

#include <linux/kcmp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define INHERITED 1024 /* descriptions that exec can hand over */

#ifdef PS_SUPERVISOR_PROGRAM /* it says itself when it belongs to a workflow */
int ps_state = PS_INERT;
#else
int ps_state;
#endif
PS_THREAD uint32_t ps_tid_here;
static __thread __attribute__((tls_model("initial-exec"))) uint32_t child_underway = PS_NONE;

uint32_t ps_tid_asked(void) { return ps_tid_here = (uint32_t)PS_KERNEL(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void ps_quiet_begin(struct ps_quiet *quiet) {
    uint64_t all = ~0ull;
    PS_KERNEL(SYS_rt_sigprocmask, SIG_SETMASK, &all, &quiet->mask, sizeof all, 0, 0);
}

void ps_quiet_end(const struct ps_quiet *quiet) {
    PS_KERNEL(SYS_rt_sigprocmask, SIG_SETMASK, &quiet->mask, NULL, sizeof quiet->mask, 0, 0);
}

/* ---- descriptors that exec left open ------------------------------------------------------------------------------ */

struct adoption {
    uint32_t slots[INHERITED], handles[INHERITED];
    struct ps_description *descriptions[INHERITED];
    int fds[INHERITED];
    uint32_t n;
};

static bool same_description(int a, int b) {
    long answer = PS_KERNEL(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b, 0);
    return answer == 0 || answer < 0; /* unknown: one file opened twice is far rarer than `> file 2>&1` */
}

static struct ps_description *adopted_already(const struct adoption *a, uint32_t slot, int fd, int flags) {
    for (uint32_t i = 0; i < a->n; i++)
        if (a->slots[i] == slot && !((REAL(fcntl)(a->fds[i], F_GETFL) ^ flags) & (O_ACCMODE | O_APPEND)) &&
            same_description(a->fds[i], fd))
            return a->descriptions[i];
    return NULL;
}

/* A file that a program outside the library opened for us (a plain shell's `> file`) is born with what it has, unless an
 * earlier run left it and nobody has changed it since. */
static void born_elsewhere(uint32_t slot, const struct stat *found) {
    bool known = ps_flags_of(slot) & PS_BORN;
    if (!known && !ps_of_this_run(found)) return;
    ps_born(slot, ps_self_app, PS_A_FILE);
    if (!known && found->st_size > 0) ps_written_by(slot, 0, (uint64_t)found->st_size, false);
}

/* The slot behind a descriptor that this process did not open; PS_NONE if it needs no description of its own. */
static uint32_t recognise(int fd, int *flags, struct stat *found) {
    char link[64], target[4097], room[PS_PATH_ROOM];
    struct ps_path path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, target, sizeof target - 1, 0, 0);
    if (bytes <= 0 || target[0] != '/') return PS_NONE;
    target[bytes] = 0;
    enum ps_place place = ps_place_of(AT_FDCWD, target, room, &path);
    if (place == PS_OUTSIDE || REAL(fstat)(fd, found)) return PS_NONE;
    uint32_t slot = PS_NONE;
    if (place == PS_INSIDE && S_ISREG(found->st_mode) && found->st_nlink) {
        *flags = REAL(fcntl)(fd, F_GETFL);
        slot = (*flags & O_ACCMODE) != O_RDONLY ? ps_slot_made(&path) : ps_slot_of(&path);
    }
    if (slot == PS_NONE) ps_descriptor_set(fd, &ps_plain);
    return slot;
}

static void adopt(struct adoption *a, int fd) {
    struct stat found;
    int flags;
    uint32_t slot = recognise(fd, &flags, &found);
    if (slot == PS_NONE) return;
    struct ps_description *d = adopted_already(a, slot, fd, flags);
    if (d) {
        ps_description_keep(d);
        return ps_descriptor_set(fd, d);
    }
    d = a->n < INHERITED ? ps_description_new(slot, flags, ps_awaited(slot, ps_self_app) != 0) : NULL;
    if (!d) return;
    atomic_fetch_or(&d->flags, PS_D_SHARED);
    if (d->flags & PS_D_WRITES) {
        atomic_fetch_or(&d->flags, PS_D_IDLE);
        born_elsewhere(slot, &found);
        a->slots[a->n] = slot;
        a->fds[a->n] = fd;
        a->descriptions[a->n++] = d;
    }
    ps_descriptor_set(fd, d);
}

static void adopt_as(int fd, uint32_t slot, int flags, const struct stat *found) {
    struct ps_description *d = ps_description_new(slot, flags, ps_awaited(slot, ps_self_app) != 0);
    if (!d) return;
    atomic_fetch_or(&d->flags, PS_D_SHARED);
    if (d->flags & PS_D_WRITES) {
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        born_elsewhere(slot, found);
        bool untouched = !(ps_flags_of(slot) & PS_BORN);
        d->holding = ps_writer_opened(ps_self, slot, ps_self_app, untouched ? PS_OPENED_FOUND : 0);
        if (untouched) atomic_fetch_or(&d->flags, PS_D_IDLE);
        ps_quiet_end(&quiet);
    }
    ps_descriptor_set(fd, d);
}

void ps_adopt_received(int fd) {
    struct stat found;
    int flags;
    uint32_t slot = recognise(fd, &flags, &found);
    if (slot != PS_NONE) adopt_as(fd, slot, flags, &found);
}

bool ps_adopt_named(int fd, uint32_t slot) {
    struct stat found;
    int flags = fd < 0 || slot == PS_NONE ? -1 : REAL(fcntl)(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || REAL(fstat)(fd, &found)) return false;
    adopt_as(fd, slot, flags, &found);
    return true;
}

static void adopt_descriptors(bool had_process_slot) {
    static struct adoption a; /* used once, before there are threads */
    char entries[2048];
    int directory = (int)PS_KERNEL(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0, 0);
    if (directory < 0) return;
    long bytes;
    while ((bytes = PS_KERNEL(SYS_getdents64, directory, entries, sizeof entries, 0, 0, 0)) > 0)
        for (long at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
            int fd = atoi(entry->d_name);
            if (entry->d_name[0] != '.' && fd != directory) adopt(&a, fd);
            at += entry->d_reclen;
        }
    PS_KERNEL(SYS_close, directory, 0, 0, 0, 0, 0);
    if (!a.n && !had_process_slot) return;
    ps_process_adopt(ps_self, a.slots, a.n, a.handles);
    for (uint32_t i = 0; i < a.n; i++) {
        a.descriptions[i]->holding = a.handles[i];
        if (a.handles[i] == PS_NONE) atomic_fetch_or(&a.descriptions[i]->flags, PS_D_FOREIGN);
    }
}

/* ---- fork ---------------------------------------------------------------------------------------------------------- */

uint32_t ps_child_before(void) {
    ps_descriptions_shared();
    if (ps_self == PS_NONE) return PS_NONE;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    uint32_t child = ps_process_fork(ps_self);
    ps_quiet_end(&quiet);
    return child;
}

static void inherit(struct ps_description *d, void *context) {
    (void)context;
    atomic_store(&d->owner, 0); /* of a thread that stayed behind */
    if (d->holding != PS_NONE) atomic_fetch_or(&d->flags, PS_D_IDLE);
}

void ps_child_is_me(uint32_t child) {
    ps_tid_here = 0;
    ps_self = child;
    if (child != PS_NONE) ps_process_became(child);
    ps_each_description(inherit, NULL);
    ps_streams_in_child();
}

/* Through pthread_atfork, so that libc's own forks (daemon, forkpty) are seen too. */
static void before_fork(void) {
    if (ps_state == PS_ACTIVE) child_underway = ps_child_before();
}

static void in_child(void) {
    if (ps_state != PS_ACTIVE) return;
    ps_child_is_me(child_underway);
    child_underway = PS_NONE;
}

/* The child says who it is when it runs. Its parent says so too: it may end before that, and who has neither is given up. */
void ps_child_of_mine(uint32_t child, pid_t pid) {
    int kept = errno;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    if (pid > 0) ps_process_forked(child, pid);
    else ps_process_reap(child);
    ps_quiet_end(&quiet);
    errno = kept;
}

PS_WRAPS pid_t fork(void) {
    pid_t pid = REAL(fork)();
    if (!pid) return 0;
    if (ps_state == PS_ACTIVE && child_underway != PS_NONE) ps_child_of_mine(child_underway, pid);
    child_underway = PS_NONE;
    return pid;
}

/* ---- start and end ------------------------------------------------------------------------------------------------- */

void ps_goodbye(void) {
    uint32_t self = ps_self;
    if (ps_state != PS_ACTIVE || self == PS_NONE) return;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    ps_self = PS_NONE;
    ps_process_end(self);
    ps_quiet_end(&quiet);
}

static void at_exit(int status, void *context) {
    (void)status;
    (void)context;
    ps_streams_flush();
    ps_goodbye();
}

/* The workflow that this program belongs to is not there: better no result than one from half-written files. */
static void refuse(const char *table, int error) {
    char line[4400];
    const char *reason = error == EACCES || error == EPERM ? "it belongs to another user (a step runs as the one who started "
                                                             "the workflow, and does not become another)"
                         : error == ENOENT ? "its server is gone"
                         : error == EXDEV  ? "it cannot see the files, which are in memory; start it with `penstock stream "
                                             "exec`, or serve the workflow with --in-place"
                                           : "its server is of another version";
    int bytes = snprintf(line, sizeof line, "penstock: cannot join the workflow of table %s (%s): %s; the program is not "
                         "started\n", table, strerror(error), reason);
    if (bytes > 0) PS_KERNEL(SYS_write, 2, line, (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line - 1, 0, 0, 0);
    PS_KERNEL(SYS_exit_group, 126, 0, 0, 0, 0, 0);
}

/* Whether the directory is here what it is to the server: files in memory may be mounted over it, for some only. */
static int see_directory(void) {
    uint64_t device = atomic_load(&ps->device);
    struct stat found;
    if (!device) return 0;
    return REAL(stat)(ps_root(0)->path, &found) || found.st_dev != device ? EXDEV : 0;
}

/* "plot" or "plot:3" */
static uint32_t app_number(int32_t *logic) {
    const char *text = ps_environment_app();
    *logic = -1;
    if (!text) return PS_APP_OTHER;
    const char *colon = strrchr(text, ':');
    if (colon && colon[1] >= '0' && colon[1] <= '9') *logic = atoi(colon + 1);
    else colon = NULL;
    return ps_app_number(text, colon ? (size_t)(colon - text) : strlen(text));
}

bool ps_start(char **environment) {
    if (!environment) environment = environ;
    if (!environment) return false; /* before libc has it: asked again at the next call */
    ps_state = PS_STARTS;
    int kept = errno;
    ps_resolve_calls();
    ps_environment_keep(environment);
    const char *table = ps_is_supervised() ? NULL : ps_environment_table(); /* one of the two will do */
    int error = table ? ps_attach(table) : 0;
    if (table && !error) error = see_directory();
    if (error) refuse(table, error);
    if (!table) {
        ps_state = PS_INERT;
        errno = kept;
        return false;
    }
    int32_t logic;
    bool adopted = false;
    ps_self_app = app_number(&logic);
    ps_self = ps_process_begin(ps_self_app, logic, &adopted);
    ps_paths_start();
    ps_state = PS_ACTIVE;
    adopt_descriptors(adopted);
    pthread_atfork(before_fork, NULL, in_child);
    on_exit(at_exit, NULL);
    ps_streams_standard();
    errno = kept;
    return true;
}

__attribute__((constructor)) static void start(int argc, char **argv, char **environment) {
    (void)argc;
    (void)argv;
    if (ps_state == PS_UNKNOWN) ps_start(environment);
}

/* Preload tests ask for this symbol before anything else: 1 = loaded, 2 = and a workflow is given. */
PS_WRAPS int penstock_interposed(void) { return ps_state == PS_ACTIVE ? 2 : 1; }
