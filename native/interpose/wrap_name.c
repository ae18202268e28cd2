/* Calls that change names. A consumer's rename or removal of a file that others make waits until it is final; what the
 * call changed goes to the table afterwards. */
#include "interpose.h"

#include <stdlib.h>
#include <string.h>

static int await_final(int dirfd, const char *path) { return ps_await_path(dirfd, path, PS_NEED_COMMIT, false); }

/* The slot of a managed, not excluded name that exists now because of this process. */
static void born_at(int dirfd, const char *path, unsigned what) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    if (!ps_managed(dirfd, path, room, &name)) return;
    int kept = errno;
    uint32_t slot = ps_slot_made(&name);
    if (slot != PS_NONE) {
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        ps_born(slot, ps_self_app, what);
        ps_quiet_end(&quiet);
    }
    errno = kept;
}

/* ---- rename ---------------------------------------------------------------------------------------------------------- */

/* A file that comes into the managed directory under its final name is complete for this rename: its bytes are there. */
static void arrived(const struct ps_path *to) {
    char path[PS_PATH_ROOM];
    struct stat found;
    uint32_t slot = ps_slot_made(to);
    if (slot == PS_NONE || !ps_absolute(to->name, to->bytes, path, sizeof path) || REAL(lstat)(path, &found)) return;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    ps_born(slot, ps_self_app,
            S_ISDIR(found.st_mode) ? PS_A_DIRECTORY : S_ISLNK(found.st_mode) ? PS_A_SYMLINK : PS_A_FILE);
    if (S_ISREG(found.st_mode)) { /* as if opened, written and closed here */
        uint32_t holding = ps_writer_opened(ps_self, slot, ps_self_app, PS_OPENED_EMPTY);
        ps_written(slot, 0, (uint64_t)found.st_size);
        if (holding != PS_NONE) ps_writer_closed(ps_self, holding);
    }
    ps_quiet_end(&quiet);
}

static void renamed(const struct ps_path *from, const struct ps_path *to, bool exchanged) {
    int kept = errno;
    if (from && to) {
        struct ps_class found;
        ps_classify(to->name, to->bytes, &found);
        bool known = ps_lookup(from->name, from->bytes) != PS_NONE;
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        if (known && !found.excluded)
            ps_renamed(from->name, from->bytes, to->name, to->bytes, ps_self_app);
        ps_quiet_end(&quiet);
        /* A name that has a slot is followed, also where it was excluded. */
        if (!known && (!found.excluded || ps_lookup(to->name, to->bytes) != PS_NONE)) arrived(to);
        if (exchanged) arrived(from);
    } else if (from) {
        uint32_t slot = ps_lookup(from->name, from->bytes);
        if (slot != PS_NONE) ps_removed(slot, ps_self_app);
    } else if (to) {
        arrived(to);
    }
    errno = kept;
}

static int rename_body(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char from_room[PS_PATH_ROOM], to_room[PS_PATH_ROOM];
    struct ps_path from_path, to_path;
    bool from_ours = ps_managed(from_dir, from, from_room, &from_path);
    bool to_ours = ps_managed(to_dir, to, to_room, &to_path);
    if (from_ours) {
        int error = await_final(from_dir, from);
        if (error) return ps_fail(error);
    }
    int result = flags ? REAL(renameat2)(from_dir, from, to_dir, to, flags)
                       : REAL(renameat)(from_dir, from, to_dir, to);
    if (!result && (from_ours || to_ours))
        renamed(from_ours ? &from_path : NULL, to_ours ? &to_path : NULL, flags & RENAME_EXCHANGE);
    return result;
}

PS_WRAPS int rename(const char *from, const char *to) { return rename_body(AT_FDCWD, from, AT_FDCWD, to, 0); }
PS_WRAPS int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return rename_body(from_dir, from, to_dir, to, 0);
}
PS_WRAPS int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return rename_body(from_dir, from, to_dir, to, flags);
}

/* ---- remove ---------------------------------------------------------------------------------------------------------- */

struct removal {
    uint32_t slot;
    int error;
};

static struct removal before_removal(int dirfd, const char *path) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    struct removal r = {PS_NONE, 0};
    if (!ps_managed(dirfd, path, room, &name)) return r;
    r.error = ps_reach(&name, false, PS_NEED_COMMIT, &r.slot);
    return r;
}

static int after_removal(struct removal r, int result) {
    if (!result && r.slot != PS_NONE) {
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        ps_removed(ps_now(r.slot), ps_self_app);
        ps_quiet_end(&quiet);
    }
    return result;
}

PS_WRAPS int unlink(const char *path) {
    struct removal r = before_removal(AT_FDCWD, path);
    return r.error ? ps_fail(r.error) : after_removal(r, REAL(unlink)(path));
}

PS_WRAPS int unlinkat(int dirfd, const char *path, int flags) {
    struct removal r = before_removal(dirfd, path);
    return r.error ? ps_fail(r.error) : after_removal(r, REAL(unlinkat)(dirfd, path, flags));
}

PS_WRAPS int remove(const char *path) {
    struct removal r = before_removal(AT_FDCWD, path);
    return r.error ? ps_fail(r.error) : after_removal(r, REAL(remove)(path));
}

PS_WRAPS int rmdir(const char *path) {
    struct removal r = before_removal(AT_FDCWD, path);
    return r.error ? ps_fail(r.error) : after_removal(r, REAL(rmdir)(path));
}

/* ---- make ------------------------------------------------------------------------------------------------------------ */

/* What a consumer makes under a name of others finds theirs there, as in batch order: directories here, links and pipes below. */
static int mkdir_body(int dirfd, const char *path, mode_t mode) {
    int error = ps_await_path(dirfd, path, PS_NEED_BIRTH, false);
    if (error) return ps_fail(error);
    int result = REAL(mkdirat)(dirfd, path, mode);
    if (!result) born_at(dirfd, path, PS_A_DIRECTORY);
    else if (errno == EEXIST) {
        struct stat found;
        int looked = REAL(fstatat)(dirfd, path, &found, AT_SYMLINK_NOFOLLOW);
        if (!looked && S_ISDIR(found.st_mode)) born_at(dirfd, path, PS_A_DIRECTORY | PS_NOT_COUNTED);
        errno = EEXIST;
    }
    return result;
}

PS_WRAPS int mkdir(const char *path, mode_t mode) { return mkdir_body(AT_FDCWD, path, mode); }
PS_WRAPS int mkdirat(int dirfd, const char *path, mode_t mode) { return mkdir_body(dirfd, path, mode); }

PS_WRAPS char *mkdtemp(char *path) {
    char *made = REAL(mkdtemp)(path);
    if (made) born_at(AT_FDCWD, made, PS_A_DIRECTORY);
    return made;
}

/* The descriptor that a link is made from (O_TMPFILE: the file gets its name when it has its bytes), or -1. */
static int linked_descriptor(int from_dir, const char *from, int flags) {
    static const char *const folders[] = {"/proc/self/fd/", "/dev/fd/"};
    if (flags & AT_EMPTY_PATH && !*from) return from_dir;
    for (int i = 0; i < 2; i++) {
        size_t bytes = strlen(folders[i]);
        if (!strncmp(from, folders[i], bytes) && from[bytes] >= '0' && from[bytes] <= '9') return atoi(from + bytes);
    }
    return -1;
}

static int link_body(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char from_room[PS_PATH_ROOM], to_room[PS_PATH_ROOM];
    struct ps_path from_path, to_path;
    bool from_ours = ps_managed(from_dir, from, from_room, &from_path);
    bool to_ours = ps_managed(to_dir, to, to_room, &to_path);
    int error = from_ours ? await_final(from_dir, from) : 0;
    if (!error && to_ours) error = ps_await_path(to_dir, to, PS_NEED_BIRTH, false);
    if (error) return ps_fail(error);
    int result = REAL(linkat)(from_dir, from, to_dir, to, flags);
    if (result || !to_ours) return result;
    int kept = errno;
    uint32_t source = from_ours ? ps_lookup(from_path.name, from_path.bytes) : PS_NONE;
    uint32_t target = source == PS_NONE ? PS_NONE : ps_slot_made(&to_path);
    if (target != PS_NONE) {
        struct ps_quiet quiet;
        ps_quiet_begin(&quiet);
        ps_linked(ps_now(source), target, ps_self_app);
        ps_quiet_end(&quiet);
    } else if (source == PS_NONE && !ps_adopt_named(linked_descriptor(from_dir, from, flags), ps_slot_made(&to_path))) {
        arrived(&to_path);
    }
    errno = kept;
    return result;
}

PS_WRAPS int link(const char *from, const char *to) { return link_body(AT_FDCWD, from, AT_FDCWD, to, 0); }
PS_WRAPS int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    return link_body(from_dir, from, to_dir, to, flags);
}

static int symlink_body(const char *target, int dirfd, const char *path) {
    int error = ps_await_path(dirfd, path, PS_NEED_BIRTH, false);
    if (error) return ps_fail(error);
    int result = REAL(symlinkat)(target, dirfd, path);
    if (!result) born_at(dirfd, path, PS_A_SYMLINK);
    return result;
}

PS_WRAPS int symlink(const char *target, const char *path) { return symlink_body(target, AT_FDCWD, path); }
PS_WRAPS int symlinkat(const char *target, int dirfd, const char *path) { return symlink_body(target, dirfd, path); }

/* A pipe in the directory is the kernel's business: committed from the start, so nobody waits for its bytes. */
static void born_pipe(int dirfd, const char *path) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    if (!ps_managed(dirfd, path, room, &name)) return;
    born_at(dirfd, path, PS_A_FILE);
    uint32_t slot = ps_lookup(name.name, name.bytes);
    if (slot != PS_NONE) ps_commit(slot);
}

static int node_body(int dirfd, const char *path, mode_t mode, dev_t device) {
    int error = ps_await_path(dirfd, path, PS_NEED_BIRTH, false);
    if (error) return ps_fail(error);
    int result = REAL(mknodat)(dirfd, path, mode, device);
    if (!result && S_ISFIFO(mode)) born_pipe(dirfd, path);
    else if (!result && (S_ISREG(mode) || !(mode & S_IFMT))) born_at(dirfd, path, PS_A_FILE);
    return result;
}

PS_WRAPS int mknod(const char *path, mode_t mode, dev_t device) { return node_body(AT_FDCWD, path, mode, device); }
PS_WRAPS int mknodat(int dirfd, const char *path, mode_t mode, dev_t device) { return node_body(dirfd, path, mode, device); }
PS_WRAPS int mkfifo(const char *path, mode_t mode) { return node_body(AT_FDCWD, path, mode | S_IFIFO, 0); }
PS_WRAPS int mkfifoat(int dirfd, const char *path, mode_t mode) { return node_body(dirfd, path, mode | S_IFIFO, 0); }

/* ---- truncate -------------------------------------------------------------------------------------------------------- */

PS_WRAPS int truncate(const char *path, off_t bytes) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    uint32_t slot = PS_NONE;
    int error = ps_managed(AT_FDCWD, path, room, &name) ? ps_reach(&name, true, PS_NEED_COMMIT, &slot) : 0;
    if (error) return ps_fail(error);
    int result = REAL(truncate)(path, bytes);
    if (!result && slot != PS_NONE) {
        if (ps_is_producer(slot, ps_self_app)) ps_born(slot, ps_self_app, PS_A_FILE);
        ps_truncated(ps_now(slot), (uint64_t)bytes);
    }
    return result;
}
PS_WRAPS int truncate64(const char *path, off64_t bytes) { return truncate(path, bytes); }

PS_WRAPS int ftruncate(int fd, off_t bytes) {
    struct ps_description *d = ps_tracked(fd);
    if (!d) return REAL(ftruncate)(fd, bytes);
    int error = d->flags & PS_D_WAITS ? ps_await_slot(d->slot, PS_NEED_COMMIT) : 0;
    if (error) return ps_fail(error);
    int result = REAL(ftruncate)(fd, bytes);
    if (!result) {
        ps_note_touched(d, 0);
        ps_truncated(d->slot, (uint64_t)bytes);
    }
    return result;
}
PS_WRAPS int ftruncate64(int fd, off64_t bytes) { return ftruncate(fd, bytes); }

/* ---- working directory ------------------------------------------------------------------------------------------------- */

PS_WRAPS int chdir(const char *path) {
    int error = ps_await_path(AT_FDCWD, path, PS_NEED_BIRTH, true);
    if (error) return ps_fail(error);
    int result = REAL(chdir)(path);
    if (!result && ps_active()) ps_cwd_changed();
    return result;
}

PS_WRAPS int fchdir(int fd) {
    int result = REAL(fchdir)(fd);
    if (!result && ps_active()) ps_cwd_changed();
    return result;
}
