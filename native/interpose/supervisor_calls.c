/* What becomes of each call that the filter holds.
 *
 * A call that only looks waits as its wrapper would, and then the kernel does it. A file is opened for reading when it is
 * whole: its reads are not seen. A call that changes something is made here, by the wrapper, so that what it changed is in
 * the table when the program goes on; a descriptor is put into the program. Paths outside of the workflow go on at once. */
#include "supervisor.h"

#include <linux/openat2.h>
#include <string.h>
#include <sys/ioctl.h>

struct name { /* one that a call is given */
    char path[PS_PATH_ROOM]; /* absolute */
    char room[PS_PATH_ROOM];
    struct ps_path ours;
    enum ps_place place;
};

static uint32_t root_process;
static pid_t root_pid;
static _Atomic bool goodbye;

void ps_calls_start(uint32_t process) {
    root_process = process;
    root_pid = ((struct ps_process *)((char *)ps + ps->processes_at))[process].pid;
}

bool ps_said_goodbye(void) { return atomic_load(&goodbye); }

/* ---- what cannot be looked into ---------------------------------------------------------------------------------- */

/* Its turn in batch order: then all files are as they should be. */
static long in_turn(const struct ps_call *call) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/%d/exe", (int)call->tid);
    long bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, path, sizeof path, 0, 0);
    uint32_t slot = bytes > 0 ? ps_obtain(path, (size_t)bytes) : ps_obtain(".", 1);
    int error = 0;
    while (slot != PS_NONE && (error = ps_wait_turn(slot, ps_self_app)) == EINTR) {}
    return error ? -error : PS_GO_ON;
}

/* A result for the program, or 0: `out` is there. */
static long name_of(const struct ps_call *call, int dirfd, uint64_t from, struct name *out) {
    int error = ps_tracee_path(call, dirfd, from, out->path);
    if (error == EFAULT || error == EBADF || error == ENAMETOOLONG) return PS_GO_ON; /* the kernel says so too */
    if (error) return ps_still_waits(call) ? in_turn(call) : PS_ANSWERED;
    out->place = out->path[0] == '/' ? ps_place_of(AT_FDCWD, out->path, out->room, &out->ours) : PS_OUTSIDE;
    return 0;
}

static long looked(int error) { return error ? -error : PS_GO_ON; }

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static long await_name(const struct ps_call *call, int dirfd, uint64_t from, enum ps_need need, bool follow) {
    struct name name;
    long result = name_of(call, dirfd, from, &name);
    return result ? result : name.place == PS_INSIDE ? looked(ps_await_path(AT_FDCWD, name.path, need, follow)) : PS_GO_ON;
}

/* A file that is open is whole, or the program's own. A directory is final before its times are told. */
static long await_descriptor(const struct ps_call *call, int fd) {
    struct name name;
    if (ps_tracee_descriptor_path(call, fd, name.path) || name.path[0] != '/') return PS_GO_ON;
    if (ps_place_of(AT_FDCWD, name.path, name.room, &name.ours) != PS_INSIDE) return PS_GO_ON;
    uint32_t slot = ps_slot_of(&name.ours);
    if (slot == PS_NONE || !(ps_flags_of(ps_now(slot)) & PS_DIRECTORY)) return PS_GO_ON;
    return looked(ps_await_slot(slot, PS_NEED_ENTRIES));
}

static bool is_empty(const struct ps_call *call, uint64_t from) {
    char first;
    return from && !ps_tracee_bytes(call, from, &first, 1) && !first;
}

static long await_stat(const struct ps_call *call, int dirfd, uint64_t from, int flags, enum ps_need need) {
    if (flags & AT_EMPTY_PATH && (!from || is_empty(call, from))) return await_descriptor(call, dirfd);
    return await_name(call, dirfd, from, need, !(flags & AT_SYMLINK_NOFOLLOW));
}

static long await_access(const struct ps_call *call, int dirfd, uint64_t from, int mode, int flags) {
    struct name name;
    bool follow = !(flags & AT_SYMLINK_NOFOLLOW);
    if (!(mode & X_OK)) return await_name(call, dirfd, from, PS_NEED_BIRTH, follow);
    long result = name_of(call, dirfd, from, &name);
    return result ? result : looked(ps_await_program(AT_FDCWD, name.path, follow));
}

static long execute(const struct ps_call *call, int dirfd, uint64_t from, int flags) {
    struct name name;
    if (is_empty(call, from) && !(flags & AT_EMPTY_PATH)) return PS_GO_ON;
    long result = name_of(call, dirfd, from, &name);
    if (result || name.path[0] != '/') return result ? result : PS_GO_ON;
    return looked(ps_exec_before(name.path, NULL, PS_BY_SUPERVISED));
}

/* ---- acting for the program -------------------------------------------------------------------------------------- */

/* As the program would: with its umask. False: it has other rights than this process, which then must not act for it. */
static bool act_as(const struct ps_call *call, struct ps_tracee *tracee) {
    if (!ps_tracee(call, tracee) || tracee->user != geteuid() || tracee->group != getegid()) return false;
    PS_KERNEL(SYS_umask, tracee->mask, 0, 0, 0, 0, 0);
    return true;
}

/* Once all is as it should be: 0, or a result for the program. What it has closed before is closed. */
static long may_act(const struct ps_call *call, struct ps_tracee *tracee) {
    ps_writers_events();
    if (!act_as(call, tracee)) return in_turn(call);
    return ps_still_waits(call) ? 0 : PS_ANSWERED;
}

/* The wrapper's answer. */
static long done(int result) { return result < 0 ? -errno : result; }

static long remove_name(const struct ps_call *call, int dirfd, uint64_t from, int flags) {
    struct name name;
    struct ps_tracee tracee;
    long result = name_of(call, dirfd, from, &name);
    if (result || name.place != PS_INSIDE) return result ? result : PS_GO_ON;
    int error = ps_await_path(AT_FDCWD, name.path, PS_NEED_COMMIT, false);
    result = error ? -error : may_act(call, &tracee);
    return result ? result : done(unlinkat(AT_FDCWD, name.path, flags));
}

static long make_directory(const struct ps_call *call, int dirfd, uint64_t from, mode_t mode) {
    struct name name;
    struct ps_tracee tracee;
    long result = name_of(call, dirfd, from, &name);
    if (result || name.place != PS_INSIDE) return result ? result : PS_GO_ON;
    int error = ps_await_path(AT_FDCWD, name.path, PS_NEED_BIRTH, false);
    result = error ? -error : may_act(call, &tracee);
    return result ? result : done(mkdirat(AT_FDCWD, name.path, mode));
}

static long make_node(const struct ps_call *call, int dirfd, uint64_t from, mode_t mode) {
    struct name name;
    struct ps_tracee tracee;
    bool is_device = S_ISCHR(mode) || S_ISBLK(mode); /* for who may make one */
    long result = is_device ? PS_GO_ON : name_of(call, dirfd, from, &name);
    if (result || name.place != PS_INSIDE) return result ? result : PS_GO_ON;
    int error = ps_await_path(AT_FDCWD, name.path, PS_NEED_BIRTH, false);
    result = error ? -error : may_act(call, &tracee);
    return result ? result : done(mknodat(AT_FDCWD, name.path, mode, 0));
}

static long make_symlink(const struct ps_call *call, uint64_t target, int dirfd, uint64_t from) {
    struct name name;
    struct ps_tracee tracee;
    char text[4096];
    long result = name_of(call, dirfd, from, &name);
    if (result || name.place != PS_INSIDE) return result ? result : PS_GO_ON;
    int error = ps_tracee_text(call, target, text);
    if (!error) error = ps_await_path(AT_FDCWD, name.path, PS_NEED_BIRTH, false);
    result = error ? -error : may_act(call, &tracee);
    return result ? result : done(symlinkat(text, AT_FDCWD, name.path));
}

static long truncate_name(const struct ps_call *call, uint64_t from, off_t bytes) {
    struct name name;
    struct ps_tracee tracee;
    long result = name_of(call, AT_FDCWD, from, &name);
    if (result || name.place != PS_INSIDE) return result ? result : PS_GO_ON;
    int error = ps_await_path(AT_FDCWD, name.path, PS_NEED_COMMIT, true);
    result = error ? -error : may_act(call, &tracee);
    return result ? result : done(truncate(name.path, bytes));
}

/* Both names of a call that has two: 0 if one of them is ours and final, and it may be acted. */
static long two_names(const struct ps_call *call, int from_dir, uint64_t from, struct name *a, int to_dir, uint64_t to,
                      struct name *b) {
    struct ps_tracee tracee;
    long result = name_of(call, from_dir, from, a);
    if (!result) result = name_of(call, to_dir, to, b);
    if (result) return result;
    if (a->place != PS_INSIDE && b->place != PS_INSIDE) return PS_GO_ON;
    int error = a->place == PS_INSIDE ? ps_await_path(AT_FDCWD, a->path, PS_NEED_COMMIT, false) : 0;
    return error ? -error : may_act(call, &tracee);
}

static long rename_name(const struct ps_call *call, int from_dir, uint64_t from, int to_dir, uint64_t to, unsigned flags) {
    struct name a, b;
    long result = two_names(call, from_dir, from, &a, to_dir, to, &b);
    return result ? result : done(renameat2(AT_FDCWD, a.path, AT_FDCWD, b.path, flags));
}

/* A file that was opened without a name (O_TMPFILE) gets one: it is in the table from then on. */
static long link_descriptor(const struct ps_call *call, int fd, const struct name *to) {
    char path[32];
    struct ps_tracee tracee;
    int ours = ps_tracee_descriptor(call, fd);
    if (ours < 0 || !ps_tracee(call, &tracee)) return in_turn(call);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ours);
    long result = done(linkat(AT_FDCWD, path, AT_FDCWD, to->path, AT_SYMLINK_FOLLOW));
    struct ps_description *d = ps_descriptor_take(ours);
    if (d && d->flags & PS_D_WRITES) ps_writers_add(d, ours, tracee.pid);
    else if (d) ps_description_drop(d);
    PS_KERNEL(SYS_close, ours, 0, 0, 0, 0, 0);
    return result;
}

static long link_name(const struct ps_call *call, int from_dir, uint64_t from, int to_dir, uint64_t to, int flags) {
    struct name a, b;
    int fd = -1, used = 0;
    char own[32];
    long result = two_names(call, from_dir, from, &a, to_dir, to, &b);
    if (result) return result;
    int error = b.place == PS_INSIDE ? ps_await_path(AT_FDCWD, b.path, PS_NEED_BIRTH, false) : 0;
    if (error || !ps_still_waits(call)) return error ? -error : PS_ANSWERED;
    snprintf(own, sizeof own, "/proc/%d/fd/", (int)call->tid);
    if (flags & AT_EMPTY_PATH && is_empty(call, from)) fd = from_dir;
    else if (!strncmp(a.path, own, strlen(own)) && sscanf(a.path + strlen(own), "%d%n", &fd, &used) != 1) fd = -1;
    return fd >= 0 ? link_descriptor(call, fd, &b) : done(linkat(AT_FDCWD, a.path, AT_FDCWD, b.path, flags));
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

struct opening {
    int dirfd;
    uint64_t name;
    struct open_how how;
    bool has_how; /* openat2 */
};

static bool only_reads(int flags) { return (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)); }

/* Into the program, at the lowest number that is free there, as its own open would. Ours is closed before it goes on: then
 * its close is the last, and known to the kernel's watch when it returns. */
static long give(const struct ps_call *call, int fd, int flags) {
    struct seccomp_notif_addfd gift = {
        .id = call->id, .srcfd = (uint32_t)fd, .newfd_flags = (uint32_t)(flags & O_CLOEXEC)};
    int given = ioctl(ps_listener, SECCOMP_IOCTL_NOTIF_ADDFD, &gift);
    int error = errno;
    PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
    return given >= 0 ? given : error == ENOENT ? PS_ANSWERED : -error;
}

/* openat2 may forbid to leave its directory, so it has to begin there. */
static int open_here(const struct ps_call *call, const struct opening *o, const struct name *name) {
    struct open_how how = o->how;
    how.flags |= O_CLOEXEC;
    if (!o->has_how || !(how.resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)))
        return (int)PS_KERNEL(SYS_openat2, AT_FDCWD, name->path, &how, sizeof how, 0, 0);
    char text[4096], link[48];
    if (ps_tracee_text(call, o->name, text)) return -EFAULT;
    snprintf(link, sizeof link, o->dirfd == AT_FDCWD ? "/proc/%d/cwd" : "/proc/%d/fd/%d", (int)call->tid, o->dirfd);
    int base = (int)PS_KERNEL(SYS_openat, AT_FDCWD, link, O_PATH | O_CLOEXEC, 0, 0, 0);
    if (base < 0) return base;
    int fd = (int)PS_KERNEL(SYS_openat2, base, text, &how, sizeof how, 0, 0);
    PS_KERNEL(SYS_close, base, 0, 0, 0, 0, 0);
    return fd;
}

static long open_to_write(const struct ps_call *call, const struct opening *o, const struct name *name) {
    int flags = (int)o->how.flags;
    struct ps_open ours;
    struct ps_tracee tracee;
    int error = ps_open_before(&ours, AT_FDCWD, name->path, flags);
    /* What a consumer opens for update is to be there as a whole, as what it opens for reading. */
    if (!error && ours.waits && (flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC))
        error = ps_await_slot(ours.slot, PS_NEED_COMMIT);
    if (error) return -error;
    if (ours.slot == PS_NONE) return PS_GO_ON;
    long result = may_act(call, &tracee);
    if (result) return result;
    int fd = open_here(call, o, name);
    if (fd < 0) return fd;
    ps_open_after(&ours, fd, flags);
    struct ps_description *d = ps_descriptor_take(fd);
    if (d && d->flags & PS_D_WRITES) ps_writers_add(d, fd, tracee.pid);
    else if (d) ps_description_drop(d);
    return give(call, fd, flags);
}

static long open_to_read(const struct name *name, int flags) {
    uint32_t slot;
    int error = ps_reach(&name->ours, !(flags & O_NOFOLLOW), PS_NEED_BIRTH, &slot);
    bool is_file = !error && slot != PS_NONE && !(flags & (O_PATH | O_DIRECTORY)) &&
                   !(ps_flags_of(ps_now(slot)) & (PS_DIRECTORY | PS_SYMLINK));
    return looked(is_file ? ps_await_slot(slot, PS_NEED_COMMIT) : error);
}

static long open_name(const struct ps_call *call, struct opening o) {
    struct name name;
    if (o.how.flags & O_PATH) o.how.flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int flags = (int)o.how.flags;
    long result = name_of(call, o.dirfd, o.name, &name);
    if (result || name.place != PS_INSIDE || (flags & O_TMPFILE) == O_TMPFILE) return result ? result : PS_GO_ON;
    return only_reads(flags) ? open_to_read(&name, flags) : open_to_write(call, &o, &name);
}

static long open_plainly(const struct ps_call *call, int dirfd, uint64_t name, int flags, mode_t mode) {
    uint64_t known = O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_DSYNC | O_SYNC | O_ASYNC |
                     O_DIRECT | O_LARGEFILE | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | O_PATH | O_TMPFILE;
    struct open_how how = {.flags = (uint64_t)(unsigned)flags & known}; /* openat disregards the others */
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) how.mode = mode & 07777;
    return open_name(call, (struct opening){.dirfd = dirfd, .name = name, .how = how});
}

static long open_as_said(const struct ps_call *call, const uint64_t *a) {
    struct opening o = {.dirfd = (int)a[0], .name = a[1], .has_how = true};
    if (a[3] != sizeof o.how || ps_tracee_bytes(call, a[2], &o.how, sizeof o.how)) return PS_GO_ON;
    return open_name(call, o);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static long say_goodbye(const struct ps_call *call) {
    struct ps_tracee tracee;
    ps_writers_events();
    if (!ps_tracee(call, &tracee)) return PS_GO_ON;
    ps_writers_goodbye(tracee.pid);
    if (tracee.pid == root_pid) {
        atomic_store(&goodbye, true);
        ps_writers_inherited();
        ps_process_end(root_process);
    }
    return PS_GO_ON;
}

static enum ps_need need_of(unsigned mask) { /* as statx in wrap_stat.c */
    unsigned entries = STATX_NLINK | STATX_MTIME | STATX_CTIME | STATX_SIZE | STATX_BLOCKS;
    unsigned lasting = STATX_TYPE | STATX_MODE | STATX_INO | STATX_UID | STATX_GID | STATX_BTIME;
    if (!(mask & ~lasting)) return PS_NEED_BIRTH;
    return mask & entries && (mask & STATX_BASIC_STATS) != STATX_BASIC_STATS ? PS_NEED_ENTRIES : PS_NEED_STAT;
}

static long await_held(const struct ps_call *call, const struct ps_held_call *held) {
    const uint64_t *a = call->arguments;
    int dirfd = held->dirfd < 0 ? AT_FDCWD : (int)a[held->dirfd];
    return await_stat(call, dirfd, a[held->path], ps_held_flags(held, a), held->need);
}

long ps_handle(const struct ps_call *call) {
    const uint64_t *a = call->arguments;
    int A = (int)a[0], B = (int)a[1], C = (int)a[2], D = (int)a[3], E = (int)a[4], here = AT_FDCWD;
    switch (call->number) {
        case SYS_openat: return open_plainly(call, A, a[1], C, (mode_t)a[3]);
        case SYS_openat2: return open_as_said(call, a);
        case SYS_fstat: return ps_tell(call, await_descriptor(call, A), A, 0, AT_EMPTY_PATH, a[1]);
        case SYS_newfstatat: return ps_tell(call, await_stat(call, A, a[1], D, PS_NEED_STAT), A, a[1], D, a[2]);
        case SYS_statx: return ps_tell(call, await_stat(call, A, a[1], C, need_of((unsigned)a[3])), A, a[1], C, a[4]);
        case SYS_faccessat: return await_access(call, A, a[1], C, 0);
        case SYS_faccessat2: return await_access(call, A, a[1], C, D);
        case SYS_readlinkat: return await_name(call, A, a[1], PS_NEED_BIRTH, false);
        case SYS_chdir: return await_name(call, here, a[0], PS_NEED_BIRTH, true);
        case SYS_getdents64: return ps_list(call);
        case SYS_unlinkat: return remove_name(call, A, a[1], C);
        case SYS_renameat: return rename_name(call, A, a[1], C, a[3], 0);
        case SYS_renameat2: return rename_name(call, A, a[1], C, a[3], (unsigned)E);
        case SYS_mkdirat: return make_directory(call, A, a[1], (mode_t)a[2]);
        case SYS_mknodat: return make_node(call, A, a[1], (mode_t)a[2]);
        case SYS_symlinkat: return make_symlink(call, a[0], B, a[2]);
        case SYS_linkat: return link_name(call, A, a[1], C, a[3], E);
        case SYS_truncate: return truncate_name(call, a[0], (off_t)a[1]);
        case SYS_execve: return execute(call, here, a[0], 0);
        case SYS_execveat: return execute(call, A, a[1], E);
        case SYS_exit_group: return say_goodbye(call);
#ifdef SYS_open
        case SYS_open: return open_plainly(call, here, a[0], B, (mode_t)a[2]);
        case SYS_creat: return open_plainly(call, here, a[0], O_WRONLY | O_CREAT | O_TRUNC, (mode_t)a[1]);
        case SYS_stat: return ps_tell(call, await_stat(call, here, a[0], 0, PS_NEED_STAT), here, a[0], 0, a[1]);
        case SYS_lstat:
            return ps_tell(call, await_stat(call, here, a[0], AT_SYMLINK_NOFOLLOW, PS_NEED_STAT), here, a[0], AT_SYMLINK_NOFOLLOW, a[1]);
        case SYS_access: return await_access(call, here, a[0], B, 0);
        case SYS_readlink: return await_name(call, here, a[0], PS_NEED_BIRTH, false);
        case SYS_getdents: return ps_list(call);
        case SYS_unlink: return remove_name(call, here, a[0], 0);
        case SYS_rmdir: return remove_name(call, here, a[0], AT_REMOVEDIR);
        case SYS_rename: return rename_name(call, here, a[0], here, a[1], 0);
        case SYS_mkdir: return make_directory(call, here, a[0], (mode_t)a[1]);
        case SYS_mknod: return make_node(call, here, a[0], (mode_t)a[1]);
        case SYS_symlink: return make_symlink(call, a[0], here, a[1]);
        case SYS_link: return link_name(call, here, a[0], here, a[1], 0);
#endif
    }
    const struct ps_held_call *held = ps_held_call(call->number);
    return held ? await_held(call, held) : PS_GO_ON;
}
