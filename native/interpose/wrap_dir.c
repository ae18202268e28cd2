/* Directory listings. A consumer sees the entries of the run in the order of their birth, waits for the next one, and
 * is told the end once the directory is committed; then comes what the kernel shows besides (files that were there).
 * Walks that libc does inside (scandir, glob, ftw, fts) are done over these, or wait for the whole tree first. */
#include "interpose.h"

#include <stdlib.h>
#include <string.h>

enum phase { SELF, PARENT, BORN, REST };

struct listing { /* of one description of a directory */
    uint32_t slot, entry;
    enum phase phase;
    bool is_import;     /* CPython looks for modules: the kernel's listing will do */
    bool rewind_kernel; /* the kernel's own listing begins anew */
    long position;
    uint64_t births; /* when it was opened */
    struct dirent64 out;
};

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "one dirent for both");

void ps_listing_free(void *listing) { free(listing); }

void ps_listing_rewind(void *given) {
    struct listing *l = given;
    l->entry = PS_NONE;
    l->phase = SELF;
    l->position = 0;
    l->rewind_kernel = true;
}

/* NULL: nothing to wait for, the kernel's listing is right. */
static struct listing *listing_of(int fd) {
    struct ps_description *d = ps_tracked(fd);
    if (!d || !(d->flags & PS_D_WAITS)) return NULL;
    struct listing *l = atomic_load(&d->listing);
    if (l) return l->is_import ? NULL : l;
    l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->slot = d->slot;
    l->entry = PS_NONE;
    l->births = atomic_load(&ps->births);
    l->is_import = ps_python_imports();
    void *none = NULL;
    if (atomic_compare_exchange_strong(&d->listing, &none, l)) return l->is_import ? NULL : l;
    free(l);
    return listing_of(fd);
}

static bool fill(struct listing *l, int fd, const char *name, size_t bytes, unsigned char type) {
    struct stat found;
    if (bytes >= sizeof l->out.d_name) return false;
    memcpy(l->out.d_name, name, bytes);
    l->out.d_name[bytes] = 0;
    if (REAL(fstatat)(fd, l->out.d_name, &found, AT_SYMLINK_NOFOLLOW)) return false; /* gone again */
    l->out.d_ino = found.st_ino;
    l->out.d_type = type;
    l->out.d_off = ++l->position;
    l->out.d_reclen = (unsigned short)((offsetof(struct dirent64, d_name) + bytes + 1 + 7) & ~7u);
    return true;
}

static bool fill_entry(struct listing *l, int fd) {
    uint32_t bytes, flags = ps_flags_of(l->entry);
    const char *name = ps_name(l->entry, &bytes), *slash = memrchr(name, '/', bytes);
    if (slash) {
        bytes -= (uint32_t)(slash + 1 - name);
        name = slash + 1;
    }
    return fill(l, fd, name, bytes, flags & PS_DIRECTORY ? DT_DIR : flags & PS_SYMLINK ? DT_LNK : DT_REG);
}

/* The next entry into l->out: 1, or 0 if the kernel's listing has the rest (or, not waiting, nothing is there yet), or -1. */
static int next_born(struct listing *l, int fd, bool wait) {
    if (l->phase == SELF) {
        l->phase = PARENT;
        if (fill(l, fd, ".", 1, DT_DIR)) return 1;
    }
    if (l->phase == PARENT) {
        l->phase = BORN;
        if (fill(l, fd, "..", 2, DT_DIR)) return 1;
    }
    while (l->phase == BORN) {
        uint32_t next = l->entry;
        if (wait) {
            int error;
            while ((error = ps_wait_entry(l->slot, ps_self_app, &next)) == EINTR) {}
            if (error) return ps_fail(error);
        } else {
            next = ps_next_entry(l->slot, ps_self_app, l->entry);
            if (next == PS_NONE) return 0;
        }
        if (next == PS_NONE) {
            l->phase = REST;
            break;
        }
        l->entry = next;
        if (ps_show(next) && fill_entry(l, fd)) return 1;
    }
    return 0;
}

/* Whether the kernel's entry was delivered as one of the run, or is one that batch order would not show yet. */
static bool passed_over(const struct listing *l, const char *entry) {
    if (!strcmp(entry, ".") || !strcmp(entry, "..")) return true;
    char name[PS_PATH_ROOM];
    uint32_t bytes;
    const char *directory = ps_name(l->slot, &bytes);
    size_t more = strlen(entry);
    if (bytes == 1 && directory[0] == '.') bytes = 0;
    if (bytes + more + 2 > sizeof name) return false;
    memcpy(name, directory, bytes);
    if (bytes) name[bytes++] = '/';
    memcpy(name + bytes, entry, more);
    uint32_t slot = ps_lookup(name, bytes + more);
    if (slot == PS_NONE) return false;
    if (!ps_listable(slot, ps_self_app, l->births)) return true;
    return l->entry != PS_NONE && ps_flags_of(slot) & PS_BORN && ps_listable(slot, ps_self_app, 0) &&
           ps_listed_early(l->slot, slot) &&
           atomic_load(&ps_slot(slot)->serial) <= atomic_load(&ps_slot(l->entry)->serial);
}

/* ---- streams of entries ------------------------------------------------------------------------------------------------ */

PS_WRAPS DIR *opendir(const char *path) {
    struct ps_open o;
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int error;
    while ((error = ps_open_before(&o, AT_FDCWD, path, flags)) == EINTR) {}
    if (error) return errno = error, NULL;
    DIR *directory = REAL(opendir)(path);
    if (directory) {
        ps_open_after(&o, dirfd(directory), flags);
        listing_of(dirfd(directory));
    }
    return directory;
}

static struct dirent64 *next_of(DIR *directory, struct listing *l) {
    /* Whoever gets no entry looks at errno to see whether that is the end: what happened on the way must not be left there,
     * such as a wait, or an entry that was gone before it could be shown. */
    int fd = dirfd(directory), kept = errno;
    int found = next_born(l, fd, true);
    if (found < 0) return NULL;
    errno = kept;
    if (found) return &l->out;
    if (l->rewind_kernel) REAL(rewinddir)(directory);
    l->rewind_kernel = false;
    for (;;) {
        struct dirent64 *entry = REAL(readdir64)(directory);
        if (!entry) return NULL;
        if (passed_over(l, entry->d_name)) continue;
        l->position++;
        return entry;
    }
}

PS_WRAPS struct dirent64 *readdir64(DIR *directory) {
    struct listing *l = listing_of(dirfd(directory));
    return l ? next_of(directory, l) : REAL(readdir64)(directory);
}

PS_WRAPS struct dirent *readdir(DIR *directory) { return (struct dirent *)readdir64(directory); }

static int readdir_into(DIR *directory, struct dirent64 *room, struct dirent64 **out) {
    struct listing *l = listing_of(dirfd(directory));
    if (!l) return REAL(readdir64_r)(directory, room, out);
    int kept = errno;
    errno = 0;
    struct dirent64 *found = next_of(directory, l);
    int error = found ? 0 : errno;
    errno = kept;
    if (found) memcpy(room, found, found->d_reclen);
    *out = found ? room : NULL;
    return error;
}

PS_WRAPS int readdir64_r(DIR *directory, struct dirent64 *room, struct dirent64 **out) {
    return readdir_into(directory, room, out);
}
PS_WRAPS int readdir_r(DIR *directory, struct dirent *room, struct dirent **out) {
    return readdir_into(directory, (struct dirent64 *)room, (struct dirent64 **)out);
}

PS_WRAPS void rewinddir(DIR *directory) {
    struct listing *l = listing_of(dirfd(directory));
    if (l) ps_listing_rewind(l);
    REAL(rewinddir)(directory);
}

PS_WRAPS long telldir(DIR *directory) {
    struct listing *l = listing_of(dirfd(directory));
    return l ? l->position : REAL(telldir)(directory);
}

PS_WRAPS void seekdir(DIR *directory, long position) {
    struct listing *l = listing_of(dirfd(directory));
    if (!l) return REAL(seekdir)(directory, position);
    rewinddir(directory);
    while (l->position < position && next_of(directory, l)) {}
}

PS_WRAPS int closedir(DIR *directory) {
    int fd = dirfd(directory);
    struct ps_description *d = ps_descriptor_take(fd);
    int result = REAL(closedir)(directory);
    if (d) ps_description_drop(d);
    return result;
}

/* ---- getdents64 -------------------------------------------------------------------------------------------------------- */

static ssize_t pack_born(struct listing *l, int fd, char *buffer, size_t room) {
    size_t used = 0;
    while (room - used >= sizeof(struct dirent64)) { /* the longest entry fits */
        int found = next_born(l, fd, !used);
        if (found < 0) return used ? (ssize_t)used : -1;
        if (!found) break;
        memcpy(buffer + used, &l->out, l->out.d_reclen);
        used += l->out.d_reclen;
    }
    return (ssize_t)used;
}

static ssize_t pack_rest(struct listing *l, int fd, char *buffer, size_t room) {
    for (;;) {
        ssize_t got = REAL(getdents64)(fd, buffer, room);
        if (got <= 0) return got;
        ssize_t kept = 0;
        for (ssize_t at = 0; at < got;) {
            struct dirent64 *entry = (struct dirent64 *)(buffer + at);
            size_t bytes = entry->d_reclen;
            if (!passed_over(l, entry->d_name)) {
                memmove(buffer + kept, entry, bytes);
                kept += (ssize_t)bytes;
            }
            at += (ssize_t)bytes;
        }
        if (kept) return kept;
    }
}

PS_WRAPS ssize_t getdents64(int fd, void *buffer, size_t room) {
    struct listing *l = listing_of(fd);
    if (!l || room < sizeof(struct dirent64)) return REAL(getdents64)(fd, buffer, room);
    if (l->phase != REST) {
        ssize_t used = pack_born(l, fd, buffer, room);
        if (used || l->phase != REST) return used;
    }
    if (l->rewind_kernel) REAL(lseek)(fd, 0, SEEK_SET);
    l->rewind_kernel = false;
    return pack_rest(l, fd, buffer, room);
}

/* ---- walks that libc does inside ------------------------------------------------------------------------------------- */

typedef int (*chooser)(const struct dirent64 *);
typedef int (*sorter)(const struct dirent64 **, const struct dirent64 **);

static int compare_with(const void *a, const void *b, void *compare) {
    return (*(sorter *)compare)((const struct dirent64 **)a, (const struct dirent64 **)b);
}

static int gather(DIR *directory, struct dirent64 ***out, chooser chosen, sorter compare) {
    size_t n = 0, room = 0;
    struct dirent64 **list = NULL, *entry;
    errno = 0;
    while ((entry = readdir64(directory))) {
        if (chosen && !chosen(entry)) continue;
        if (n == room) {
            struct dirent64 **more = realloc(list, (room = room * 2 + 16) * sizeof *list);
            if (!more) break;
            list = more;
        }
        if (!(list[n] = malloc(entry->d_reclen))) break;
        memcpy(list[n++], entry, entry->d_reclen);
        errno = 0;
    }
    int error = entry ? ENOMEM : errno;
    if (error) {
        while (n) free(list[--n]);
        free(list);
        return ps_fail(error);
    }
    if (compare && n) qsort_r(list, n, sizeof *list, compare_with, &compare);
    *out = list ? list : malloc(sizeof *list);
    return (int)n;
}

static int scan_at(int dirfd, const char *path, struct dirent64 ***out, chooser chosen, sorter compare) {
    int fd, kept = errno;
    while ((fd = ps_open_anywhere(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)) < 0)
        if (errno != EINTR) return -1;
    DIR *directory = fdopendir(fd);
    if (!directory) return ps_close_body(fd), -1;
    int n = gather(directory, out, chosen, compare);
    int error = errno;
    closedir(directory);
    errno = n < 0 ? error : kept;
    return n;
}

PS_WRAPS int scandir64(const char *path, struct dirent64 ***out, chooser chosen, sorter compare) {
    return scan_at(AT_FDCWD, path, out, chosen, compare);
}
PS_WRAPS int scandir(const char *path, struct dirent ***out, int (*chosen)(const struct dirent *),
                     int (*compare)(const struct dirent **, const struct dirent **)) {
    return scan_at(AT_FDCWD, path, (struct dirent64 ***)out, (chooser)chosen, (sorter)compare);
}
PS_WRAPS int scandirat64(int dirfd, const char *path, struct dirent64 ***out, chooser chosen, sorter compare) {
    return scan_at(dirfd, path, out, chosen, compare);
}
PS_WRAPS int scandirat(int dirfd, const char *path, struct dirent ***out, int (*chosen)(const struct dirent *),
                       int (*compare)(const struct dirent **, const struct dirent **)) {
    return scan_at(dirfd, path, (struct dirent64 ***)out, (chooser)chosen, (sorter)compare);
}

/* glob lets its caller say how directories are read: by the wrappers above. */
static void *glob_opendir(const char *path) { return opendir(path); }
static void glob_closedir(void *directory) { closedir(directory); }
static struct dirent *glob_readdir(void *directory) { return readdir(directory); }
static struct dirent64 *glob_readdir64(void *directory) { return readdir64(directory); }
static int glob_stat(const char *path, struct stat *out) { return stat(path, out); }
static int glob_stat64(const char *path, struct stat64 *out) { return stat64(path, out); }
static int glob_lstat(const char *path, struct stat *out) { return lstat(path, out); }
static int glob_lstat64(const char *path, struct stat64 *out) { return lstat64(path, out); }

PS_WRAPS int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *out) {
    if (ps_active() && !(flags & GLOB_ALTDIRFUNC)) {
        out->gl_opendir = glob_opendir;
        out->gl_closedir = glob_closedir;
        out->gl_readdir = glob_readdir;
        out->gl_stat = glob_stat;
        out->gl_lstat = glob_lstat;
        flags |= GLOB_ALTDIRFUNC;
    }
    return REAL(glob)(pattern, flags, failed, out);
}

PS_WRAPS int glob64(const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *out) {
    if (ps_active() && !(flags & GLOB_ALTDIRFUNC)) {
        out->gl_opendir = glob_opendir;
        out->gl_closedir = glob_closedir;
        out->gl_readdir = glob_readdir64;
        out->gl_stat = glob_stat64;
        out->gl_lstat = glob_lstat64;
        flags |= GLOB_ALTDIRFUNC;
    }
    return REAL(glob64)(pattern, flags, failed, out);
}

/* Reads the tree to its end, so that what libc then walks is final. */
static void settle_tree(int parent, const char *path, int depth) {
    int fd = ps_open_anywhere(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0 || depth > 256) return fd < 0 ? (void)0 : (void)ps_close_body(fd);
    DIR *directory = fdopendir(fd);
    if (!directory) return (void)ps_close_body(fd);
    struct dirent64 *entry;
    while ((entry = readdir64(directory)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && entry->d_type == DT_DIR)
            settle_tree(fd, entry->d_name, depth + 1);
        else if (entry->d_type == DT_REG)
            ps_await_path(fd, entry->d_name, PS_NEED_STAT, false);
    closedir(directory);
}

static void settle(const char *path) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    if (!ps_active() || !ps_is_path(path) || ps_place_of(AT_FDCWD, path, room, &name) == PS_OUTSIDE) return;
    int kept = errno;
    settle_tree(AT_FDCWD, path, 0);
    errno = kept;
}

PS_WRAPS int ftw(const char *path, __ftw_func_t visit, int most) { return settle(path), REAL(ftw)(path, visit, most); }
PS_WRAPS int ftw64(const char *path, __ftw64_func_t visit, int most) {
    return settle(path), REAL(ftw64)(path, visit, most);
}
PS_WRAPS int nftw(const char *path, __nftw_func_t visit, int most, int flags) {
    return settle(path), REAL(nftw)(path, visit, most, flags);
}
PS_WRAPS int nftw64(const char *path, __nftw64_func_t visit, int most, int flags) {
    return settle(path), REAL(nftw64)(path, visit, most, flags);
}

PS_WRAPS void *fts_open(char *const *paths, int options, void *compare) {
    for (char *const *path = paths; *path; path++) settle(*path);
    return REAL(fts_open)(paths, options, compare);
}
PS_WRAPS void *fts64_open(char *const *paths, int options, void *compare) {
    for (char *const *path = paths; *path; path++) settle(*path);
    return REAL(fts64_open)(paths, options, compare);
}
