/* The journal: a ring of records from all programs to the server.
 *
 * A writer claims a place at the tail, fills it and marks it as written. It never waits: when the ring is full it drops
 * the record and says so in `overflowed`, and the server looks at all slots and processes instead. A writer killed
 * between claim and mark leaves a gap, which the server passes over after a moment, as an overflow.
 */
#include "table_sys.h"

#include <string.h>
#include <unistd.h>

#define GAP_NS 100000000u /* how long a claimed place may stay empty */

static struct ps_cell *cell_at(uint64_t place) {
    return (struct ps_cell *)((char *)ps + ps->ring_at) + (place & (ps->n_ring - 1));
}
static uint64_t lap_of(uint64_t place) { return place / ps->n_ring * 2; }

static void wake_server(void) {
    if (atomic_load(&ps->server_asleep) && atomic_exchange(&ps->server_asleep, 0)) ps_futex_wake(&ps->server_asleep);
}

static int32_t own_pid(void) {
    if (ps_self == PS_NONE) return (int32_t)ps_sys(SYS_getpid, 0, 0, 0, 0, 0, 0);
    return ((struct ps_process *)((char *)ps + ps->processes_at))[ps_self].pid;
}

void ps_note(unsigned kind, uint32_t slot, uint64_t a, uint64_t b) {
    uint64_t place = atomic_load_explicit(&ps->ring_tail, memory_order_relaxed);
    do {
        if (place - atomic_load_explicit(&ps->ring_head, memory_order_acquire) >= ps->n_ring) {
            atomic_store(&ps->overflowed, 1);
            wake_server();
            return;
        }
    } while (!atomic_compare_exchange_weak(&ps->ring_tail, &place, place + 1));
    struct ps_cell *cell = cell_at(place);
    cell->record = (struct ps_record){
        .kind = (uint8_t)kind,
        .app = (uint16_t)ps_self_app,
        .pid = own_pid(),
        .slot = slot,
        .process = ps_self,
        .a = a,
        .b = b,
        .time_ns = ps_clock(),
    };
    uint64_t turn = lap_of(place);
    if (!atomic_compare_exchange_strong(&cell->turn, &turn, turn + 1)) atomic_store(&ps->overflowed, 1);
    wake_server();
}

void ps_violation(uint32_t slot, unsigned what, uint64_t offset) {
    if (!(atomic_fetch_or(&ps_slots[slot].flags, PS_WARNED) & PS_WARNED)) ps_note(PS_NOTE_VIOLATION, slot, what, offset);
}

/* Whether the gap at `place` is old enough to be passed over. One server, one drain at a time. */
static bool gap_is_old(uint64_t place) {
    static uint64_t gap = UINT64_MAX, since;
    if (gap != place) {
        gap = place;
        since = ps_clock();
    }
    return ps_clock() - since > GAP_NS;
}

uint32_t ps_drain(struct ps_record *records, uint32_t most) {
    uint32_t count = 0;
    uint64_t place = ps->ring_head;
    for (; count < most && place != atomic_load(&ps->ring_tail); place++) {
        struct ps_cell *cell = cell_at(place);
        uint64_t lap = lap_of(place), turn = atomic_load(&cell->turn);
        if (turn == lap + 1) {
            records[count++] = cell->record;
            atomic_store(&cell->turn, lap + 2);
        } else if (gap_is_old(place)) {
            if (!atomic_compare_exchange_strong(&cell->turn, &turn, lap + 2)) break; /* it came after all */
            atomic_store(&ps->overflowed, 1);
        } else {
            break;
        }
        atomic_store_explicit(&ps->ring_head, place + 1, memory_order_release);
    }
    return count;
}

bool ps_overflowed(void) { return atomic_exchange(&ps->overflowed, 0); }

static bool record_is_there(void) {
    uint64_t place = ps->ring_head;
    if (atomic_load(&ps->overflowed)) return true;
    return place != atomic_load(&ps->ring_tail) && atomic_load(&cell_at(place)->turn) == lap_of(place) + 1;
}

bool ps_wait_journal(uint32_t milliseconds) {
    uint64_t limit = (uint64_t)milliseconds * 1000000u;
    bool gap = ps->ring_head != atomic_load(&ps->ring_tail);
    if (record_is_there()) return true;
    if (gap && limit > GAP_NS) limit = GAP_NS;
    atomic_store(&ps->server_asleep, 1);
    if (!record_is_there() && milliseconds) ps_futex_wait(&ps->server_asleep, 1, limit);
    atomic_store(&ps->server_asleep, 0);
    return record_is_there() || gap;
}

void ps_wake_server(void) {
    atomic_store(&ps->server_asleep, 0);
    ps_futex_wake(&ps->server_asleep);
}
