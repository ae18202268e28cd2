/* What a consumer waits for before a call on a name: its birth, or its commit. Producers, plain names and names whose
 * fate is settled go through at once. */
#include "interpose.h"

#include <string.h>
#include <sys/syscall.h>

#define LINKS 40 /* as the kernel */

/* The next name of a link that the run made; false if it leads out of the managed directory. */
static bool link_target(uint32_t slot, char *room, struct ps_path *out) {
    char link[PS_PATH_ROOM], target[4097], *whole = target;
    uint32_t bytes;
    const char *name = ps_name(slot, &bytes);
    if (!ps_absolute(name, bytes, link, sizeof link)) return false;
    ssize_t got = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, target, sizeof target - 1, 0, 0);
    if (got <= 0) return false;
    target[got] = 0;
    if (target[0] != '/') {
        char *slash = strrchr(link, '/');
        if ((size_t)(slash - link) + (size_t)got + 2 > sizeof link) return false;
        memcpy(slash + 1, target, (size_t)got + 1);
        whole = link;
    }
    if (ps_place_of(AT_FDCWD, whole, room, out) != PS_INSIDE) return false;
    memmove(room, out->name, out->bytes); /* it may lie in a text of ours */
    out->name = room;
    return true;
}

uint32_t ps_slot_of(const struct ps_path *path) {
    uint32_t slot = ps_lookup(path->name, path->bytes);
    if (PS_OFTEN(slot != PS_NONE)) return slot;
    struct ps_class found;
    ps_classify(path->name, path->bytes, &found);
    if (found.excluded || !(found.producers | found.makers)) return PS_NONE;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    slot = ps_obtain(path->name, path->bytes);
    ps_quiet_end(&quiet);
    return slot;
}

uint32_t ps_slot_made(const struct ps_path *path) {
    uint32_t slot = ps_lookup(path->name, path->bytes);
    if (slot != PS_NONE) return slot;
    struct ps_class found;
    ps_classify(path->name, path->bytes, &found);
    if (found.excluded) return PS_NONE;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    slot = ps_obtain(path->name, path->bytes);
    ps_quiet_end(&quiet);
    return slot;
}

/* A directory that is there need not be made by the run to be looked at. */
static bool is_directory(uint32_t slot) {
    char path[PS_PATH_ROOM];
    struct stat found;
    uint32_t bytes;
    if (ps_flags_of(slot) & PS_DIRECTORY) return true;
    const char *name = ps_name(slot, &bytes);
    if (!ps_absolute(name, bytes, path, sizeof path)) return false;
    int kept = errno;
    int failed = REAL(lstat)(path, &found);
    errno = kept;
    return !failed && S_ISDIR(found.st_mode);
}

struct entries { /* of the rules */
    const struct ps_rules_entry *at;
    uint32_t n;
    const char *strings;
};

static struct entries all_entries(void) {
    const struct ps_rules_head *head = (const void *)((const char *)ps + ps->rules_at);
    const struct ps_rules_app *apps = (const void *)(head + 1);
    const struct ps_rules_entry *entries = (const void *)(apps + head->n_apps);
    return (struct entries){entries, head->n_entries, (const char *)(entries + head->n_entries)};
}

/* Whether some output lies below a directory of this name: a pattern cut at one of its slashes matches it. A pattern like
 * "*.png" could match below any name at all; nobody waits for a name on that ground. */
static bool awaits_directory(uint32_t slot) {
    struct entries all = all_entries();
    uint32_t bytes;
    const char *name = ps_name(slot, &bytes);
    for (const struct ps_rules_entry *entry = all.at; entry < all.at + all.n; entry++) {
        const char *pattern = all.strings + entry->pattern_at, *end = pattern + entry->pattern_bytes;
        if (entry->kind == PS_DIR_RULE && ps_matches(pattern, entry->pattern_bytes, name, bytes)) return true;
        if (entry->kind != PS_OUTPUT && entry->kind != PS_FILE_RULE) continue;
        for (const char *at = pattern; (at = memchr(at, '/', (size_t)(end - at))); at++)
            if (ps_matches(pattern, (size_t)(at - pattern), name, bytes)) return true;
    }
    return false;
}

/* Whether a step names the file itself as its output, without wildcards. */
static bool is_named(uint32_t slot) {
    struct entries all = all_entries();
    uint32_t bytes;
    const char *name = ps_name(slot, &bytes);
    for (const struct ps_rules_entry *entry = all.at; entry < all.at + all.n; entry++)
        if (entry->kind == PS_OUTPUT && entry->pattern_bytes == bytes && !memcmp(all.strings + entry->pattern_at, name, bytes))
            return true;
    return false;
}

/* Before a wait for the birth: is there anything to wait for? A module that a step names as its output is. */
static bool may_come(uint32_t slot) {
    if (!atomic_load(&ps_slot(slot)->producers) && !(ps_flags_of(slot) & PS_REMOTE) && !awaits_directory(slot)) return false;
    return is_named(slot) || !ps_python_imports();
}

/* A directory is looked at by many who only want to know that it is one, or where they are. It is seen when it is final if
 * a rule of the workflow (not the default) says so, or if the call is about what its entries change: a listing waits too. */
static int await_directory(uint32_t slot, enum ps_need need) {
    const struct ps_rule *rule = &ps_slot(slot)->directory;
    uint32_t bytes;
    if (rule->fire != PS_UPDATE || need == PS_NEED_BIRTH) return 0;
    const char *name = ps_name(slot, &bytes);
    if (need != PS_NEED_ENTRIES && (rule->serial == 0xffff || ps_around_cwd(name, bytes))) return 0;
    return ps_python_imports() ? 0 : ps_wait_committed(slot, ps_self_app);
}

int ps_await_slot_or_signal(uint32_t slot, enum ps_need need) {
    slot = ps_now(slot);
    uint32_t flags = ps_flags_of(slot);
    if (PS_OFTEN(flags & PS_COMMITTED)) return 0;
    if (!ps_awaited(slot, ps_self_app)) return 0;
    if (!(flags & PS_BORN)) {
        if (is_directory(slot)) return await_directory(slot, need);
        if (!may_come(slot)) return 0;
        int error = ps_wait_born(slot, ps_self_app);
        if (error) return error;
        slot = ps_now(slot);
        flags = ps_flags_of(slot);
    }
    if (flags & PS_SYMLINK) return 0;
    if (flags & PS_DIRECTORY) return await_directory(slot, need);
    if (flags & PS_STREAMED) {
        if (need == PS_NEED_BIRTH) return 0;
        if (need != PS_NEED_COMMIT && ps_apps[ps_self_app].flags & PS_APP_SIZES_SO_FAR) return 0;
    } /* else: the producer may yet put another file in its place, and batch order shows the last one */
    return ps_wait_committed(slot, ps_self_app);
}

int ps_await_slot(uint32_t slot, enum ps_need need) {
    int error;
    while ((error = ps_await_slot_or_signal(slot, need)) == EINTR) {}
    return error;
}

int ps_reach_or_signal(const struct ps_path *path, bool follow, enum ps_need need, uint32_t *slot) {
    char room[PS_PATH_ROOM];
    struct ps_path behind;
    *slot = ps_slot_of(path);
    for (int links = 0; follow && *slot != PS_NONE && links < LINKS; links++) {
        uint32_t flags = ps_flags_of(*slot);
        if (PS_OFTEN(flags & PS_BORN && !(flags & PS_SYMLINK))) break;
        int error = ps_await_slot_or_signal(*slot, PS_NEED_BIRTH);
        if (error) return error;
        if ((ps_flags_of(*slot) & (PS_SYMLINK | PS_BORN)) != (PS_SYMLINK | PS_BORN)) break;
        *slot = link_target(*slot, room, &behind) ? ps_slot_of(&behind) : PS_NONE;
    }
    return *slot == PS_NONE ? 0 : ps_await_slot_or_signal(*slot, need);
}

int ps_reach(const struct ps_path *path, bool follow, enum ps_need need, uint32_t *slot) {
    int error;
    while ((error = ps_reach_or_signal(path, follow, need, slot)) == EINTR) {}
    return error;
}

int ps_await_path(int dirfd, const char *path, enum ps_need need, bool follow) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    uint32_t slot;
    return ps_managed(dirfd, path, room, &name) ? ps_reach(&name, follow, need, &slot) : 0;
}
