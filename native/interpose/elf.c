/* What the file of a program or library says: whether the library can get into it, and which libraries the loader will
 * look for. The loader opens those itself, behind every wrapper, so they are awaited before it runs: each name where the
 * loader would look, in its order, as far as that is in the managed directory. */
#include "interpose.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <string.h>

#define NEXT 4          /* how deep libraries of libraries are followed */
#define LIST_ROOM 2048  /* of a list of directories */
#define NOTES 64        /* of a program that are looked at */
#define SEEN 64         /* objects whose libraries are not looked for twice */
#define PAGE 1024       /* what is read at a time */

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#else
#define OUR_MACHINE EM_AARCH64
#endif

struct object { /* one ELF file */
    int fd;
    Elf64_Ehdr head;
    uint64_t dynamic_at, n_dynamic;
    uint64_t strings_at;
    bool has_name;
    uint64_t rpath, runpath; /* in the strings; 0 = none */
    uint64_t page_at;
    long page_bytes;
    char page[PAGE];
};

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

/* At most PAGE bytes. Tables are read entry by entry. */
static bool get(struct object *o, void *to, size_t bytes, uint64_t at) {
    if (at > INT64_MAX - PAGE) return false;
    if (at < o->page_at || at + bytes > o->page_at + (uint64_t)o->page_bytes) {
        long got = PS_KERNEL(SYS_pread64, o->fd, o->page, PAGE, at, 0, 0);
        o->page_at = at;
        o->page_bytes = got < 0 ? 0 : got;
        if (got < (long)bytes) return false;
    }
    memcpy(to, o->page + (at - o->page_at), bytes);
    return true;
}

static bool get_text(const struct object *o, uint64_t at, char *room, size_t bytes) {
    long got = PS_KERNEL(SYS_pread64, o->fd, room, bytes - 1, o->strings_at + at, 0, 0);
    if (got <= 0) return false;
    room[got] = 0;
    return strlen(room) < bytes - 1;
}

static bool get_part(struct object *o, unsigned number, Elf64_Phdr *part) {
    return number < o->head.e_phnum &&
           get(o, part, sizeof *part, o->head.e_phoff + (uint64_t)number * o->head.e_phentsize);
}

static bool is_elf(struct object *o) {
    return get(o, &o->head, sizeof o->head, 0) && !memcmp(o->head.e_ident, ELFMAG, SELFMAG);
}

static bool is_for_this_machine(const struct object *o) {
    return o->head.e_ident[EI_CLASS] == ELFCLASS64 && o->head.e_machine == OUR_MACHINE &&
           o->head.e_phentsize == sizeof(Elf64_Phdr);
}

static uint64_t place_in_file(struct object *o, uint64_t address) {
    Elf64_Phdr part;
    for (unsigned i = 0; get_part(o, i, &part); i++)
        if (part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
            return part.p_offset + (address - part.p_vaddr);
    return 0;
}

static bool get_dynamic(struct object *o, uint64_t number, Elf64_Dyn *entry) {
    return number < o->n_dynamic && get(o, entry, sizeof *entry, o->dynamic_at + number * sizeof *entry) &&
           entry->d_tag != DT_NULL;
}

static void read_dynamic(struct object *o) {
    Elf64_Phdr part;
    Elf64_Dyn entry;
    uint64_t strings = 0;
    for (unsigned i = 0; get_part(o, i, &part); i++)
        if (part.p_type == PT_DYNAMIC) {
            o->dynamic_at = part.p_offset;
            o->n_dynamic = part.p_filesz / sizeof entry;
        }
    for (uint64_t i = 0; get_dynamic(o, i, &entry); i++) {
        if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
        if (entry.d_tag == DT_RPATH) o->rpath = entry.d_un.d_val;
        if (entry.d_tag == DT_RUNPATH) o->runpath = entry.d_un.d_val;
        if (entry.d_tag == DT_SONAME) o->has_name = true;
    }
    o->strings_at = place_in_file(o, strings);
}

/* ---- can the library get into it? -------------------------------------------------------------------------------------- */

/* Go's linker leaves a note of its own in every program. */
static bool has_go_note(struct object *o, const Elf64_Phdr *part) {
    struct {
        Elf64_Nhdr head;
        char owner[4];
    } note;
    uint64_t at = part->p_offset, end = at + part->p_filesz;
    for (int i = 0; i < NOTES && at + sizeof note <= end && get(o, &note, sizeof note, at); i++) {
        if (note.head.n_type == 4 && note.head.n_namesz == 4 && !memcmp(note.owner, "Go\0", 4)) return true;
        at += sizeof note.head + ((note.head.n_namesz + 3) & ~3u) + ((note.head.n_descsz + 3) & ~3u);
    }
    return false;
}

static bool loader_is_musl(struct object *o, const Elf64_Phdr *part) {
    char loader[256];
    size_t bytes = part->p_filesz < sizeof loader ? part->p_filesz : sizeof loader - 1;
    if (!get(o, loader, bytes, part->p_offset)) return false;
    loader[bytes] = 0;
    return strstr(loader, "musl") != NULL;
}

enum ps_unseen ps_elf_unseen(int fd) {
    struct object o = {.fd = fd};
    Elf64_Phdr part;
    bool has_loader = false;
    if (!is_elf(&o)) return PS_SEEN; /* exec refuses it, or a shell reads it */
    if (!is_for_this_machine(&o)) return PS_OTHER_MACHINE;
    for (unsigned i = 0; get_part(&o, i, &part); i++) {
        if (part.p_type == PT_NOTE && has_go_note(&o, &part)) return PS_GO;
        if (part.p_type != PT_INTERP) continue;
        if (loader_is_musl(&o, &part)) return PS_MUSL;
        has_loader = true;
    }
    if (has_loader) return PS_SEEN;
    read_dynamic(&o);
    return o.has_name ? PS_SEEN : PS_STATIC; /* a library that can be run is a loader, and takes ours along */
}

/* ---- the libraries that it needs ---------------------------------------------------------------------------------------- */

struct search { /* for one program, or one library that is loaded, and all that these need */
    const char *library_path; /* LD_LIBRARY_PATH; "" */
    bool leads_here;          /* it names a directory of ours: any object may need a library that is found there */
    unsigned n_seen;
    struct {
        dev_t device;
        ino_t number;
    } seen[SEEN];
};

struct loading { /* an object whose libraries are looked for, and the one that asked for it */
    const struct loading *by;
    struct search *search;
    int depth;
    const char *path;      /* of its file, absolute */
    char rpath[LIST_ROOM]; /* "" */
};

static int await_objects_of(const char *path, int fd, struct search *search, const struct loading *by);

/* Whether a list of directories names one of ours. An empty one is where the program stands. */
static bool leads_here(const char *list) {
    char directory[PATH_MAX], room[PS_PATH_ROOM];
    struct ps_path name;
    if (!*list) return false;
    for (;; list++) {
        size_t bytes = strcspn(list, ":;");
        if (bytes < sizeof directory) {
            memcpy(directory, list, bytes);
            strcpy(directory + bytes, bytes ? "" : ".");
            if (ps_managed(AT_FDCWD, directory, room, &name)) return true;
        }
        list += bytes;
        if (!*list) return false;
    }
}

static struct search search_in(const char *library_path) {
    return (struct search){.library_path = library_path, .leads_here = leads_here(library_path)};
}

/* Two libraries often need a third. */
static bool is_seen(struct search *search, int fd) {
    struct stat found;
    if (PS_KERNEL(SYS_fstat, fd, &found, 0, 0, 0, 0)) return false;
    for (unsigned i = 0; i < search->n_seen; i++)
        if (search->seen[i].device == found.st_dev && search->seen[i].number == found.st_ino) return true;
    if (search->n_seen == SEEN) return false;
    search->seen[search->n_seen].device = found.st_dev;
    search->seen[search->n_seen++].number = found.st_ino;
    return false;
}

/* Below a directory that `name` is looked for in: `$ORIGIN` stands for that of the object. False: it does not fit. */
static bool spell(const char *directory, size_t bytes, const char *origin, const char *name, char *room) {
    static const char *const words[] = {"$ORIGIN", "${ORIGIN}"};
    const char *slash = strrchr(origin, '/');
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        size_t word = strlen(words[i]);
        if (bytes < word || strncmp(directory, words[i], word) || !slash) continue;
        used = (size_t)(slash - origin);
        memcpy(room, origin, used);
        directory += word;
        bytes -= word;
        break;
    }
    if (used + bytes + strlen(name) + 3 > PATH_MAX) return false;
    memcpy(room + used, directory, bytes);
    used += bytes;
    if (!used) room[used++] = '.';
    room[used++] = '/';
    strcpy(room + used, name);
    return true;
}

/* The library is there once it may be: 0, or errno if it never will be. Its own are awaited too. */
static int await_object(const char *path, struct search *search, const struct loading *by, bool *there) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    struct ps_class found;
    uint32_t slot;
    bool ours = ps_managed(AT_FDCWD, path, room, &name);
    int error = ours ? ps_reach(&name, true, PS_NEED_COMMIT, &slot) : 0;
    if (error) return error;
    if (ours) ps_classify(name.name, name.bytes, &found);
    if (((!ours || found.excluded) && !search->leads_here) || (by && by->depth >= NEXT)) {
        *there = !PS_KERNEL(SYS_faccessat, AT_FDCWD, path, F_OK, 0, 0, 0);
        return 0;
    }
    int fd = (int)PS_KERNEL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    *there = fd >= 0;
    if (fd < 0) return 0;
    error = is_seen(search, fd) ? 0 : await_objects_of(path, fd, search, by);
    PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
    return error;
}

static int await_in(const char *list, const struct loading *l, const char *name, bool *there) {
    char candidate[PATH_MAX];
    if (!*list) return 0;
    for (;; list++) {
        size_t bytes = strcspn(list, ":;");
        int error = spell(list, bytes, l->path, name, candidate) ? await_object(candidate, l->search, l, there) : 0;
        list += bytes;
        if (error || *there || !*list) return error;
    }
}

/* In the loader's order: the RPATHs from the object upwards, unless it has a RUNPATH; LD_LIBRARY_PATH; its RUNPATH. */
static int await_named(const char *name, const struct loading *l, const char *runpath) {
    bool there = false;
    int error = 0;
    if (strchr(name, '/')) return await_object(name, l->search, l, &there);
    for (const struct loading *one = l; one && !*runpath && !error && !there; one = one->by)
        error = await_in(one->rpath, one, name, &there);
    if (!error && !there) error = await_in(l->search->library_path, l, name, &there);
    if (!error && !there) error = await_in(runpath, l, name, &there);
    return error;
}

static bool begin(struct object *o, struct loading *l, char *runpath) {
    runpath[0] = 0;
    if (!is_elf(o) || !is_for_this_machine(o)) return false;
    read_dynamic(o);
    if (!o->strings_at) return false;
    if (o->runpath && !get_text(o, o->runpath, runpath, LIST_ROOM)) runpath[0] = 0;
    if (o->rpath && !o->runpath && !get_text(o, o->rpath, l->rpath, LIST_ROOM)) l->rpath[0] = 0;
    return true;
}

static bool looks_anywhere(const struct loading *l, const char *runpath) {
    if (*runpath || *l->search->library_path) return true;
    for (; l; l = l->by)
        if (l->rpath[0]) return true;
    return false;
}

static int await_objects_of(const char *path, int fd, struct search *search, const struct loading *by) {
    struct object o = {.fd = fd};
    struct loading l = {.by = by, .search = search, .depth = by ? by->depth + 1 : 0, .path = path};
    char runpath[LIST_ROOM], name[NAME_MAX + 1];
    Elf64_Dyn entry;
    int error = 0;
    if (!begin(&o, &l, runpath)) return 0;
    bool looks = looks_anywhere(&l, runpath);
    for (uint64_t i = 0; !error && get_dynamic(&o, i, &entry); i++)
        if (entry.d_tag == DT_NEEDED && get_text(&o, entry.d_un.d_val, name, sizeof name) && (looks || strchr(name, '/')))
            error = await_named(name, &l, runpath);
    return error;
}

int ps_await_objects_of(const char *path, int fd, const char *library_path) {
    struct search search = search_in(library_path);
    return await_objects_of(path, fd, &search, NULL);
}

/* The file of the object that has this address in it. */
static bool file_of(void *address, char *room) {
    Dl_info found;
    if (!dladdr(address, &found) || !found.dli_fname) return false;
    const char *path = strchr(found.dli_fname, '/') ? found.dli_fname : "/proc/self/exe";
    long bytes = path == found.dli_fname ? -1 : PS_KERNEL(SYS_readlinkat, AT_FDCWD, path, room, PATH_MAX - 1, 0, 0);
    if (bytes > 0) return room[bytes] = 0, true;
    if (strlen(path) >= PATH_MAX) return false;
    strcpy(room, path);
    return true;
}

static bool begin_file(struct loading *l, char *runpath) {
    struct object o = {.fd = (int)PS_KERNEL(SYS_openat, AT_FDCWD, l->path, O_RDONLY | O_CLOEXEC, 0, 0, 0)};
    if (o.fd < 0) return false;
    bool begun = begin(&o, l, runpath);
    PS_KERNEL(SYS_close, o.fd, 0, 0, 0, 0, 0);
    return begun;
}

/* The RPATH of the program counts for whatever is loaded into it, unless who asks for it has a RUNPATH. */
int ps_await_library(const char *name, const char *library_path, void *caller) {
    char path[PATH_MAX], program[PATH_MAX], runpath[LIST_ROOM];
    bool there;
    struct search search = search_in(library_path);
    if (strchr(name, '/')) return await_object(name, &search, NULL, &there);
    if (!file_of(caller, path)) return 0;
    struct loading whole = {.search = &search, .path = program}, l = {.by = &whole, .search = &search, .path = path};
    long bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, sizeof program - 1, 0, 0);
    program[bytes > 0 ? bytes : 0] = 0;
    if (!begin_file(&whole, runpath)) whole.rpath[0] = 0;
    return begin_file(&l, runpath) ? await_named(name, &l, runpath) : 0;
}
