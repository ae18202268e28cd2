/* Which bytes of a file are written.
 *
 * `solid` bytes from the front are, and what lies beyond is a sorted list of extents, none touching the next. The list
 * is guarded by the slot's stripe; each change of it is one store that leaves a true statement. Nearly all writes only
 * move `solid` and never come here (ps_written in table.h).
 */
#include "table_sys.h"

static struct ps_extent *extent(uint32_t number) {
    return (struct ps_extent *)((char *)ps + ps->extents_at) + number;
}

static uint32_t new_extent(uint64_t start, uint64_t end, uint32_t next) {
    if (!ps_lock(&ps->extents_mutex)) return PS_NONE;
    uint32_t number = ps->extents_free;
    if (number != PS_NONE)
        ps->extents_free = extent(number)->next;
    else if (ps->extents_used < ps->n_extents && ps_grow(PS_EXTENTS, (ps->extents_used + 1) * sizeof(struct ps_extent)))
        number = ps->extents_used++;
    ps_unlock(&ps->extents_mutex);
    if (number != PS_NONE) *extent(number) = (struct ps_extent){.start = start, .end = end, .next = next};
    return number;
}

static void drop_extent(struct ps_slot *slot, uint32_t number) {
    slot->n_extents--;
    if (!ps_lock(&ps->extents_mutex)) return;
    extent(number)->next = ps->extents_free;
    ps->extents_free = number;
    ps_unlock(&ps->extents_mutex);
}

static void raise_solid(struct ps_slot *slot, uint64_t end) {
    uint64_t solid = atomic_load(&slot->solid);
    while (solid < end && !atomic_compare_exchange_weak(&slot->solid, &solid, end)) {}
}

/* Take into `solid` what has become its continuation. */
void ps_absorb(struct ps_slot *slot) {
    while (slot->extents != PS_NONE && extent(slot->extents)->start <= atomic_load(&slot->solid)) {
        uint32_t first = slot->extents;
        raise_solid(slot, extent(first)->end);
        slot->extents = extent(first)->next;
        drop_extent(slot, first);
    }
    if (slot->extents == PS_NONE) ps_clear_flags(slot, PS_SPARSE);
}

/* Add [start, end) to the list and join it with what it touches; what begins within `solid` is absorbed at once. */
uint64_t ps_add_extent(struct ps_slot *slot, uint64_t start, uint64_t end) {
    uint64_t reach = end;
    ps_raise_flags(slot, PS_SPARSE); /* before `solid` is read again: whoever moves it from now on absorbs */
    uint32_t *link = &slot->extents;
    while (*link != PS_NONE && extent(*link)->end < start) link = &extent(*link)->next;
    if (*link == PS_NONE || extent(*link)->start > end) {
        uint32_t number = new_extent(start, end, *link);
        if (number == PS_NONE) {
            ps_raise_flags(slot, PS_FULL);
            ps_full(4);
        } else {
            *link = number;
            slot->n_extents++;
        }
    } else {
        struct ps_extent *here = extent(*link);
        if (start < here->start) here->start = start;
        if (end > here->end) here->end = end;
        while (here->next != PS_NONE && extent(here->next)->start <= here->end) {
            uint32_t swallowed = here->next;
            if (extent(swallowed)->end > here->end) here->end = extent(swallowed)->end;
            here->next = extent(swallowed)->next;
            drop_extent(slot, swallowed);
        }
        reach = here->end;
    }
    ps_absorb(slot);
    return reach;
}

/* Forget what lies at `size` and beyond. */
void ps_cut_extents(struct ps_slot *slot, uint64_t size) {
    uint64_t solid = atomic_load(&slot->solid);
    while (solid > size && !atomic_compare_exchange_weak(&slot->solid, &solid, size)) {}
    uint32_t *link = &slot->extents;
    while (*link != PS_NONE && extent(*link)->end <= size) link = &extent(*link)->next;
    if (*link != PS_NONE && extent(*link)->start < size) {
        extent(*link)->end = size;
        link = &extent(*link)->next;
    }
    while (*link != PS_NONE) {
        uint32_t number = *link;
        *link = extent(number)->next;
        drop_extent(slot, number);
    }
    if (slot->extents == PS_NONE) ps_clear_flags(slot, PS_SPARSE | PS_FULL);
}

uint64_t ps_high(struct ps_slot *slot) {
    uint64_t high = atomic_load(&slot->solid);
    for (uint32_t number = slot->extents; number != PS_NONE; number = extent(number)->next)
        if (extent(number)->end > high) high = extent(number)->end;
    return high;
}

bool ps_covered(uint32_t number, uint64_t start, uint64_t end) {
    struct ps_slot *slot = ps_slots + number;
    uint64_t solid = atomic_load(&slot->solid);
    if (end <= solid) return true;
    if (!(atomic_load(&slot->flags) & PS_SPARSE) || !ps_lock(ps_stripe(number))) return false;
    solid = atomic_load(&slot->solid);
    bool covered = end <= solid;
    if (start < solid) start = solid;
    for (uint32_t at = slot->extents; at != PS_NONE && !covered; at = extent(at)->next)
        covered = extent(at)->start <= start && end <= extent(at)->end;
    ps_unlock(ps_stripe(number));
    return covered;
}

/* Whether an extent begins or ends inside a page of [start, end): the kernel's word on that page says nothing. */
bool ps_page_known_in_part(uint32_t number, uint64_t start, uint64_t end) {
    const uint64_t page = 4096;
    struct ps_slot *slot = ps_slots + number;
    bool in_part = false;
    if (!(atomic_load(&slot->flags) & (PS_SPARSE | PS_FULL))) return false;
    if ((atomic_load(&slot->flags) & PS_FULL) || !ps_lock(ps_stripe(number))) return true;
    start = start / page * page;
    end = (end + page - 1) / page * page;
    for (uint32_t at = slot->extents; at != PS_NONE && !in_part; at = extent(at)->next) {
        uint64_t from = extent(at)->start, to = extent(at)->end;
        in_part = (from % page && from > start && from < end) || (to % page && to > start && to < end);
    }
    ps_unlock(ps_stripe(number));
    return in_part;
}

/* ---- what the wrappers report ---------------------------------------------------------------------------------- */

void ps_written_slowly(uint32_t number, uint64_t start, uint64_t end, bool known) {
    number = ps_now(number);
    struct ps_slot *slot = ps_slots + number;
    uint32_t flags = atomic_load(&slot->flags);
    if (flags & PS_COMMITTED) ps_violation(number, PS_WRITTEN_AFTER_COMMIT, start);
    uint64_t reach = atomic_load(&slot->solid);
    if (!known && (flags & PS_STREAMED) && start < reach) ps_violation(number, PS_REWRITTEN, start);
    if (end > reach || (flags & PS_SPARSE)) {
        number = ps_lock_slot(number);
        if (number == PS_NONE) return; /* a signal handler wrote while this very file was being updated: commit counts */
        slot = ps_slots + number;
        if (start <= atomic_load(&slot->solid)) {
            raise_solid(slot, end);
            ps_absorb(slot);
            reach = atomic_load(&slot->solid);
        } else {
            reach = ps_add_extent(slot, start, end);
        }
        ps_unlock(ps_stripe(number));
    }
    if (atomic_load(&slot->waiters) && reach >= atomic_load(&slot->wanted)) ps_wake(slot);
}

void ps_truncated(uint32_t number, uint64_t size) {
    number = ps_lock_slot(number);
    if (number == PS_NONE) return;
    struct ps_slot *slot = ps_slots + number;
    uint32_t flags = atomic_load(&slot->flags);
    bool shrinks = size < ps_high(slot);
    if (shrinks) ps_cut_extents(slot, size);
    uint64_t kept = ps_pages(size);
    bool room = kept < slot->charged && ps_set_room(slot, kept, slot->freed);
    ps_unlock(ps_stripe(number));
    if (room) ps_wake_held();
    if (flags & PS_COMMITTED)
        ps_violation(number, PS_WRITTEN_AFTER_COMMIT, size);
    else if (shrinks && (flags & PS_STREAMED))
        ps_violation(number, PS_REWRITTEN, size);
}

/* ---- what consumers have read ---------------------------------------------------------------------------------- */

#define OFFSET_MASK ((UINT64_C(1) << 48) - 1)

void ps_consumed(uint32_t number, uint32_t app, uint64_t offset) {
    number = ps_now(number);
    struct ps_slot *slot = ps_slots + number;
    uint64_t mine = (uint64_t)app << 48;
    if (!(atomic_load(&slot->consumers) >> app & 1u)) atomic_fetch_or(&slot->consumers, UINT64_C(1) << app);
    for (uint32_t i = 0; i < PS_CONSUMERS; i++) {
        uint64_t seen = atomic_load(&slot->consumed[i]);
        while (!seen || (seen & ~OFFSET_MASK) == mine) {
            if (seen && (seen & OFFSET_MASK) - 1 >= offset) return;
            if (atomic_compare_exchange_weak(&slot->consumed[i], &seen, mine | (offset + 1))) {
                if (atomic_load(&slot->flags) & PS_TEMPORARY_FILE) ps_note(PS_NOTE_CONSUMED, number, offset, 0);
                ps_wake(slot); /* writers that are too far ahead */
                return;
            }
        }
    }
    ps_set_flags(number, PS_READS_BACK, 0); /* more consumers than places: their slowest is unknown */
}

uint64_t ps_consumed_of(uint32_t number, uint32_t app) {
    struct ps_slot *slot = ps_slots + ps_now(number);
    for (uint32_t i = 0; i < PS_CONSUMERS; i++) {
        uint64_t seen = atomic_load(&slot->consumed[i]);
        if (seen && seen >> 48 == app) return (seen & OFFSET_MASK) - 1;
    }
    return 0;
}

uint64_t ps_consumed_by_all(uint32_t number) {
    struct ps_slot *slot = ps_slots + ps_now(number);
    uint64_t waited_for = atomic_load(&slot->consumers) & ~atomic_load(&ps->over), least = UINT64_MAX;
    if (atomic_load(&slot->flags) & PS_READS_BACK) return 0;
    for (uint32_t i = 0; i < PS_CONSUMERS; i++) {
        uint64_t seen = atomic_load(&slot->consumed[i]);
        uint64_t app = UINT64_C(1) << (seen >> 48);
        if (!seen || !(waited_for & app)) continue;
        waited_for &= ~app;
        if ((seen & OFFSET_MASK) - 1 < least) least = (seen & OFFSET_MASK) - 1;
    }
    if (waited_for) return 0; /* a consumer has not begun */
    return least == UINT64_MAX ? atomic_load(&slot->solid) : least;
}
