/* The table as the server reads it: slots, processes and waits, copied out one record at a time. */
#include "table_sys.h"

bool ps_slot_info(uint32_t slot, struct ps_info *out) {
    if (slot >= atomic_load(&ps->slots_used)) return false;
    struct ps_slot *s = ps_slots + slot;
    bool locked = ps_lock(ps_stripe(slot));
    uint64_t high = locked ? ps_high(s) : atomic_load(&s->solid);
    if (locked) ps_unlock(ps_stripe(slot));
    *out = (struct ps_info){
        .slot = slot,
        .flags = s->flags,
        .solid = s->solid,
        .high = high,
        .serial = s->serial,
        .producers = ps_producers(s),
        .makers = s->makers,
        .consumers = s->consumers,
        .consumed = ps_consumed_by_all(slot),
        .punched = s->punched,
        .born_ns = s->born_ns,
        .committed_ns = s->committed_ns,
        .closes = s->closes,
        .entries = s->entries,
        .waiters = s->waiters,
        .parent = s->parent,
        .moved_to = s->moved_to,
        .home = s->home,
        .n_extents = s->n_extents,
        .mark = s->mark,
        .writers = s->writers,
        .file = s->file,
        .directory = s->directory,
    };
    out->name = ps_name(slot, &out->name_bytes);
    return true;
}

uint32_t ps_iterate(uint32_t from, uint32_t set, uint32_t clear, struct ps_info *out, uint32_t most) {
    uint32_t count = 0;
    for (uint32_t slot = from; slot < atomic_load(&ps->slots_used) && count < most; slot++) {
        uint32_t flags = atomic_load(&ps_slots[slot].flags);
        if ((flags & set) == set && !(flags & clear) && ps_slot_info(slot, out + count)) count++;
    }
    return count;
}

static struct ps_process *process_at(uint32_t process) {
    return (struct ps_process *)((char *)ps + ps->processes_at) + process;
}

static uint32_t holdings_of(uint32_t process) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < PS_HELD; i++) held += process_at(process)->held[i] != 0;
    for (uint32_t link = process_at(process)->more; link;) {
        struct ps_block *block = (struct ps_block *)((char *)ps + ps->blocks_at) + (link - 1);
        for (uint32_t i = 0; i < PS_HELD; i++) held += block->held[i] != 0;
        link = block->next;
    }
    return held;
}

#define STARTING_NS 2000000000u

uint32_t ps_processes(uint32_t from, struct ps_process_info *out, uint32_t most) {
    uint32_t count = 0;
    for (uint32_t process = from; process < atomic_load(&ps->processes_used) && count < most; process++) {
        struct ps_process *p = process_at(process);
        uint32_t state = atomic_load(&p->state);
        char ignored;
        if (state == PS_FREE || state == PS_CLAIMED) continue;
        /* Its maker died before it told its pid. A child that outlives its maker says so itself, a moment later. */
        if (state == PS_STARTING && ps_clock() - p->since_ns > STARTING_NS && !ps_birth_of(-p->pid, &ignored)) {
            ps_process_reap(process);
            continue;
        }
        out[count++] = (struct ps_process_info){
            .process = process,
            .state = state,
            .pid = p->pid,
            .logic = p->logic,
            .birth = p->birth,
            .since_ns = p->since_ns,
            .app = p->app,
            .parent = p->parent,
            .holdings = holdings_of(process),
            .mark = p->mark,
        };
    }
    return count;
}

uint32_t ps_waits(struct ps_wait_info *out, uint32_t most) {
    uint32_t count = 0;
    for (uint32_t process = 0; process < atomic_load(&ps->processes_used); process++) {
        struct ps_process *p = process_at(process);
        if (atomic_load(&p->state) != PS_ALIVE) continue;
        for (uint32_t i = 0; i < PS_WAITS && count < most; i++) {
            uint32_t kind = atomic_load(&p->waits[i].kind);
            uint64_t since = atomic_load(&p->waits[i].since_ns);
            if (kind == PS_WAIT_NOTHING || kind == PS_WAIT_CLAIMED || !since) continue;
            out[count++] = (struct ps_wait_info){
                .process = process,
                .kind = kind,
                .slot = p->waits[i].slot,
                .app = p->app,
                .pid = p->pid,
                .start = p->waits[i].start,
                .end = p->waits[i].end,
                .since_ns = since,
            };
        }
    }
    return count;
}

void ps_let_go_on(uint32_t process, uint64_t since_ns) {
    struct ps_process *p = process_at(process);
    for (uint32_t i = 0; i < PS_WAITS; i++) {
        uint32_t slot = p->waits[i].slot;
        uint64_t since = since_ns;
        if (atomic_compare_exchange_strong(&p->waits[i].since_ns, &since, 0)) ps_wake(ps_slots + ps_now(slot));
    }
}
