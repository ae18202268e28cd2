/* The shared table of one workflow on one node: who made which file, how far it is written, what is committed.
 *
 * One sparse file on tmpfs, mapped by every interposed program and by the server:
 *
 *     header | roots | apps | rules | processes | holding blocks | buckets | slots | names | extents | ring
 *
 * A *slot* is one managed name. Names are relative to the managed directory and lexically normalised ("a/b", "." is
 * the directory itself). Slots, names and bucket chains are only ever added to, so lookups take no lock; inserts take
 * the table mutex, out-of-order writes one of 64 striped mutexes. All mutexes are robust: a killed holder is noticed.
 * Futex words are shared between processes. All integers are little-endian.
 *
 * Rules of use
 *   - Nothing here needs an allocator or a libc call that the interposer wraps; system calls are made directly.
 *   - Functions leave errno alone. `int` results of waits are 0 or an errno value.
 *   - Publish AFTER the real call: write(2), then ps_written(); open(2), then ps_born()/ps_writer_opened().
 *   - Wait BEFORE the real call: ps_wait_range(), then read(2).
 *   - A slot index stays valid for ever; when its file was renamed, calls on it act on the slot of the new name.
 */
#ifndef PENSTOCK_TABLE_H
#define PENSTOCK_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(PS_EXPORT) /* libpenstock_table.so: seen by ctypes */
#define PS_API __attribute__((visibility("default")))
#else
#define PS_API __attribute__((visibility("hidden")))
#endif

#define PS_MAGIC 0x3142545350ull /* "PSTB1" */
#define PS_VERSION 1u
#define PS_NONE 0xffffffffu /* no slot, no process, no holding */
#define PS_NAME_MAX 4095u   /* bytes of a managed name */
#define PS_APPS 64u         /* bits of a producers' mask */
#define PS_APP_OTHER 63u    /* programs that name no app, or one that the rules do not know */
#define PS_ROOTS 4u         /* spellings of the managed directory */
#define PS_CONSUMERS 8u     /* consuming apps per file whose position is kept */
#define PS_STRIPES 64u
enum ps_area { PS_PROCESSES, PS_BLOCKS, PS_SLOTS, PS_NAMES, PS_EXTENTS, PS_AREAS };
#define PS_NOTHING_WANTED UINT64_MAX

/* ---- rules blob ------------------------------------------------------------------------------------------------ */
/* Made by streaming/rules.py: compile() -> bytes, copied into the table, read by rules.c.
 *
 *     struct ps_rules_head, apps[n_apps], entries[n_entries], strings
 *
 * Offsets of strings count from the first byte of the strings. Patterns and names are bytes as the file system has
 * them (os.fsencode), normalised as names are, without NUL. In a pattern `*` stands for any run of characters, `/`
 * included, and `?` for exactly one; a character is a valid UTF-8 sequence or one byte that is part of none
 * (as os.fsdecode sees it). A match is of the whole name; lists that cover what lies below a directory have a second
 * entry for that.
 */
#define PS_RULES_MAGIC 0x55525350u /* "PSRU" */

enum ps_entry_kind {
    PS_OUTPUT = 1,    /* app may produce the name */
    PS_INPUT = 2,     /* app reads the name */
    PS_FILE_RULE = 3, /* commit, fire, n for files; the first match wins */
    PS_DIR_RULE = 4,  /* the same for directories; `app` also counts as a maker of the directory */
    PS_EXCLUDE = 5,
    PS_PERMANENT = 6,
    PS_TEMPORARY = 7,
};
enum ps_commit_kind { PS_ON_TERMINATION = 0, PS_ON_CLOSE = 1, PS_ON_FILE = 2, PS_N_FILES = 3 };
enum ps_fire_kind { PS_UPDATE = 0, PS_NO_UPDATE = 1 };
enum ps_app_flags { PS_APP_SIZES_SO_FAR = 1 };

struct ps_rules_head { /* 32 bytes */
    uint32_t magic, version, total_bytes, n_apps, n_entries, strings_bytes;
    uint32_t first_implied; /* rules with this serial or a larger one were not written by anybody; 0 = there are none */
    uint32_t reserved;
};
struct ps_rules_app { /* 24 bytes; index = app number, at most 63 apps */
    uint32_t name_at;
    uint16_t name_bytes, flags;
    uint32_t instances, reserved;
    uint64_t before; /* apps upstream of this one, through any number of files */
};
struct ps_rules_entry { /* 20 bytes */
    uint8_t kind, commit, fire, reserved;
    uint16_t app;    /* 0xffff: of no app (exclude, permanent, temporary) */
    uint16_t serial; /* number of the rule in the workflow file; reported, never interpreted */
    uint32_t n;      /* on_close:N, n_files:N; else 0 */
    uint32_t pattern_at;
    uint16_t pattern_bytes, reserved2;
};

struct ps_rule { /* 8 bytes; all zero but serial = the default on_termination/update */
    uint8_t commit, fire;
    uint16_t serial; /* 0xffff: no rule says so, it is the default */
    uint32_t n;
};

enum ps_lasting { PS_LASTS_UNSAID = 0, PS_LASTS = 1, PS_PASSES = 2 };

struct ps_class {
    bool excluded;        /* the kernel's business only; the rest is then empty */
    bool file_ruled;      /* a FILE_RULE matched */
    bool dir_ruled;       /* a DIR_RULE matched */
    uint8_t lasting;      /* enum ps_lasting; permanent wins over temporary */
    uint64_t producers;   /* apps with an OUTPUT that matches the name */
    uint64_t makers;      /* apps that may produce the directory of this name or anything below it (`produced_into`) */
    uint64_t consumers;   /* apps with an INPUT that matches the name */
    struct ps_rule file, directory;
    uint32_t file_entry, dir_entry; /* numbers of the entries that said so */
};

/* ---- layout ---------------------------------------------------------------------------------------------------- */

/* Why the library cannot get into a program, and what is done about such programs. */
enum ps_unseen { PS_SEEN = 0, PS_STATIC, PS_GO, PS_MUSL, PS_OTHER_MACHINE, PS_PRIVILEGED };
enum ps_unseen_are { PS_UNSEEN_SAID = 0 /* by the library, on stderr */, PS_UNSEEN_TOLD = 1 /* by the server */, PS_UNSEEN_REFUSED = 2 };

enum ps_server_state { PS_SERVER_STARTING = 0, PS_SERVER_RUNS = 1, PS_SERVER_STOPS = 2 };

struct ps_measure { /* what a directory has on the file system of the user's directory; measured by the server */
    uint64_t size, size_of_entry, size_of_letter; /* st_size: of an empty one, and what each entry and letter of a name adds */
    uint64_t blocks, block_bytes;
    uint64_t links, links_of_directory; /* links 0: not measured */
};

struct ps_header { /* 4 KiB; ps_create fills it */
    uint64_t magic;
    uint32_t version, layout;   /* PS_VERSION, PS_LAYOUT */
    uint64_t total_bytes;
    uint64_t started_ns;        /* CLOCK_REALTIME: files with mtime and ctime after it are of this run */
    uint64_t roots_at, apps_at, rules_at, processes_at, blocks_at, buckets_at, slots_at, names_at, extents_at, ring_at;
    uint64_t rules_bytes, index_at, names_bytes;
    uint32_t n_processes, n_blocks, n_buckets, n_slots, n_extents, n_ring; /* capacities; buckets and ring: powers of 2 */
    uint32_t n_roots, n_apps;
    char workflow[128];
    _Atomic uint64_t limit;     /* bytes a temporary file may take while it is streamed; 0 = no limit (room.c) */
    _Atomic uint64_t room;      /* bytes all of them may take: the limit, until that proves too little to go on */
    _Atomic uint64_t taken;     /* bytes they take */
    _Atomic uint32_t orphaned;  /* somebody was killed with a lock: `taken` is to be counted anew */

    _Alignas(64) _Atomic int32_t server_pid;
    _Atomic uint32_t server_state;
    _Atomic uint64_t server_birth; /* field 22 of /proc/pid/stat */
    _Atomic uint64_t over;      /* apps that ended, failed ones included */
    _Atomic uint64_t failed;    /* apps that ended badly */
    _Atomic uint32_t aborted;   /* 1: every wait returns EIO with abort_text */
    char abort_text[256];
    _Atomic uint32_t full;      /* bits: 1 slots, 2 names, 4 extents, 8 processes, 16 holding blocks; also if memory is */
    _Atomic uint32_t unseen_are; /* enum ps_unseen_are */
    _Atomic uint64_t device;    /* what the directory is on, where only the programs of the workflow see it so; else 0 */
    struct ps_measure measure;  /* for directories on that device */

    _Alignas(64) pthread_mutex_t mutex; /* inserts, links, renames, allocation of blocks */
    _Atomic uint32_t slots_used, blocks_used;
    _Atomic uint64_t names_used;
    _Atomic uint32_t processes_used; /* high-water mark */
    _Atomic uint64_t ready[PS_AREAS]; /* bytes of the growing areas that have memory; see ps_grow */
    _Atomic uint64_t births;    /* serial of the last birth */
    _Atomic uint32_t openings;  /* the last description's number */

    _Alignas(64) _Atomic uint64_t ring_tail; /* next record to be written */
    _Alignas(64) _Atomic uint64_t ring_head; /* next record to be read */
    _Atomic uint32_t overflowed;   /* records were lost: the server looks at all slots and processes */
    _Atomic uint32_t server_asleep; /* futex word: 1 while the server waits for a record */

    _Alignas(64) pthread_mutex_t extents_mutex; /* the pool of extents */
    uint32_t extents_free;      /* list of returned ones, PS_NONE ends it */
    _Atomic uint32_t extents_used;

    _Alignas(64) pthread_mutex_t stripes[PS_STRIPES]; /* a slot's extents: stripe slot % 64 */
};

struct ps_root { /* 4 KiB each; all spell the same directory, absolute, no slash at the end; [0] is the real one */
    uint32_t bytes;
    char path[4092];
};

enum ps_app_state { PS_APP_COMING = 0, PS_APP_RUNS = 1, PS_APP_OVER = 2, PS_APP_FAILED = 3 };

struct ps_app { /* 256 bytes x 64; the name is in the rules */
    _Atomic uint32_t state;
    _Atomic uint32_t came;      /* processes that ever began */
    uint32_t flags, instances;  /* enum ps_app_flags; of the rules */
    uint64_t before, after;     /* apps upstream and downstream */
    char how[224];              /* how it ended, in words; for the reader's line on stderr */
};

enum ps_slot_flags {
    PS_BORN = 1u << 0,       /* exists, made by this run */
    PS_COMMITTED = 1u << 1,  /* final: whoever waits for anything goes on */
    PS_DIRECTORY = 1u << 2,
    PS_SYMLINK = 1u << 3,
    PS_STREAMED = 1u << 4,   /* no_update file: ranges are readable before commit */
    PS_SPARSE = 1u << 5,     /* has extents beyond `solid` */
    PS_MAPPED = 1u << 6,     /* a writer holds a shared writable mapping: only commit counts */
    PS_READS_BACK = 1u << 7, /* a consumer went backwards: nothing is punched, no writer is held */
    PS_REMOVED = 1u << 8,    /* was there, of this run or an earlier one, and is gone */
    PS_MOVED = 1u << 9,      /* renamed: state lives in `moved_to` (ps_now) */
    PS_LINKED = 1u << 10,    /* in its parent's list of entries */
    PS_COUNTED = 1u << 11,   /* counted in its parent's `entries` */
    PS_PERMANENT_FILE = 1u << 12,
    PS_TEMPORARY_FILE = 1u << 13,
    PS_REMOTE = 1u << 14,    /* on another node: the server fetches it when somebody waits, or takes the mark away */
    PS_WARNED = 1u << 15,    /* a violation was noted */
    PS_DECLARED = 1u << 16,  /* the rules name producers of a file of this name */
    PS_FULL = 1u << 17,      /* extents were dropped for want of room: only commit counts */
    PS_DECLARED_DIRECTORY = 1u << 19, /* the rules name apps that make the directory or something in it */
    PS_JUDGED = 1u << 18,    /* for the server: rules.py has seen the name */
    PS_SHOWN = 1u << 20,     /* a listing has shown it before the directory was final */
};

struct ps_slot { /* 256 bytes */
    _Alignas(64) _Atomic uint32_t seq; /* futex word of everybody who waits for this file */
    _Atomic uint32_t flags;
    _Atomic uint64_t solid;      /* bytes [0, solid) are written */
    _Atomic uint64_t wanted;     /* smallest end anybody sleeps for; PS_NOTHING_WANTED */
    _Atomic uint32_t waiters;
    _Atomic uint32_t moved_to;
    _Atomic int32_t writers;     /* open descriptions of producers that may write */
    _Atomic uint32_t closes;
    _Atomic uint64_t producers;  /* apps; an undeclared writer's bit is added */
    _Atomic uint64_t makers;     /* apps that may make the directory or something in it */
    _Atomic uint64_t charged;    /* [freed, charged) is part of header.taken */

    _Alignas(64) uint64_t name_at;
    uint32_t name_bytes, hash;
    _Atomic uint32_t next_in_bucket; /* slot + 1; 0 ends the chain */
    _Atomic uint32_t parent;     /* PS_NONE for "." */
    struct ps_rule file, directory;
    _Atomic uint64_t consumers;  /* apps */
    uint64_t born_ns;            /* CLOCK_MONOTONIC */

    _Alignas(64) _Atomic uint32_t first_entry; /* directories: entries in order of birth */
    _Atomic uint32_t last_entry;
    _Atomic uint32_t next_entry; /* the sibling born next */
    _Atomic uint32_t entries;    /* directories: entries alive that this run produced */
    _Atomic uint64_t serial;     /* of birth, over the whole table; 0 = never born */
    _Atomic uint64_t punched;    /* [0, punched) is being given back; reading it is an error */
    _Atomic uint64_t freed;      /* [0, freed) takes no room any more */
    uint32_t extents;            /* sorted list beyond `solid`; under the stripe's mutex */
    uint32_t n_extents;
    _Atomic uint32_t home;       /* node number, several nodes */
    _Atomic uint32_t mark;       /* free for the server */
    uint64_t committed_ns;       /* CLOCK_MONOTONIC, 0 = not yet */

    _Alignas(64) _Atomic uint64_t consumed[PS_CONSUMERS]; /* app << 48 | (offset + 1), 0 = free */
};

struct ps_extent { /* 24 bytes, [start, end) written */
    uint64_t start, end;
    uint32_t next, reserved;
};

enum ps_process_state {
    PS_FREE = 0,
    PS_CLAIMED = 1,  /* being filled in */
    PS_STARTING = 2, /* made by ps_process_fork; the child has not run yet */
    PS_ALIVE = 3,
    PS_ENDED = 4,    /* it said goodbye; the server frees the slot */
};
enum ps_wait_kind {
    PS_WAIT_NOTHING = 0,
    PS_WAIT_BORN,
    PS_WAIT_RANGE,
    PS_WAIT_COMMITTED,
    PS_WAIT_ENTRY,
    PS_WAIT_ROOM,
    PS_WAIT_CLAIMED, /* a place being filled in */
    PS_WAIT_TURN,    /* for the steps before its own */
};
#define PS_WAITS 8u      /* waits of one process that status and watchdog can see */
#define PS_HELD 90u      /* holdings per block */

struct ps_waiting { /* 32 bytes */
    _Atomic uint32_t kind, slot;
    _Atomic uint64_t start, end, since_ns; /* since: CLOCK_MONOTONIC; 0: it was let go on (ps_let_go_on) */
};

struct ps_process { /* 1 KiB; the first block of holdings is inside */
    _Atomic uint32_t state;
    _Atomic int32_t pid;       /* STARTING: minus the pid of its maker; ps_processes frees it if that is gone */
    _Atomic uint64_t birth;    /* field 22 of /proc/pid/stat; 0 while STARTING */
    uint16_t app;
    uint16_t reserved;
    int32_t logic;             /* the 3 of "app:3"; -1 = none */
    uint32_t parent;           /* process slot, PS_NONE */
    _Atomic uint32_t more;     /* next block of holdings */
    uint64_t since_ns;
    _Atomic uint32_t mark;     /* free for the server (it watches the pid) */
    uint32_t reserved2;
    struct ps_waiting waits[PS_WAITS];
    _Atomic uint64_t held[PS_HELD]; /* description << 32 | PS_HELD_* | slot + 1; 0 = free */
};
/* Came by fork, or opened a file that was there: its close counts only once it was written through. */
#define PS_HELD_INHERITED 0x80000000u
#define PS_HELD_FOUND 0x40000000u
#define PS_HELD_WRITTEN 0x20000000u
/* Another process has, or had, the same description, under the same handle. One opening is one close: whoever closes it
 * leaves that to another who has it yet (OWED), and the last one counts. */
#define PS_HELD_SHARED 0x10000000u
#define PS_HELD_OWED 0x08000000u

struct ps_block { /* more holdings of a process with many files open */
    _Atomic uint32_t next;
    uint32_t reserved;
    _Atomic uint64_t held[PS_HELD];
};

/* Kinds of journal records. `a` and `b` by kind. */
enum ps_note_kind {
    PS_NOTE_HELLO = 1,    /* program began: a = process slot, b = logic id + 1, and bit 32 if the run knew the process */
    PS_NOTE_FORK,         /* a = process slot of the child, b = its pid (0 if not yet known) */
    PS_NOTE_BYE,          /* process says it ends: a = process slot */
    PS_NOTE_NEW,          /* slot made */
    PS_NOTE_BORN,         /* a = what, b = serial */
    PS_NOTE_OPENED,       /* first open for writing: a = process slot */
    PS_NOTE_CLOSED,       /* a counted close: a = closes so far, b = writers left */
    PS_NOTE_COMMITTED,    /* a = bytes written at the front */
    PS_NOTE_REMOVED,
    PS_NOTE_MOVED,        /* a = slot of the new name, b = 1: with its directory; before its birth there */
    PS_NOTE_VIOLATION,    /* a = enum ps_violation, b = offset */
    PS_NOTE_WAITING,      /* a wait went to sleep: a = enum ps_wait_kind, b = end wanted */
    PS_NOTE_WENT_ON,      /* and ended: a = kind, b = nanoseconds slept */
    PS_NOTE_CONSUMED,     /* a = offset */
    PS_NOTE_FULL,         /* a = the bit of header.full */
    PS_NOTE_SAYS,         /* free for the wrappers */
};
enum ps_violation {
    PS_FOREIGN_WRITER = 1, /* an app writes a file that others are declared to produce */
    PS_WRITTEN_AFTER_COMMIT,
    PS_REWRITTEN,          /* a no_update range was written twice, or truncated away */
    PS_REMOVED_ENTRY,      /* an entry of a no_update directory was removed */
    PS_READ_PUNCHED,       /* a reader came back to bytes that were given back */
    PS_RENAMED_ENTRY,      /* an entry of a no_update directory was renamed after a listing had shown it */
    PS_UNSEEN_PROGRAM,     /* one that the library cannot get into is started: slot = its absolute path, b = enum ps_unseen */
};

struct ps_record { /* 48 bytes; what ps_drain fills */
    uint8_t kind;
    uint8_t reserved;
    uint16_t app;
    int32_t pid;
    uint32_t slot;
    uint32_t process;
    uint64_t a, b, time_ns; /* CLOCK_MONOTONIC */
    uint64_t reserved2;
};
struct ps_cell { /* 64 bytes */
    _Atomic uint64_t turn; /* twice the lap: to be written; plus 1: to be read */
    struct ps_record record;
    uint64_t reserved;
};

/* Changes whenever a field moves: libraries of different builds do not share a table. */
#define PS_LAYOUT                                                                                               \
    ((uint32_t)(((((sizeof(struct ps_header) * 31 + offsetof(struct ps_header, limit)) * 31 +                   \
                   offsetof(struct ps_header, failed)) * 31 + offsetof(struct ps_header, births)) * 31 +        \
                 offsetof(struct ps_header, stripes)) * 31 + offsetof(struct ps_slot, consumers) +              \
                offsetof(struct ps_process, held) * 7))

_Static_assert(sizeof(struct ps_header) <= 8192, "header");
_Static_assert(sizeof(struct ps_slot) == 256, "slot");
_Static_assert(sizeof(struct ps_process) == 1024, "process");
_Static_assert(sizeof(struct ps_app) == 256, "app");
_Static_assert(sizeof(struct ps_cell) == 64, "cell");
_Static_assert(sizeof(struct ps_rules_entry) == 20 && sizeof(struct ps_rules_head) == 32 && sizeof(struct ps_rules_app) == 24, "rules");
_Static_assert(sizeof(pthread_mutex_t) <= 48, "mutex");

/* ---- attached table -------------------------------------------------------------------------------------------- */

extern struct ps_header *ps PS_API;       /* NULL while not attached */
extern struct ps_slot *ps_slots PS_API;
extern struct ps_app *ps_apps PS_API;
extern uint32_t ps_self PS_API;           /* process slot of this process, PS_NONE */
extern uint32_t ps_self_app PS_API;       /* app of this process */

struct ps_capacities { /* 0 = default */
    uint32_t slots, processes, blocks, extents, ring;
    uint64_t names_bytes;
};

/* Make the table file (it must not exist) and attach to it. Waits for the coarse clock to tick, at most 10 ms.
 * Returns 0 or an errno value. Server only. `roots`: n_roots NUL-terminated absolute paths, [0] real. */
PS_API int ps_create(const char *path, const char *workflow, const char *const *roots, uint32_t n_roots,
                     const struct ps_capacities *capacities, const void *rules, uint32_t rules_bytes, uint64_t limit);
PS_API int ps_attach(const char *path); /* keeps no descriptor; ENOENT, EINVAL = not a table of this version */
PS_API void ps_detach(void);
PS_API void ps_serve(uint32_t server_state); /* this process is the server; sets its pid and state */
PS_API bool ps_server_lives(void);

static inline struct ps_slot *ps_slot(uint32_t slot) { return ps_slots + slot; }
PS_API const char *ps_name(uint32_t slot, uint32_t *bytes); /* not NUL-terminated */
PS_API const struct ps_root *ps_root(uint32_t which);       /* NULL if there is no such spelling */

/* ---- rules (rules.c) ------------------------------------------------------------------------------------------- */

PS_API bool ps_rules_valid(const void *blob, uint32_t bytes);
PS_API bool ps_matches(const char *pattern, size_t pattern_bytes, const char *name, size_t name_bytes);
/* Whether some name below the directory `name` matches the pattern. */
PS_API bool ps_reaches(const char *pattern, size_t pattern_bytes, const char *name, size_t name_bytes);
PS_API void ps_classify(const char *name, size_t bytes, struct ps_class *out); /* makes no slot */
PS_API uint32_t ps_app_number(const char *name, size_t bytes); /* PS_APP_OTHER if the rules do not know it */
PS_API const char *ps_app_name(uint32_t app, uint32_t *bytes);

/* ---- slots (table.c) ------------------------------------------------------------------------------------------- */

PS_API uint32_t ps_lookup(const char *name, size_t bytes);  /* PS_NONE: no slot */
PS_API uint32_t ps_obtain(const char *name, size_t bytes);  /* made if need be; PS_NONE: table full or name too long.
                                                               Do not ask for excluded names. */
PS_API uint32_t ps_now(uint32_t slot);                      /* follows renames */

/* Apps whose end settles what becomes of the name: makers of a directory, producers of a file, both if not born. */
static inline uint64_t ps_producers(const struct ps_slot *slot) {
    uint32_t flags = atomic_load_explicit(&slot->flags, memory_order_acquire);
    uint64_t producers = atomic_load_explicit(&slot->producers, memory_order_relaxed);
    if (flags & PS_DIRECTORY) return atomic_load_explicit(&slot->makers, memory_order_relaxed);
    if (flags & PS_BORN) return producers;
    return producers | atomic_load_explicit(&slot->makers, memory_order_relaxed);
}
static inline bool ps_is_producer(uint32_t slot, uint32_t app) {
    return ps_producers(ps_slot(ps_now(slot))) >> app & 1u;
}

/* The apps whose end or commit `app` waits for at this name; 0 = it never waits. A reader that produces the name too
 * (it lists a directory into which it writes, or updates a file in place) waits only for the producers upstream of it;
 * any other reader for all but those downstream of it. What is on another node has to be fetched for everybody. */
static inline uint64_t ps_awaited_where_it_is(const struct ps_slot *slot, uint32_t app) {
    uint64_t producers = ps_producers(slot), self = UINT64_C(1) << app;
    return producers & self ? producers & ~self & ps_apps[app].before : producers & ~ps_apps[app].after;
}
static inline uint64_t ps_awaited_of(const struct ps_slot *slot, uint32_t app) {
    if (atomic_load_explicit(&slot->flags, memory_order_relaxed) & PS_REMOTE)
        return ps_producers(slot) | UINT64_C(1) << PS_APP_OTHER;
    return ps_awaited_where_it_is(slot, app);
}
static inline uint64_t ps_awaited(uint32_t slot, uint32_t app) { return ps_awaited_of(ps_slot(ps_now(slot)), app); }

/* ---- births, closes, ends (table_births.c, table_moves.c, table_processes.c) ----------------------------------------------------------------------------- */

enum ps_born_what { PS_A_FILE = 0, PS_A_DIRECTORY = 1, PS_A_SYMLINK = 2, PS_NOT_COUNTED = 4 /* existed before */ };

/* The name exists now, made by `app` (open with O_CREAT or for writing, mkdir, symlink, mknod, rename target…).
 * Links it into its parent's entries, counts it for n_files, and makes its parents born too. Doing it twice is free.
 * mkdir of a producer that finds the directory there: PS_A_DIRECTORY | PS_NOT_COUNTED. */
PS_API void ps_born(uint32_t slot, uint32_t app, unsigned what);
PS_API void ps_removed(uint32_t slot, uint32_t app);              /* unlink, rmdir */
/* After rename(2). Subtrees too. The target takes over what the source had; its own rule decides on its commit. */
PS_API void ps_renamed(const char *from, size_t from_bytes, const char *to, size_t to_bytes, uint32_t app);
PS_API void ps_linked(uint32_t from, uint32_t to, uint32_t app);  /* after link(2): `to` is born with the bytes of `from` */

/* One holding per open file description and process that may write; returns its handle, PS_NONE if `app` is no
 * producer (then nothing is counted; note PS_FOREIGN_WRITER at its first write) or there is no room.
 * If the file has no declared producer, `app` becomes one. Implies ps_born, unless the file was there and nothing of it
 * has changed yet: then ps_writer_wrote does, at the first write. */
enum ps_opening {
    PS_OPENED_EMPTY = 1, /* with O_TRUNC, or just created */
    PS_OPENED_FOUND = 2, /* was there, perhaps of an earlier run, and is as it was */
};
PS_API uint32_t ps_writer_opened(uint32_t process, uint32_t slot, uint32_t app, unsigned how);
/* Once per holding that was inherited or found a file, at its first write or truncation. */
PS_API void ps_writer_wrote(uint32_t process, uint32_t holding, uint32_t slot, uint32_t app);
/* What was written through an inherited one is complete, however this process ends: it is part of the description's close. */
PS_API void ps_writer_told(uint32_t process, uint32_t holding);
PS_API void ps_writer_closed(uint32_t process, uint32_t holding); /* the last duplicate in this process is gone */
PS_API uint32_t ps_held_slot(uint32_t process, uint32_t holding); /* PS_NONE if free */

/* Processes. begin: the process slot of this pid if it has one (exec), else a new one; `adopted` says which.
 * A spawned program may say begin before its maker has said started: both find the same slot.
 * After exec call ps_process_adopt with the slots of the inherited descriptions that may write (one per description):
 * holdings that are not in the list are closed, missing ones are added as inherited; handles[i] belongs to slots[i].
 *
 * fork, vfork, posix_spawn: child = ps_process_fork(parent) BEFORE the call (it holds all the parent holds, under the
 * same handles), then in the child of a fork ps_process_became(child), and in its parent, which may end before the child
 * runs, ps_process_forked(child, pid); or in the parent of a spawn ps_process_started(child, pid); ps_process_reap(child)
 * if the call failed. So no file is without its writer between. */
PS_API uint32_t ps_process_begin(uint32_t app, int32_t logic, bool *adopted); /* PS_NONE: no room */
PS_API void ps_process_adopt(uint32_t process, const uint32_t *slots, uint32_t n, uint32_t *handles);
PS_API uint32_t ps_process_fork(uint32_t parent);
PS_API void ps_process_became(uint32_t process);
PS_API void ps_process_forked(uint32_t process, pid_t pid);
PS_API void ps_process_started(uint32_t process, pid_t pid);
/* This process becomes one of the workflow in place of another, which lives on and holds nothing any more: its supervisor. */
PS_API uint32_t ps_process_take_over(uint32_t other);
PS_API void ps_process_end(uint32_t process);  /* at exit, by itself: its closes count, state ENDED */
/* By the server once the process is gone: frees the slot. What it still holds is let go without counting as closed. */
PS_API void ps_process_reap(uint32_t process);

/* ---- progress -------------------------------------------------------------------------------------------------- */

/* Extents, moved slots, sleepers. `known`: the range may have been published already, by the caller or by others. */
PS_API void ps_written_slowly(uint32_t slot, uint64_t start, uint64_t end, bool known);
PS_API void ps_truncated(uint32_t slot, uint64_t size);
PS_API void ps_consumed(uint32_t slot, uint32_t app, uint64_t offset);      /* app has read [0, offset); per 1 MiB
                                                                               and at end of file or close */

/* Bytes [start, end) are in the file. About 8 ns when they continue what is there and nobody sleeps. `ours`: no other
 * process can have published some of them already, so that what was published before is being rewritten. */
static inline void ps_written_by(uint32_t slot, uint64_t start, uint64_t end, bool ours) {
    struct ps_slot *s = ps_slot(slot);
    uint64_t solid = atomic_load_explicit(&s->solid, memory_order_relaxed);
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_relaxed);
    bool published = start == solid && end > start && !(flags & (PS_SPARSE | PS_MOVED | PS_COMMITTED)) &&
                     atomic_compare_exchange_strong(&s->solid, &solid, end); /* seq_cst: before the loads below */
    if (published && !atomic_load(&s->waiters) && !(atomic_load(&s->flags) & (PS_SPARSE | PS_MOVED))) return;
    if (end > start) ps_written_slowly(slot, start, end, published || !ours);
}
static inline void ps_written(uint32_t slot, uint64_t start, uint64_t end) { ps_written_by(slot, start, end, true); }

/* ---- waits (waits.c): 0, EINTR, or EIO with one line on stderr (a producer failed, the server is gone) ---------- */

PS_API int ps_wait_range_slowly(uint32_t slot, uint32_t app, uint64_t start, uint64_t end, int fd);
PS_API int ps_wait_committed_slowly(uint32_t slot, uint32_t app);
PS_API int ps_wait_room_slowly(uint32_t slot, uint32_t app, uint64_t start, uint64_t end);

/* Until the name is born or committed or nobody is left who could make it. Producers never wait. */
PS_API int ps_wait_born(uint32_t slot, uint32_t app);

/* Until a consumer may read [start, end): all written (no_update) or committed. `fd`: the reader's own descriptor, for
 * the kernel's witness; -1 = none. Then read(2) gives what batch gives. */
static inline int ps_wait_range(uint32_t slot, uint32_t app, uint64_t start, uint64_t end, int fd) {
    const struct ps_slot *s = ps_slot(slot);
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_acquire);
    if (!(flags & PS_MOVED) && start >= atomic_load_explicit(&s->punched, memory_order_relaxed)) {
        if (flags & PS_COMMITTED) return 0;
        if ((flags & PS_STREAMED) && end <= atomic_load_explicit(&s->solid, memory_order_acquire)) return 0;
    }
    return ps_wait_range_slowly(slot, app, start, end, fd);
}

static inline int ps_wait_committed(uint32_t slot, uint32_t app) {
    uint32_t flags = atomic_load_explicit(&ps_slot(slot)->flags, memory_order_acquire);
    return (flags & (PS_COMMITTED | PS_MOVED)) == PS_COMMITTED ? 0 : ps_wait_committed_slowly(slot, app);
}

/* A writer's turn to write [start, end): waits while that, with what has not been given back, would take more room than
 * header.limit, of this file or of all. The room is its own then, even if it does not write after all. Room comes back
 * in portions (PS_GRAIN, of what is read and of what is punched), so a write of up to a quarter of the limit, and a read
 * of up to a third of it, always find their turn. Larger ones: see ps_take_room, ps_piece. */
#define PS_GRAIN(limit) ((limit) / 8)
static inline int ps_wait_room(uint32_t slot, uint32_t app, uint64_t start, uint64_t end) {
    return atomic_load_explicit(&ps->limit, memory_order_relaxed) ? ps_wait_room_slowly(slot, app, start, end) : 0;
}

/* Until a program may be executed: committed, and executable unless its producers leave it otherwise. A linker, and
 * `echo … > script; chmod +x script`, make it so after their close. */
PS_API int ps_wait_executable(uint32_t slot, uint32_t app);
/* Until all steps upstream of `app` are over. `slot`: of the program that has to wait for that. */
PS_API int ps_wait_turn(uint32_t slot, uint32_t app);

/* The answer of a wait without waiting: 0, an errno value, or PS_WOULD_WAIT. Kinds BORN, RANGE, COMMITTED, ROOM. */
#define PS_WOULD_WAIT (-1)
PS_API int ps_ask(uint32_t kind, uint32_t slot, uint32_t app, uint64_t start, uint64_t end);

/* Directory listings. `*entry`: the entry delivered last, PS_NONE at first; on return the next one alive, or
 * PS_NONE if the directory is final and all were delivered: then list what the kernel shows besides, if ps_listable.
 * An `update` directory waits for its commit first and is plain then. Plain at once (PS_NONE) if `app` awaits nobody
 * there. Entries made by `app` itself or downstream of it are passed over: in batch order they come later. */
PS_API int ps_wait_entry(uint32_t directory, uint32_t app, uint32_t *entry);
/* The same without waiting: the entry born after `entry`, alive; PS_NONE if there is none yet. */
PS_API uint32_t ps_next_entry(uint32_t directory, uint32_t app, uint32_t entry);
/* Whether a listing by `app` shows the name: not if only apps downstream make it, nor if `app` itself made it since
 * births = the value of header.births when the directory was opened. For every name of every managed listing. */
PS_API bool ps_listable(uint32_t slot, uint32_t app, uint64_t births);
/* Whether a no_update directory shows the entry as it is born. One whose rule is only implied does if a rule covers the
 * entry: nobody has promised that other names stay, and programs write under such names what they rename later. */
PS_API bool ps_listed_early(uint32_t directory, uint32_t entry);
PS_API bool ps_show(uint32_t entry); /* a listing is about to show it; false: its name is gone by now */

/* ---- journal (journal.c) --------------------------------------------------------------------------------------- */

PS_API void ps_note(unsigned kind, uint32_t slot, uint64_t a, uint64_t b);
PS_API void ps_violation(uint32_t slot, unsigned what, uint64_t offset); /* noted once per slot */

/* Server side. The server sleeps in ps_wait_journal (a thread of its own; ctypes lets go of the interpreter): a client
 * that adds a record wakes it through the futex, no socket and no descriptor is involved. */
PS_API uint32_t ps_drain(struct ps_record *records, uint32_t most);
PS_API bool ps_overflowed(void);                 /* records were lost since the last call: look at everything */
PS_API bool ps_wait_journal(uint32_t milliseconds); /* true: there are records */
PS_API void ps_wake_server(void);                /* ends ps_wait_journal (own thread, at shutdown) */

/* ---- the server's decisions ------------------------------------------------------------------------------------ */

PS_API void ps_commit(uint32_t slot);
PS_API void ps_app_state(uint32_t app, uint32_t state); /* PS_APP_COMING, PS_APP_RUNS */
/* App ended: PS_APP_OVER or PS_APP_FAILED, `how` in words. Wakes whom it concerns; commits nothing by itself. */
PS_API void ps_app_over(uint32_t app, uint32_t state, const char *how);
PS_API void ps_abort(const char *text); /* every wait, now and later, ends with EIO and this line */
PS_API void ps_set_flags(uint32_t slot, uint32_t set, uint32_t clear); /* READS_BACK, JUDGED, REMOTE…; wakes sleepers */
/* Commit all that is born and whose producers are all over and none failed. Returns how many were committed. */
PS_API uint32_t ps_settle(void);
PS_API void ps_punched(uint32_t slot, uint64_t offset); /* call it BEFORE punching [0, offset) */
/* The same if [0, end) may be given back yet, for who has opened the file before; false: it may not, or is another file now. */
PS_API bool ps_give_back(uint32_t slot, uint64_t end);
PS_API void ps_freed(uint32_t slot, uint64_t offset);   /* and this AFTER it: writers get the room */
/* Where that offset may be: all readers are done with what is before it, whole pages of it; 0 if they are already free. */
PS_API uint64_t ps_spare(uint32_t slot);
PS_API uint32_t ps_next_spare(uint32_t from); /* the next slot that takes room with bytes that nobody needs; PS_NONE */
PS_API uint64_t ps_consumed_by_all(uint32_t slot);      /* every consumer has read [0, this) */
PS_API uint64_t ps_consumed_of(uint32_t slot, uint32_t app);

struct ps_info { /* one slot, as ctypes and status read it */
    uint32_t slot, flags;
    uint64_t solid, high, serial, producers, makers, consumers, consumed, punched, born_ns, committed_ns;
    uint32_t closes, entries, waiters, parent, moved_to, home, n_extents, mark;
    int32_t writers;
    uint32_t name_bytes;
    struct ps_rule file, directory;
    const char *name; /* in the table */
};
PS_API bool ps_slot_info(uint32_t slot, struct ps_info *out);
/* Slots in order of their making, from `from` on: those with all bits of `set` and none of `clear`. */
PS_API uint32_t ps_iterate(uint32_t from, uint32_t set, uint32_t clear, struct ps_info *out, uint32_t most);

struct ps_process_info {
    uint32_t process, state;
    int32_t pid, logic;
    uint64_t birth, since_ns;
    uint32_t app, parent, holdings, mark;
};
PS_API uint32_t ps_processes(uint32_t from, struct ps_process_info *out, uint32_t most); /* those in use */

struct ps_wait_info {
    uint32_t process, kind, slot, app;
    int32_t pid;
    uint32_t reserved;
    uint64_t start, end, since_ns;
};
PS_API uint32_t ps_waits(struct ps_wait_info *out, uint32_t most); /* who sleeps for what, now */
/* The wait of a process that began then is over, whatever the slot says. Nothing if that wait has ended: another one began
 * at another time. */
PS_API void ps_let_go_on(uint32_t process, uint64_t since_ns);

#endif
