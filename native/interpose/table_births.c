/* Births, closes and commits: how a name comes into being and how it becomes final.
 *
 * on_close and n_files are decided here, at the event itself; the server commits the rest. Writers and closes change
 * under the slot's stripe, so that a rename meanwhile loses none of them.
 */
#include "table_sys.h"

#include <string.h>

static void append_entry(uint32_t directory, uint32_t slot) {
    struct ps_slot *d = ps_slots + directory;
    uint32_t last = d->last_entry;
    atomic_store(last == PS_NONE ? &d->first_entry : &ps_slots[last].next_entry, slot);
    atomic_store(&d->last_entry, slot);
    ps_raise_flags(ps_slots + slot, PS_LINKED);
}

static uint32_t parent_of(uint32_t slot) {
    uint32_t bytes;
    const char *name = ps_name(slot, &bytes);
    if (bytes == 1 && name[0] == '.') return PS_NONE;
    const char *slash = memrchr(name, '/', bytes);
    return slash ? ps_obtain_locked(name, (size_t)(slash - name)) : ps_obtain_locked(".", 1);
}

static void enter_into_parent(uint32_t slot, bool counted) {
    struct ps_slot *s = ps_slots + slot;
    if (s->parent == PS_NONE) s->parent = parent_of(slot);
    if (s->parent == PS_NONE) return;
    struct ps_slot *parent = ps_slots + s->parent;
    ps_born_locked(s->parent, PS_APP_OTHER, PS_A_DIRECTORY | PS_NOT_COUNTED);
    if (!(atomic_load(&s->flags) & PS_LINKED)) append_entry(s->parent, slot);
    if (counted && !(atomic_fetch_or(&s->flags, PS_COUNTED) & PS_COUNTED)) {
        uint32_t entries = atomic_fetch_add(&parent->entries, 1) + 1;
        if (parent->directory.commit == PS_N_FILES && entries >= parent->directory.n) ps_commit(s->parent);
    }
    ps_wake(parent);
}

/* What an earlier file of the same name left in the slot. */
static void start_afresh(uint32_t slot) {
    if (!ps_lock(ps_stripe(slot))) return;
    uint32_t flags = atomic_load(&ps_slots[slot].flags);
    bool read_on = flags & PS_STREAMED && !(flags & PS_COMMITTED) && ps_high(ps_slots + slot);
    ps_cut_extents(ps_slots + slot, 0);
    ps_slots[slot].closes = 0;
    for (uint32_t i = 0; i < PS_CONSUMERS; i++) ps_slots[slot].consumed[i] = 0;
    ps_slots[slot].punched = ps_slots[slot].freed = 0; /* `charged` is 0 since its removal */
    ps_unlock(ps_stripe(slot));
    if (read_on) ps_violation(slot, PS_REWRITTEN, 0); /* whoever has the earlier one open does not see this one */
}

static bool nothing_new(uint32_t flags, unsigned what) {
    if (!(flags & PS_BORN) || (!(flags & PS_COUNTED) && !(what & PS_NOT_COUNTED))) return false;
    return !!(flags & PS_DIRECTORY) == !!(what & PS_A_DIRECTORY);
}

void ps_born_locked(uint32_t slot, uint32_t app, unsigned what) {
    struct ps_slot *s = ps_slots + slot;
    uint32_t flags = atomic_load(&s->flags), mine = what & PS_A_DIRECTORY ? PS_DECLARED_DIRECTORY : PS_DECLARED;
    if (nothing_new(flags, what)) return;
    if (flags & PS_REMOVED) start_afresh(slot);
    if (!(what & PS_NOT_COUNTED) && !(flags & mine))
        atomic_fetch_or(what & PS_A_DIRECTORY ? &s->makers : &s->producers, UINT64_C(1) << app);
    bool first = !(flags & PS_BORN);
    if (first) {
        s->born_ns = ps_clock();
        atomic_store(&s->serial, atomic_fetch_add(&ps->births, 1) + 1);
    }
    uint32_t kind = what & PS_A_DIRECTORY ? PS_DIRECTORY : what & PS_A_SYMLINK ? PS_SYMLINK : 0;
    ps_change_flags(s, PS_BORN | kind, (PS_REMOVED | PS_DIRECTORY | PS_SYMLINK) & ~kind);
    enter_into_parent(slot, !(what & PS_NOT_COUNTED));
    ps_wake(s);
    if (first) ps_note(PS_NOTE_BORN, slot, what, s->serial);
}

void ps_born(uint32_t slot, uint32_t app, unsigned what) {
    slot = ps_now(slot);
    if (nothing_new(atomic_load(&ps_slots[slot].flags), what) || !ps_lock(&ps->mutex)) return;
    ps_born_locked(ps_now(slot), app, what);
    ps_unlock(&ps->mutex);
}

/* The name is gone from its directory; readers who have the file open keep what they have. */
void ps_forget_entry_locked(uint32_t slot) {
    struct ps_slot *s = ps_slots + slot;
    if (s->parent == PS_NONE || !(atomic_load(&s->flags) & PS_COUNTED)) return;
    ps_clear_flags(s, PS_COUNTED);
    atomic_fetch_sub(&ps_slots[s->parent].entries, 1);
}

/* Whether a listing of another step may have shown the name: not one of the steps before those that make it. */
static bool listed_by_others(const struct ps_slot *s, uint32_t app) {
    for (uint32_t other = 0; other < ps->n_apps; other++)
        if (other != app && ps_producers(s) & ~(ps_apps[other].after | UINT64_C(1) << other)) return true;
    return false;
}

void ps_removed(uint32_t slot, uint32_t app) {
    slot = ps_now(slot);
    struct ps_slot *s = ps_slots + slot;
    if (!(atomic_load(&s->flags) & PS_BORN)) { /* of an earlier run */
        ps_raise_flags(s, PS_REMOVED);
        return;
    }
    if (!ps_lock(&ps->mutex)) return;
    uint32_t parent = s->parent;
    bool missed = (ps_producers(s) >> app & 1u) && listed_by_others(s, app) &&
                  (parent == PS_NONE || ps_listed_early(parent, slot));
    ps_forget_entry_locked(slot);
    ps_change_flags(s, PS_REMOVED, PS_BORN | PS_DIRECTORY | PS_SYMLINK);
    ps_take_no_room(slot);
    ps_note(PS_NOTE_REMOVED, slot, 0, 0); /* before another file of that name is born */
    ps_unlock(&ps->mutex);
    if (missed && parent != PS_NONE && ps_slots[parent].directory.fire == PS_NO_UPDATE)
        ps_violation(slot, PS_REMOVED_ENTRY, 0);
}

/* ---- writers --------------------------------------------------------------------------------------------------- */

/* Is it time for an on_close file? Under the slot's stripe. */
void ps_commit_if_closed(struct ps_slot *s, uint32_t slot) {
    uint32_t flags = atomic_load(&s->flags);
    if (s->file.commit == PS_ON_CLOSE && s->writers == 0 && s->closes >= s->file.n &&
        (flags & (PS_BORN | PS_COMMITTED | PS_DIRECTORY)) == PS_BORN)
        ps_commit(slot);
}

void ps_let_go(uint32_t slot, bool closed, bool counts) {
    slot = ps_lock_slot(slot);
    if (slot != PS_NONE) ps_let_go_locked(slot, closed, counts);
}

void ps_let_go_locked(uint32_t slot, bool closed, bool counts) {
    struct ps_slot *s = ps_slots + slot;
    if (s->writers > 0) s->writers--;
    if (counts) s->closes++;
    if (closed) ps_commit_if_closed(s, slot);
    uint32_t closes = s->closes, writers = (uint32_t)s->writers;
    ps_unlock(ps_stripe(slot));
    if (counts) ps_note(PS_NOTE_CLOSED, slot, closes, writers);
}

void ps_commit(uint32_t slot) {
    slot = ps_now(slot);
    struct ps_slot *s = ps_slots + slot;
    if (atomic_load(&s->flags) & PS_COMMITTED) return;
    s->committed_ns = ps_clock();
    if (atomic_fetch_or(&s->flags, PS_COMMITTED) & PS_COMMITTED) return;
    ps_trim_room(slot);
    ps_wake(s);
    ps_note(PS_NOTE_COMMITTED, slot, atomic_load(&s->solid), 0);
}

/* ---- the server's decisions ------------------------------------------------------------------------------------ */

static void wake_all(void) {
    for (uint32_t slot = 0; slot < atomic_load(&ps->slots_used); slot++) ps_wake(ps_slots + slot);
}

static void copy_text(char *to, size_t room, const char *from) {
    size_t bytes = from ? strnlen(from, room - 1) : 0;
    memcpy(to, from, bytes);
    to[bytes] = 0;
}

void ps_app_state(uint32_t app, uint32_t state) { atomic_store(&ps_apps[app].state, state); }

void ps_app_over(uint32_t app, uint32_t state, const char *how) {
    /* A node that could not store what an app made has said so: that the app then ends well takes nothing of it back. */
    if (state != PS_APP_FAILED && (atomic_load(&ps->failed) & UINT64_C(1) << app)) return;
    copy_text(ps_apps[app].how, sizeof ps_apps[app].how, how);
    atomic_store(&ps_apps[app].state, state);
    if (state == PS_APP_FAILED) atomic_fetch_or(&ps->failed, UINT64_C(1) << app);
    atomic_fetch_or(&ps->over, UINT64_C(1) << app);
    wake_all();
}

void ps_abort(const char *text) {
    copy_text(ps->abort_text, sizeof ps->abort_text, text);
    atomic_store(&ps->aborted, 1);
    wake_all();
}

void ps_serve(uint32_t state) {
    pid_t pid = (pid_t)ps_sys(SYS_getpid, 0, 0, 0, 0, 0, 0);
    char ignored;
    atomic_store(&ps->server_birth, ps_birth_of(pid, &ignored));
    atomic_store(&ps->server_pid, pid);
    atomic_store(&ps->server_state, state);
    if (state == PS_SERVER_STOPS) wake_all();
}

uint32_t ps_settle(void) {
    uint64_t over = atomic_load(&ps->over), failed = atomic_load(&ps->failed);
    uint32_t committed = 0;
    for (uint32_t slot = 0; slot < atomic_load(&ps->slots_used); slot++) {
        struct ps_slot *s = ps_slots + slot;
        uint64_t producers = ps_producers(s);
        if ((atomic_load(&s->flags) & (PS_BORN | PS_COMMITTED | PS_MOVED | PS_REMOTE)) != PS_BORN) continue;
        if (!producers || (producers & ~over) || (producers & failed)) continue;
        ps_commit(slot);
        committed++;
    }
    return committed;
}

void ps_set_flags(uint32_t slot, uint32_t set, uint32_t clear) {
    struct ps_slot *s = ps_slots + ps_now(slot);
    ps_change_flags(s, set, clear);
    if (set & PS_READS_BACK) ps_take_no_room(ps_now(slot));
    ps_wake(s);
}
