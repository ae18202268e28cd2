/* Renames and links: what was known of a file follows it to its new name.
 *
 * The new name gets a slot of its own, since readers may sleep there already, and the old slot points to it for good
 * (PS_MOVED): whoever holds the old number acts on the new slot. The old name is free for another file at once.
 *
 * The journal tells the move before the birth and the commit that come with it: other nodes follow it with the copy
 * that they have, and must not take the new name for another file first.
 */
#include "table_sys.h"

#include <string.h>
#include <sys/stat.h>

static struct ps_extent *extent(uint32_t number) {
    return (struct ps_extent *)((char *)ps + ps->extents_at) + number;
}

/* Both stripes, in one order for everybody. */
static bool lock_two(uint32_t one, uint32_t other) {
    uint32_t low = one % PS_STRIPES, high = other % PS_STRIPES;
    if (low > high) low ^= high, high ^= low, low ^= high;
    if (!ps_lock(&ps->stripes[low])) return false;
    if (low != high && !ps_lock(&ps->stripes[high])) {
        ps_unlock(&ps->stripes[low]);
        return false;
    }
    return true;
}
static void unlock_two(uint32_t one, uint32_t other) {
    ps_unlock(ps_stripe(one));
    if (one % PS_STRIPES != other % PS_STRIPES) ps_unlock(ps_stripe(other));
}

static void copy_progress(struct ps_slot *from, struct ps_slot *to) {
    if (atomic_load(&from->solid)) ps_add_extent(to, 0, atomic_load(&from->solid));
    for (uint32_t number = from->extents; number != PS_NONE; number = extent(number)->next)
        ps_add_extent(to, extent(number)->start, extent(number)->end);
}

static unsigned kind_of(const struct ps_slot *slot) {
    uint32_t flags = atomic_load(&slot->flags);
    return flags & PS_DIRECTORY ? PS_A_DIRECTORY : flags & PS_SYMLINK ? PS_A_SYMLINK : PS_A_FILE;
}

/* A file that the table did not know by its old name: all its bytes are there. */
static void born_from_outside(uint32_t slot, uint32_t app) {
    uint64_t size = 0;
    unsigned mode = S_IFREG;
    bool of_this_run;
    uint32_t bytes;
    const char *name = ps_name(slot, &bytes);
    ps_stat_name(name, bytes, &size, &mode, &of_this_run);
    ps_born_locked(slot, app, S_ISDIR(mode) ? PS_A_DIRECTORY : S_ISLNK(mode) ? PS_A_SYMLINK : PS_A_FILE);
    if (!S_ISREG(mode) || !size || !ps_lock(ps_stripe(slot))) return;
    ps_add_extent(ps_slots + slot, 0, size);
    if (ps_is_bounded(ps_slots + slot)) ps_set_room(ps_slots + slot, ps_pages(size), 0);
    ps_slots[slot].closes++;
    ps_commit_if_closed(ps_slots + slot, slot);
    ps_unlock(ps_stripe(slot));
}

static void take_over(uint32_t from, uint32_t to, uint32_t app, bool below) {
    struct ps_slot *f = ps_slots + from, *t = ps_slots + to;
    uint32_t target_flags = atomic_load(&t->flags);
    if (target_flags & PS_COMMITTED)
        ps_violation(to, PS_WRITTEN_AFTER_COMMIT, 0);
    else if (target_flags & PS_BORN && target_flags & PS_STREAMED && ps_high(t))
        ps_violation(to, PS_REWRITTEN, 0);
    if (!(target_flags & PS_DECLARED)) atomic_fetch_or(&t->producers, atomic_load(&f->producers));
    ps_forget_entry_locked(from);
    ps_unchain_locked(from);
    if (!lock_two(from, to)) return;
    ps_cut_extents(t, 0); /* of a file that the rename replaced */
    if (target_flags & PS_REMOVED) t->closes = 0;
    ps_clear_flags(t, PS_REMOVED);
    f->moved_to = to;
    ps_raise_flags(f, PS_MOVED); /* from here on writers of the file publish at the new slot */
    copy_progress(f, t);
    t->writers += f->writers;
    t->closes += f->closes;
    ps_raise_flags(t, atomic_load(&f->flags) & (PS_MAPPED | PS_READS_BACK | PS_FULL | PS_REMOTE));
    ps_cut_extents(f, 0);
    for (uint32_t i = 0; i < PS_CONSUMERS; i++) t->consumed[i] = f->consumed[i];
    t->punched = f->punched;
    ps_set_room(t, ps_is_bounded(t) ? ps_pages(ps_high(t)) : 0, f->freed);
    ps_set_room(f, 0, f->freed);
    ps_note(PS_NOTE_MOVED, from, to, below); /* under the stripes: a writer that closes meanwhile may commit */
    unlock_two(from, to);
    ps_born_locked(to, app, kind_of(f));
    if (ps_lock(ps_stripe(to))) {
        ps_commit_if_closed(t, to);
        ps_unlock(ps_stripe(to));
    }
    ps_wake(f);
    ps_wake(t);
    if (atomic_load(&f->flags) & PS_SHOWN) ps_violation(from, PS_RENAMED_ENTRY, 0);
}

/* A file of an earlier run that somebody has open for writing. By its new name it is one of this run, but what is in it may
 * be written over yet: its bytes are known as they are written, and all of them when the last has closed it. */
static void take_over_of_old(uint32_t from, uint32_t to, uint32_t app) {
    take_over(from, to, app, false);
    if (!ps_lock(ps_stripe(to))) return;
    ps_slots[to].closes++; /* as that of any file that comes from outside */
    ps_commit_if_closed(ps_slots + to, to);
    ps_unlock(ps_stripe(to));
}

static void move_one(uint32_t from, const char *to, size_t to_bytes, uint32_t app, bool below) {
    uint32_t target = ps_obtain_locked(to, to_bytes);
    if (target == PS_NONE || target == from) return;
    if (from != PS_NONE && (atomic_load(&ps_slots[from].flags) & PS_BORN))
        take_over(from, target, app, below);
    else if (from != PS_NONE && ps_slots[from].writers > 0)
        take_over_of_old(from, target, app);
    else
        born_from_outside(target, app);
}

static void move_below(const char *from, size_t from_bytes, const char *to, size_t to_bytes, uint32_t app) {
    char moved[PS_NAME_MAX + 1];
    uint32_t used = ps->slots_used; /* slots made by the move itself need none */
    for (uint32_t slot = 0; slot < used; slot++) {
        uint32_t bytes;
        const char *name = ps_name(slot, &bytes);
        if ((atomic_load(&ps_slots[slot].flags) & (PS_MOVED | PS_BORN)) != PS_BORN || bytes <= from_bytes + 1) continue;
        if (name[from_bytes] != '/' || memcmp(name, from, from_bytes) != 0) continue;
        size_t rest = bytes - from_bytes;
        if (to_bytes + rest > PS_NAME_MAX) continue;
        memcpy(moved, to, to_bytes);
        memcpy(moved + to_bytes, name + from_bytes, rest);
        move_one(slot, moved, to_bytes + rest, app, true);
    }
}

void ps_renamed(const char *from, size_t from_bytes, const char *to, size_t to_bytes, uint32_t app) {
    if (from_bytes == to_bytes && memcmp(from, to, to_bytes) == 0) return;
    if (!ps_lock(&ps->mutex)) return;
    uint32_t source = ps_lookup(from, from_bytes);
    bool directory = source != PS_NONE && (atomic_load(&ps_slots[source].flags) & PS_DIRECTORY);
    move_one(source, to, to_bytes, app, false);
    if (directory) move_below(from, from_bytes, to, to_bytes, app);
    ps_unlock(&ps->mutex);
}

void ps_linked(uint32_t from, uint32_t to, uint32_t app) {
    from = ps_now(from);
    if (from == to || !ps_lock(&ps->mutex)) return;
    struct ps_slot *f = ps_slots + from, *t = ps_slots + to;
    if (!(atomic_load(&f->flags) & PS_BORN)) {
        born_from_outside(to, app);
    } else {
        ps_born_locked(to, app, kind_of(f));
        if (!(atomic_load(&t->flags) & PS_DECLARED)) atomic_fetch_or(&t->producers, atomic_load(&f->producers));
        if (lock_two(from, to)) {
            copy_progress(f, t);
            t->closes += f->closes;
            if (f->writers == 0) ps_commit_if_closed(t, to);
            unlock_two(from, to);
        }
        ps_wake(t);
    }
    ps_unlock(&ps->mutex);
}
