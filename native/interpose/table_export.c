/* The inline calls of table.h as symbols, for Python: only in libpenstock_table.so. */
#include "table_sys.h"

PS_API void psx_written(uint32_t slot, uint64_t start, uint64_t end);
PS_API void psx_seen(uint32_t slot, uint64_t start, uint64_t end);
PS_API int psx_wait_range(uint32_t slot, uint32_t app, uint64_t start, uint64_t end, int fd);
PS_API int psx_wait_committed(uint32_t slot, uint32_t app);
PS_API int psx_wait_room(uint32_t slot, uint32_t app, uint64_t start, uint64_t end);
PS_API uint64_t psx_awaited(uint32_t slot, uint32_t app);
PS_API uint64_t psx_awaited_where_it_is(uint32_t slot, uint32_t app);
PS_API bool psx_awaits_nobody(uint32_t slot, uint32_t app);
PS_API void psx_set_limit(uint64_t limit);
PS_API void psx_set_room(uint64_t room);
PS_API uint64_t psx_taken(void);
PS_API uint64_t psx_room(void);
PS_API void psx_set_unseen(uint32_t unseen_are);
PS_API void psx_set_view(uint64_t device, const struct ps_measure *measure);
PS_API void psx_lock_everything(void);
PS_API void psx_claim_record(void);
PS_API void psx_take_halfway(uint32_t slot, uint64_t bytes);

void psx_written(uint32_t slot, uint64_t start, uint64_t end) { ps_written(slot, start, end); }
void psx_seen(uint32_t slot, uint64_t start, uint64_t end) { ps_written_by(slot, start, end, false); } /* by others too */
int psx_wait_range(uint32_t slot, uint32_t app, uint64_t start, uint64_t end, int fd) {
    return ps_wait_range(slot, app, start, end, fd);
}
int psx_wait_committed(uint32_t slot, uint32_t app) { return ps_wait_committed(slot, app); }
int psx_wait_room(uint32_t slot, uint32_t app, uint64_t start, uint64_t end) { return ps_wait_room(slot, app, start, end); }
uint64_t psx_awaited(uint32_t slot, uint32_t app) { return ps_awaited(slot, app); }
uint64_t psx_awaited_where_it_is(uint32_t slot, uint32_t app) {
    return ps_awaited_where_it_is(ps_slot(ps_now(slot)), app);
}
bool psx_awaits_nobody(uint32_t slot, uint32_t app) { /* who has failed is over too, and was marked as failed before */
    uint64_t awaited = psx_awaited_where_it_is(slot, app);
    return !(awaited & ~atomic_load(&ps->over)) && !(awaited & atomic_load(&ps->failed));
}

/* What a program was at when it was killed, for tests of that. */
void psx_lock_everything(void) {
    ps_lock(&ps->mutex);
    ps_lock(&ps->extents_mutex);
    for (uint32_t i = 0; i < PS_STRIPES; i++) ps_lock(&ps->stripes[i]);
}
void psx_claim_record(void) { atomic_fetch_add(&ps->ring_tail, 1); }
void psx_take_halfway(uint32_t slot, uint64_t bytes) {
    ps_lock(ps_stripe(slot));
    atomic_fetch_add(&ps->taken, bytes);
}

void psx_set_limit(uint64_t limit) {
    atomic_store(&ps->limit, limit);
    psx_set_room(limit);
}
void psx_set_room(uint64_t room) {
    atomic_store(&ps->room, room);
    ps_wake_held();
}
uint64_t psx_taken(void) { return atomic_load(&ps->taken); }
uint64_t psx_room(void) { return atomic_load(&ps->room); }
void psx_set_unseen(uint32_t unseen_are) { atomic_store(&ps->unseen_are, unseen_are); }
void psx_set_view(uint64_t device, const struct ps_measure *measure) {
    ps->measure = *measure;
    atomic_store(&ps->device, device);
}
