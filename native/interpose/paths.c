/* Is a path ours? Absolute paths are compared with the spellings of the managed directory; relative ones go by the
 * working directory or by the directory behind a descriptor. Names are normalised lexically, as the rules are.
 *
 *     path → OUTSIDE (the real call, at once) | ABOVE (may lead inside through openat) | INSIDE (a name)
 */
#include "interpose.h"

#include <string.h>
#include <sys/syscall.h>

static struct {
    const char *path;
    size_t bytes;
} roots[PS_ROOTS];
static unsigned n_roots;

/* The working directory. chdir fills the next of four and points there, so that a thread in the middle of a lookup
 * keeps a whole one. */
struct cwd {
    enum ps_place place;
    size_t bytes, name_at; /* INSIDE: where the name begins in `path`; == bytes for the managed directory itself */
    char path[4096];
};
static struct cwd cwds[4];
static _Atomic(struct cwd *) cwd_now;
static _Atomic unsigned cwd_serial;

/* Whether `name` has no empty, "." or ".." component and no slash at its end; its length to *bytes. */
static bool tidy(const char *name, size_t *bytes) {
    const char *at = name;
    for (;;) {
        if (*at == '/' || !*at) return false;
        if (*at == '.' && (at[1] == '/' || !at[1] || (at[1] == '.' && (at[2] == '/' || !at[2])))) return false;
        while (*at != '/') {
            if (!*at) {
                *bytes = (size_t)(at - name);
                return true;
            }
            at++;
        }
        at++;
    }
}

/* Appends the components of `path` to the absolute, normalised out[0..bytes); the new length, 0 if it does not fit. */
static size_t append(char *out, size_t bytes, const char *path) {
    while (*path) {
        const char *end = strchrnul(path, '/');
        size_t part = (size_t)(end - path);
        if (part == 2 && path[0] == '.' && path[1] == '.') {
            while (bytes && out[--bytes] != '/') {}
        } else if (part && !(part == 1 && path[0] == '.')) {
            if (bytes + part + 2 > PS_PATH_ROOM) return SIZE_MAX;
            out[bytes++] = '/';
            memmove(out + bytes, path, part);
            bytes += part;
        }
        path = *end ? end + 1 : end;
    }
    out[bytes] = 0;
    return bytes;
}

/* Where an absolute, normalised path without a slash at its end lies. */
static enum ps_place place_of_normal(const char *path, size_t bytes, struct ps_path *out) {
    enum ps_place place = PS_OUTSIDE;
    for (unsigned i = 0; i < n_roots; i++) {
        size_t root = roots[i].bytes;
        if (bytes >= root && !memcmp(path, roots[i].path, root) && (bytes == root || path[root] == '/')) {
            *out = bytes == root ? (struct ps_path){".", 1} : (struct ps_path){path + root + 1, bytes - root - 1};
            return out->bytes <= PS_NAME_MAX ? PS_INSIDE : PS_OUTSIDE;
        }
        if (bytes < root && !memcmp(path, roots[i].path, bytes) && roots[i].path[bytes] == '/') place = PS_ABOVE;
    }
    return place;
}

static bool has_dots(const char *path) {
    const char *at = path;
    if (at[0] == '.' && (at[1] == '.' || at[1] == '/' || !at[1])) return true;
    while ((at = strchr(at, '/'))) {
        at++;
        if (*at == '/' || *at == '.') return true;
    }
    return false;
}

/* Past the digits at `at`; their value. NULL if there are none. */
static const char *number_at(const char *at, int *value) {
    const char *from = at;
    for (*value = 0; *at >= '0' && *at <= '9' && *value < 1 << 24; at++) *value = *value * 10 + (*at - '0');
    return at == from ? NULL : at;
}

/* Past the word, if the text begins with it. */
static const char *past(const char *text, const char *word) {
    size_t bytes = strlen(word);
    return strncmp(text, word, bytes) ? NULL : text + bytes;
}

/* /dev/stdout, /dev/fd/3, /proc/self/fd/3, /proc/self/cwd and their like name what is open already. Where that name ends;
 * *fd is the descriptor, -1 if it is none of this process. NULL: no such name. */
static const char *open_already(const char *path, int *fd) {
    static const char *const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    const char *at;
    for (*fd = 0; *fd < 3; ++*fd)
        if (!strcmp(path, standard[*fd])) return path + strlen(path);
    *fd = -1;
    if ((at = past(path, "/dev/fd/"))) return number_at(at, fd);
    if (!(at = past(path, "/proc/"))) return NULL;
    const char *rest = past(at, "self/");
    if (!rest) rest = past(at, "thread-self/");
    int pid = getpid();
    if (!rest && (rest = number_at(at, &pid)) && *rest++ != '/') return NULL;
    if (!rest) return NULL;
    if ((at = past(rest, "fd/"))) {
        at = number_at(at, fd);
        if (pid != getpid()) *fd = -1;
        return at;
    }
    at = past(rest, "cwd");
    return at ? at : past(rest, "root");
}

static enum ps_place place_of_description(const struct ps_description *d, struct ps_path *out) {
    uint32_t bytes;
    out->name = ps_name(ps_now(d->slot), &bytes);
    out->bytes = bytes;
    return PS_INSIDE;
}

static enum ps_place place_below(const char *directory, size_t bytes, const char *path, char *room,
                                 struct ps_path *out);

static enum ps_place place_of_open(const char *path, char *room, struct ps_path *out) {
    int fd;
    const char *rest = open_already(path, &fd);
    if (!rest || (*rest && *rest != '/')) return PS_OUTSIDE;
    const struct ps_description *d = fd >= 0 ? ps_tracked(fd) : NULL;
    if (d && !*rest) return place_of_description(d, out);
    char link[64];
    size_t named = (size_t)(rest - path);
    if (named >= sizeof link) return PS_OUTSIDE;
    memcpy(link, path, named);
    link[named] = 0;
    ssize_t bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, room, 4096, 0, 0);
    if (bytes <= 0 || room[0] != '/') return PS_OUTSIDE;
    return place_below(room, bytes == 1 ? 0 : (size_t)bytes, rest, room, out);
}

static enum ps_place place_of_absolute(const char *path, char *room, struct ps_path *out) {
    for (unsigned i = 0; i < n_roots; i++) {
        if (strncmp(path, roots[i].path, roots[i].bytes)) continue;
        const char *rest = path + roots[i].bytes;
        if (!*rest) return *out = (struct ps_path){".", 1}, PS_INSIDE;
        if (*rest != '/') continue;
        out->name = rest + 1;
        if (tidy(rest + 1, &out->bytes)) return out->bytes <= PS_NAME_MAX ? PS_INSIDE : PS_OUTSIDE;
        break;
    }
    if (!strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6)) {
        enum ps_place place = place_of_open(path, room, out);
        if (place != PS_OUTSIDE) return place;
    }
    if (has_dots(path) || path[strlen(path) - 1] == '/') {
        size_t bytes = append(room, 0, path);
        return bytes == SIZE_MAX ? PS_OUTSIDE : place_of_normal(room, bytes, out);
    }
    return place_of_normal(path, strlen(path), out);
}

/* Below an absolute, normalised directory. `room` may hold the directory already. */
static enum ps_place place_below(const char *directory, size_t bytes, const char *path, char *room,
                                 struct ps_path *out) {
    if (bytes + 2 > PS_PATH_ROOM) return PS_OUTSIDE;
    if (room != directory) memcpy(room, directory, bytes);
    bytes = append(room, bytes, path);
    return bytes == SIZE_MAX ? PS_OUTSIDE : place_of_normal(room, bytes, out);
}

static enum ps_place place_in_cwd(const char *path, char *room, struct ps_path *out) {
    const struct cwd *cwd = atomic_load_explicit(&cwd_now, memory_order_acquire);
    if (!cwd) return PS_OUTSIDE;
    if (cwd->place == PS_OUTSIDE && !has_dots(path)) return PS_OUTSIDE;
    if (cwd->place == PS_INSIDE && cwd->name_at == cwd->bytes) { /* in the managed directory itself */
        out->name = path;
        if (tidy(path, &out->bytes)) return out->bytes <= PS_NAME_MAX ? PS_INSIDE : PS_OUTSIDE;
    }
    return place_below(cwd->path, cwd->bytes, path, room, out);
}

static enum ps_place place_at(int dirfd, const char *path, char *room, struct ps_path *out) {
    const struct ps_description *d = ps_description(dirfd);
    if (!d && !has_dots(path)) return PS_OUTSIDE;
    if (d && d != &ps_plain) {
        struct ps_path directory;
        place_of_description(d, &directory);
        if (!ps_absolute(directory.name, directory.bytes, room, PS_PATH_ROOM)) return PS_OUTSIDE;
        return place_below(room, strlen(room), path, room, out);
    }
    char link[32] = "/proc/self/fd/";
    char *at = link + 14;
    for (int rest = dirfd, unit = 1000000000; unit; unit /= 10)
        if (rest / unit || at > link + 14 || unit == 1) *at++ = (char)('0' + rest / unit % 10);
    *at = 0;
    ssize_t bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, room, 4096, 0, 0);
    if (bytes <= 0 || room[0] != '/') return PS_OUTSIDE;
    if (bytes == 1) bytes = 0; /* "/" */
    return place_below(room, (size_t)bytes, path, room, out);
}

enum ps_place ps_place_of(int dirfd, const char *path, char *room, struct ps_path *out) {
    if (path[0] == '/') return place_of_absolute(path, room, out);
    if (!path[0]) return PS_OUTSIDE;
    if (dirfd == AT_FDCWD) return place_in_cwd(path, room, out);
    return dirfd < 0 ? PS_OUTSIDE : place_at(dirfd, path, room, out);
}

bool ps_absolute(const char *name, size_t bytes, char *out, size_t room) {
    size_t root = roots[0].bytes;
    bool itself = bytes == 1 && name[0] == '.';
    if (root + bytes + 2 > room) return false;
    memcpy(out, roots[0].path, root);
    if (!itself) {
        out[root] = '/';
        memcpy(out + root + 1, name, bytes);
        root += bytes + 1;
    }
    out[root] = 0;
    return true;
}

bool ps_around_cwd(const char *name, size_t bytes) {
    const struct cwd *cwd = atomic_load_explicit(&cwd_now, memory_order_acquire);
    if (!cwd || cwd->place != PS_INSIDE) return false;
    if (bytes == 1 && name[0] == '.') return true;
    const char *here = cwd->path + cwd->name_at;
    return !strncmp(here, name, bytes) && (!here[bytes] || here[bytes] == '/');
}

void ps_cwd_changed(void) {
    unsigned next = atomic_fetch_add(&cwd_serial, 1) % 4;
    struct cwd *cwd = &cwds[next];
    struct ps_path name;
    long bytes = PS_KERNEL(SYS_getcwd, cwd->path, sizeof cwd->path, 0, 0, 0, 0); /* counts the NUL */
    if (bytes <= 0 || cwd->path[0] != '/') { /* removed, or above what this process may see */
        cwd->place = PS_OUTSIDE;
        cwd->path[0] = 0;
        cwd->bytes = 0;
    } else {
        cwd->bytes = bytes == 2 ? 0 : (size_t)bytes - 1;
        cwd->path[cwd->bytes] = 0;
        cwd->place = place_of_normal(cwd->path, cwd->bytes, &name);
        if (cwd->place == PS_INSIDE)
            cwd->name_at = name.bytes == 1 && name.name[0] == '.' ? cwd->bytes : (size_t)(name.name - cwd->path);
    }
    atomic_store_explicit(&cwd_now, cwd, memory_order_release);
}

void ps_paths_start(void) {
    for (n_roots = 0; n_roots < PS_ROOTS; n_roots++) {
        const struct ps_root *root = ps_root(n_roots);
        if (!root) break;
        roots[n_roots].path = root->path;
        roots[n_roots].bytes = root->bytes;
    }
    ps_cwd_changed();
}
