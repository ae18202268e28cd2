/* The programs of the workflow on this node, and which files each of them may still write.
 *
 * A process holds one entry per open file description that may write. The server finds what a vanished process held
 * here. Order of steps: a writer is counted before its entry appears and the entry goes before the count does, so a
 * kill in between can only leave a count too high, which the end of the app heals.
 */
#include "table_sys.h"

static struct ps_process *process_at(uint32_t process) {
    return (struct ps_process *)((char *)ps + ps->processes_at) + process;
}
static struct ps_block *block_at(uint32_t block) { return (struct ps_block *)((char *)ps + ps->blocks_at) + block; }

/* The holding of that handle; NULL if there is none. `make`: add blocks as needed. */
static _Atomic uint64_t *holding_at(struct ps_process *process, uint32_t handle, bool make) {
    if (handle < PS_HELD) return &process->held[handle];
    _Atomic uint32_t *link = &process->more;
    for (;; handle -= PS_HELD) {
        if (!*link && make && ps_lock(&ps->mutex)) {
            if (!*link && ps->blocks_used < ps->n_blocks && ps_grow(PS_BLOCKS, (ps->blocks_used + 1) * sizeof(struct ps_block)))
                *link = ++ps->blocks_used; /* number + 1 */
            ps_unlock(&ps->mutex);
        }
        if (!*link) {
            if (make) ps_full(16);
            return NULL;
        }
        struct ps_block *block = block_at(*link - 1);
        if (handle < 2 * PS_HELD) return &block->held[handle - PS_HELD];
        link = &block->next;
    }
}

static uint32_t hold(uint32_t process, uint64_t value) {
    struct ps_process *p = process_at(process);
    for (uint32_t handle = 0;; handle++) {
        _Atomic uint64_t *place = holding_at(p, handle, true);
        uint64_t none = 0;
        if (!place) return PS_NONE;
        if (atomic_load_explicit(place, memory_order_relaxed) == 0 && atomic_compare_exchange_strong(place, &none, value))
            return handle;
    }
}

static void count_writer(uint32_t slot) {
    slot = ps_lock_slot(slot);
    if (slot == PS_NONE) return;
    ps_slots[slot].writers++;
    ps_unlock(ps_stripe(slot));
}

static uint32_t slot_of(uint64_t value) { return ((uint32_t)value & (PS_HELD_OWED - 1)) - 1; }

/* Lock the stripe of what is held there, and say what that is: another thread may close it meanwhile, and open another.
 * PS_NONE: nothing is (then `*value` is 0), or this thread has the lock already. */
static uint32_t lock_held(_Atomic uint64_t *place, uint64_t *value) {
    while ((*value = atomic_load(place))) {
        uint32_t slot = ps_lock_slot(slot_of(*value));
        if (slot == PS_NONE) return PS_NONE;
        uint64_t now = atomic_load(place);
        if (now >> 32 == *value >> 32 && slot_of(now) == slot_of(*value)) return slot;
        ps_unlock(ps_stripe(slot));
    }
    return PS_NONE;
}

/* Another process that has the same description; NULL: none. Under the slot's stripe, as is all that changes the answer. */
static _Atomic uint64_t *held_by_another(uint32_t handle, uint64_t value) {
    if (!(value & PS_HELD_SHARED)) return NULL;
    for (uint32_t process = 0; process < atomic_load(&ps->processes_used); process++) {
        _Atomic uint64_t *place = holding_at(process_at(process), handle, false);
        uint64_t other = place ? atomic_load(place) : 0;
        if (other && other >> 32 == value >> 32) return place;
    }
    return NULL;
}

/* `orderly`: by a close or an exit. One that was inherited, or found a file, and never written through is let go in order
 * in any case, and owes no close of its own. */
static void release(uint32_t handle, _Atomic uint64_t *place, bool orderly) {
    uint64_t value;
    uint32_t slot = lock_held(place, &value);
    if (!value) return;
    value = atomic_exchange(place, 0);
    if (slot == PS_NONE) return;
    bool idle = (value & (PS_HELD_INHERITED | PS_HELD_FOUND)) && !(value & PS_HELD_WRITTEN);
    bool owed = (value & PS_HELD_OWED) || (orderly && !idle);
    _Atomic uint64_t *another = held_by_another(handle, value);
    if (another && owed) atomic_fetch_or(another, PS_HELD_OWED);
    ps_let_go_locked(slot, orderly || idle, owed && !another && (orderly || idle));
}

static void release_all(uint32_t process, bool orderly) {
    struct ps_process *p = process_at(process);
    _Atomic uint64_t *place;
    for (uint32_t handle = 0; (place = holding_at(p, handle, false)); handle++) release(handle, place, orderly);
}

/* ---- writers --------------------------------------------------------------------------------------------------- */

static bool is_foreign(const struct ps_slot *s, uint32_t app) {
    return (atomic_load(&s->flags) & PS_DECLARED) && !(atomic_load(&s->producers) >> app & 1u);
}

/* The file is one of this run now. */
static void made_by(uint32_t slot, uint32_t app) {
    struct ps_slot *s = ps_slots + slot;
    ps_born(slot, app, PS_A_FILE);
    if (!is_foreign(s, app) && !(atomic_load(&s->producers) >> app & 1u))
        atomic_fetch_or(&s->producers, UINT64_C(1) << app);
}

uint32_t ps_writer_opened(uint32_t process, uint32_t slot, uint32_t app, unsigned how) {
    slot = ps_now(slot);
    struct ps_slot *s = ps_slots + slot;
    bool foreign = is_foreign(s, app);
    if (foreign && !(how & PS_OPENED_EMPTY)) return PS_NONE;
    if (!foreign) count_writer(slot);
    if (!(how & PS_OPENED_FOUND)) made_by(slot, app);
    if (how & PS_OPENED_EMPTY && (atomic_load(&s->solid) || (atomic_load(&s->flags) & PS_SPARSE))) ps_truncated(slot, 0);
    if (foreign) return PS_NONE;
    uint32_t found = how & PS_OPENED_FOUND ? PS_HELD_FOUND : 0;
    uint64_t description = (uint64_t)(atomic_fetch_add(&ps->openings, 1) + 1) << 32;
    uint32_t handle = process == PS_NONE ? PS_NONE : hold(process, description | (slot + 1) | found);
    if (handle == PS_NONE) ps_let_go(slot, false, false);
    return handle;
}

void ps_writer_wrote(uint32_t process, uint32_t holding, uint32_t slot, uint32_t app) {
    bool held = process != PS_NONE && holding != PS_NONE;
    _Atomic uint64_t *place = held ? holding_at(process_at(process), holding, false) : NULL;
    if (place && *place) atomic_fetch_or(place, PS_HELD_WRITTEN);
    slot = ps_now(slot);
    if (!(atomic_load(&ps_slots[slot].flags) & PS_REMOVED)) made_by(slot, app); /* else it has no name to be seen by */
}

void ps_writer_told(uint32_t process, uint32_t holding) {
    _Atomic uint64_t *place = holding_at(process_at(process), holding, false);
    uint64_t value = place ? atomic_load(place) : 0;
    if (!(value & PS_HELD_INHERITED)) return;
    atomic_fetch_or(place, PS_HELD_OWED);
    atomic_fetch_and(place, ~(uint64_t)PS_HELD_WRITTEN);
}

void ps_writer_closed(uint32_t process, uint32_t holding) {
    _Atomic uint64_t *place = holding == PS_NONE ? NULL : holding_at(process_at(process), holding, false);
    if (place) release(holding, place, true);
}

uint32_t ps_held_slot(uint32_t process, uint32_t holding) {
    _Atomic uint64_t *place = holding == PS_NONE ? NULL : holding_at(process_at(process), holding, false);
    uint64_t value = place ? atomic_load(place) : 0;
    return value ? slot_of(value) : PS_NONE;
}

/* ---- processes ------------------------------------------------------------------------------------------------- */

static uint32_t claim(void) {
    for (uint32_t process = 0; process < ps->n_processes; process++) {
        uint32_t state = PS_FREE;
        if (!ps_grow(PS_PROCESSES, (process + 1) * sizeof(struct ps_process))) break;
        if (atomic_load_explicit(&process_at(process)->state, memory_order_relaxed) != PS_FREE ||
            !atomic_compare_exchange_strong(&process_at(process)->state, &state, PS_CLAIMED))
            continue;
        uint32_t used = atomic_load(&ps->processes_used);
        while (used <= process && !atomic_compare_exchange_weak(&ps->processes_used, &used, process + 1)) {}
        return process;
    }
    ps_full(8);
    return PS_NONE;
}

static uint32_t fill(uint32_t app, int32_t logic, uint32_t parent, pid_t pid, uint64_t birth) {
    uint32_t process = claim();
    if (process == PS_NONE) return PS_NONE;
    struct ps_process *p = process_at(process);
    p->app = (uint16_t)app;
    p->logic = logic;
    p->parent = parent;
    p->since_ns = ps_clock();
    p->birth = birth;
    p->pid = pid;
    p->mark = 0;
    for (uint32_t i = 0; i < PS_WAITS; i++) p->waits[i].kind = PS_WAIT_NOTHING;
    return process;
}

static pid_t own_pid(void) { return (pid_t)ps_sys(SYS_getpid, 0, 0, 0, 0, 0, 0); }

static uint32_t process_with(uint32_t state, pid_t pid) {
    for (uint32_t process = 0; process < atomic_load(&ps->processes_used); process++)
        if (atomic_load(&process_at(process)->state) == state && process_at(process)->pid == pid) return process;
    return PS_NONE;
}

/* A slot that waits for a child of `maker` becomes that of `pid`: `process` if it is still free for that, else any other
 * (with several threads that spawn, a child that says hello before its parent has told its pid takes the first). */
static uint32_t take_starting(uint32_t process, pid_t maker, pid_t pid) {
    char ignored;
    uint64_t birth = ps_birth_of(pid, &ignored);
    if (!ps_lock(&ps->mutex)) return PS_NONE;
    uint32_t known = process_with(PS_ALIVE, pid);
    if (known != PS_NONE && process_at(known)->birth != birth) known = PS_NONE; /* an earlier process of that number */
    if (known == PS_NONE) {
        if (process == PS_NONE || process_at(process)->state != PS_STARTING) process = process_with(PS_STARTING, -maker);
        known = process;
        if (known != PS_NONE) {
            process_at(known)->pid = pid;
            process_at(known)->birth = birth;
            atomic_store(&process_at(known)->state, PS_ALIVE);
        }
    }
    ps_unlock(&ps->mutex);
    return known;
}

uint32_t ps_process_begin(uint32_t app, int32_t logic, bool *adopted) {
    char ignored;
    pid_t pid = own_pid(), maker = (pid_t)ps_sys(SYS_getppid, 0, 0, 0, 0, 0, 0);
    uint32_t process = take_starting(PS_NONE, maker, pid);
    *adopted = process != PS_NONE;
    if (!*adopted) process = fill(app, logic, PS_NONE, pid, ps_birth_of(pid, &ignored));
    ps_self = process;
    ps_self_app = app;
    if (process == PS_NONE) return PS_NONE;
    struct ps_process *p = process_at(process);
    bool known = *adopted && p->app == app;
    if (!known) atomic_fetch_add(&ps_apps[app].came, 1);
    p->app = (uint16_t)app; /* exec may go with another name of the app */
    p->logic = logic;
    for (uint32_t i = 0; i < PS_WAITS; i++) p->waits[i].kind = PS_WAIT_NOTHING;
    atomic_store(&p->state, PS_ALIVE);
    ps_note(PS_NOTE_HELLO, PS_NONE, process, (uint64_t)(logic + 1) | (uint64_t)known << 32);
    return process;
}

void ps_process_adopt(uint32_t process, const uint32_t *slots, uint32_t n, uint32_t *handles) {
    struct ps_process *p = process_at(process);
    _Atomic uint64_t *place;
    for (uint32_t i = 0; i < n; i++) handles[i] = PS_NONE;
    for (uint32_t handle = 0; (place = holding_at(p, handle, false)); handle++) {
        uint64_t value = atomic_load(place);
        uint32_t i = 0;
        if (!value) continue;
        while (i < n && (handles[i] != PS_NONE || ps_now(slots[i]) != ps_now(slot_of(value)))) i++;
        if (i < n)
            handles[i] = handle;
        else
            release(handle, place, true); /* closed by exec */
    }
    for (uint32_t i = 0; i < n; i++)
        if (handles[i] == PS_NONE) {
            count_writer(slots[i]);
            handles[i] = hold(process, (slots[i] + 1) | PS_HELD_INHERITED);
            if (handles[i] == PS_NONE) ps_let_go(slots[i], true, false);
        }
}

uint32_t ps_process_fork(uint32_t parent) {
    if (parent == PS_NONE) return PS_NONE;
    struct ps_process *p = process_at(parent);
    /* Until it has a pid of its own it carries its maker's, negative, so that nobody takes it for the child's. */
    uint32_t child = fill(p->app, p->logic, parent, -own_pid(), 0);
    if (child == PS_NONE) return PS_NONE;
    _Atomic uint64_t *place;
    for (uint32_t handle = 0; (place = holding_at(p, handle, false)); handle++) {
        uint64_t value;
        _Atomic uint64_t *copy = atomic_load(place) ? holding_at(process_at(child), handle, true) : NULL;
        uint32_t slot = copy ? lock_held(place, &value) : PS_NONE;
        if (slot == PS_NONE) continue;
        value = atomic_fetch_or(place, PS_HELD_SHARED);
        ps_slots[slot].writers++;
        atomic_store(copy, (value & ~(uint64_t)(PS_HELD_WRITTEN | PS_HELD_OWED)) | PS_HELD_INHERITED | PS_HELD_SHARED);
        ps_unlock(ps_stripe(slot));
    }
    atomic_store(&process_at(child)->state, PS_STARTING);
    return child;
}

void ps_process_became(uint32_t process) {
    pid_t pid = own_pid();
    ps_self = PS_NONE;
    if (process == PS_NONE) return;
    ps_self = take_starting(process, (pid_t)ps_sys(SYS_getppid, 0, 0, 0, 0, 0, 0), pid);
    if (ps_self != PS_NONE) ps_note(PS_NOTE_FORK, PS_NONE, ps_self, (uint64_t)pid);
}

void ps_process_started(uint32_t process, pid_t pid) {
    if (process == PS_NONE) return;
    process = take_starting(process, own_pid(), pid);
    if (process != PS_NONE) ps_note(PS_NOTE_FORK, PS_NONE, process, (uint64_t)pid);
}

void ps_process_forked(uint32_t process, pid_t pid) {
    if (process == PS_NONE || !ps_lock(&ps->mutex)) return;
    struct ps_process *p = process_at(process);
    char state = 'X';
    bool is_mute = p->state == PS_STARTING && p->pid == -own_pid();
    uint64_t birth = is_mute ? ps_birth_of(pid, &state) : 0;
    is_mute = birth && state != 'Z' && state != 'X'; /* if it has ended, the slot may be that of another child by now */
    if (is_mute) {
        p->pid = pid;
        p->birth = birth;
        atomic_store(&p->state, PS_ALIVE);
    }
    ps_unlock(&ps->mutex);
    if (is_mute) ps_note(PS_NOTE_FORK, PS_NONE, process, (uint64_t)pid);
}

uint32_t ps_process_take_over(uint32_t other) {
    struct ps_process *from = process_at(other);
    char ignored;
    pid_t pid = own_pid();
    uint32_t process = fill(from->app, from->logic, from->parent, pid, ps_birth_of(pid, &ignored));
    if (process == PS_NONE) return PS_NONE;
    _Atomic uint64_t *place;
    for (uint32_t handle = 0; (place = holding_at(from, handle, false)); handle++) {
        uint64_t value;
        _Atomic uint64_t *copy = atomic_load(place) ? holding_at(process_at(process), handle, true) : NULL;
        uint32_t slot = copy ? lock_held(place, &value) : PS_NONE;
        if (slot == PS_NONE) continue;
        atomic_store(copy, atomic_exchange(place, 0));
        ps_unlock(ps_stripe(slot));
    }
    ps_self = process;
    ps_self_app = from->app;
    atomic_store(&process_at(process)->state, PS_ALIVE);
    ps_note(PS_NOTE_FORK, PS_NONE, process, (uint64_t)pid);
    return process;
}

void ps_process_end(uint32_t process) {
    if (process == PS_NONE || atomic_load(&process_at(process)->state) == PS_ENDED) return;
    release_all(process, true);
    atomic_store(&process_at(process)->state, PS_ENDED);
    ps_note(PS_NOTE_BYE, PS_NONE, process, 0);
}

void ps_process_reap(uint32_t process) {
    if (process == PS_NONE) return;
    release_all(process, false);
    if (atomic_load(&ps->limit)) ps_recount_room();
    atomic_store(&process_at(process)->birth, 0);
    atomic_store(&process_at(process)->pid, 0);
    atomic_store(&process_at(process)->state, PS_FREE);
}
