/* Bounded memory: the room that temporary files take while they are streamed.
 *
 * A writer takes room by whole pages before it writes them (`charged`), and the server gives it back when all readers are
 * done with them (`freed`). What lies between, summed over all files, is header.taken. A writer is held while its own file
 * would exceed header.limit or all of them header.room; not by the latter if its bytes are awaited, for else it could be
 * held for room that only comes back when they are there. Both numbers of a slot change under its stripe.
 */
#include "table_sys.h"

static uint64_t counted(const struct ps_slot *s) { return s->charged > s->freed ? s->charged - s->freed : 0; }

bool ps_set_room(struct ps_slot *s, uint64_t charged, uint64_t freed) {
    uint64_t before = counted(s);
    s->charged = charged;
    s->freed = freed;
    atomic_fetch_add(&ps->taken, counted(s) - before);
    return counted(s) < before;
}

bool ps_is_bounded(const struct ps_slot *s) {
    uint32_t flags = atomic_load(&s->flags);
    return atomic_load(&ps->limit) && (flags & PS_TEMPORARY_FILE) && (flags & PS_STREAMED) &&
           !(flags & (PS_READS_BACK | PS_COMMITTED | PS_REMOVED)) && (atomic_load(&s->consumers) & ~atomic_load(&ps->over));
}

static const struct ps_waiting *wait_at(uint32_t number) {
    return ((const struct ps_process *)((char *)ps + ps->processes_at))[number / PS_WAITS].waits + number % PS_WAITS;
}

/* Whether the slowest reader waits for the byte at `start`, and has nothing else of this file to read: what it has read
 * is given back, so that the file takes no more than what is waited for. */
static bool is_awaited(uint32_t slot, uint64_t start) {
    uint64_t read = ps_consumed_by_all(slot);
    if (atomic_load(&ps_slots[slot].wanted) == PS_NOTHING_WANTED || ps_spare(slot)) return false;
    for (uint32_t number = 0; number < atomic_load(&ps->processes_used) * PS_WAITS; number++) {
        const struct ps_waiting *wait = wait_at(number);
        if (atomic_load(&wait->kind) == PS_WAIT_RANGE && ps_now(wait->slot) == slot && wait->start <= read && start < wait->end)
            return true;
    }
    return false;
}

/* `bytes` more of all files' room, in one step: writers of other files are at it too. */
static bool take(uint32_t slot, uint64_t start, uint64_t bytes, uint64_t at_least) {
    uint64_t taken = atomic_load(&ps->taken);
    do {
        if (taken + at_least > atomic_load(&ps->room) && !is_awaited(slot, start)) return false;
    } while (!atomic_compare_exchange_weak(&ps->taken, &taken, taken + bytes));
    return true;
}

bool ps_take_room(uint32_t slot, uint64_t start, uint64_t end) {
    struct ps_slot *s = ps_slots + slot;
    uint64_t limit = atomic_load(&ps->limit);
    /* A write that cannot be cut and is larger than its share comes when there is room for its share, since for all of it
     * there may never be. */
    uint64_t share = ps_pages(start + (end - start < limit / 4 ? end - start : limit / 4));
    end = ps_pages(end);
    if (!ps_is_bounded(s)) return true;
    if (share > atomic_load(&s->freed) + limit) return false;
    if (end <= atomic_load(&s->charged)) return true;
    slot = ps_lock_slot(slot);
    if (slot == PS_NONE) return true; /* a signal handler writes while this very file is being updated */
    s = ps_slots + slot;
    uint64_t from = s->charged > s->freed ? s->charged : s->freed;
    bool taken = !ps_is_bounded(s) || end <= from;
    if (!taken && take(slot, start, end - from, share > from ? share - from : 0)) {
        s->charged = end;
        taken = true;
    }
    ps_unlock(ps_stripe(slot));
    return taken;
}

void ps_take_no_room(uint32_t slot) {
    slot = atomic_load(&ps_slots[ps_now(slot)].charged) ? ps_lock_slot(slot) : PS_NONE;
    if (slot == PS_NONE) return;
    bool room = ps_set_room(ps_slots + slot, 0, ps_slots[slot].freed);
    ps_unlock(ps_stripe(slot));
    if (room) ps_wake_held();
}

/* A final file takes no more than it has: not what a write wanted that failed, or whose process was killed. */
void ps_trim_room(uint32_t slot) {
    struct ps_slot *s = ps_slots + slot;
    if (!atomic_load(&s->charged)) return;
    bool locked = ps_lock(ps_stripe(slot)); /* false: this thread has it */
    uint64_t most = ps_pages(ps_high(s));
    bool room = s->charged > most && ps_set_room(s, most, s->freed);
    if (locked) ps_unlock(ps_stripe(slot));
    if (room) ps_wake_held();
}

/* Who is killed between the two numbers of its slot and their sum leaves that wrong. All stripes: nobody is in between then. */
void ps_recount_room(void) {
    uint64_t taken = 0;
    uint32_t locked = 0;
    while (locked < PS_STRIPES && ps_lock(&ps->stripes[locked])) locked++; /* short of all: this thread has one already */
    bool counts = locked == PS_STRIPES && atomic_exchange(&ps->orphaned, 0);
    for (uint32_t slot = 0; counts && slot < atomic_load(&ps->slots_used); slot++) taken += counted(ps_slots + slot);
    if (counts) atomic_store(&ps->taken, taken);
    while (locked) ps_unlock(&ps->stripes[--locked]);
    if (counts) ps_wake_held();
}

/* Those who wait for room, at whichever file. */
void ps_wake_held(void) {
    for (uint32_t number = 0; number < atomic_load(&ps->processes_used) * PS_WAITS; number++)
        if (atomic_load(&wait_at(number)->kind) == PS_WAIT_ROOM) ps_wake(ps_slots + ps_now(wait_at(number)->slot));
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

void ps_punched(uint32_t number, uint64_t offset) {
    struct ps_slot *slot = ps_slots + ps_now(number);
    uint64_t punched = atomic_load(&slot->punched);
    while (punched < offset && !atomic_compare_exchange_weak(&slot->punched, &punched, offset)) {}
}

/* Under the stripe no other file begins in the slot. Whoever goes back, or maps it, says so first and looks for the mark then;
 * here it is the other way round. */
bool ps_give_back(uint32_t slot, uint64_t end) {
    if (!ps_lock(ps_stripe(slot))) return false;
    uint64_t read = ps_consumed_by_all(slot);
    bool may = ps_spare(slot) >= end;
    if (may) ps_punched(slot, read < end ? read : end);
    may = may && ps_spare(slot) >= end;
    ps_unlock(ps_stripe(slot));
    return may;
}

void ps_freed(uint32_t number, uint64_t offset) {
    number = ps_lock_slot(number);
    if (number == PS_NONE) return;
    struct ps_slot *slot = ps_slots + number;
    if (offset > slot->freed) ps_set_room(slot, slot->charged, offset);
    ps_unlock(ps_stripe(number));
    ps_wake_held();
}

uint64_t ps_spare(uint32_t slot) {
    const struct ps_slot *s = ps_slots + slot;
    uint32_t flags = atomic_load(&s->flags);
    uint64_t read = ps_consumed_by_all(slot);
    bool whole = (flags & (PS_COMMITTED | PS_SPARSE)) == PS_COMMITTED && read && read >= atomic_load(&s->solid);
    uint64_t spare = whole ? ps_pages(read) : read / ps_pages(1) * ps_pages(1);
    return flags & (PS_MOVED | PS_REMOVED) || spare <= atomic_load(&s->freed) ? 0 : spare;
}

uint32_t ps_next_spare(uint32_t from) {
    for (uint32_t slot = from; slot < atomic_load(&ps->slots_used); slot++)
        if (counted(ps_slots + slot) && ps_spare(slot)) return slot;
    return PS_NONE;
}
