/* Before a program is executed: it is awaited as a file is that is read to its end, and so is all that the kernel and the
 * loader open for it, unseen by any wrapper: the interpreter in its first line, its libraries. One that no library can
 * get into is put under a supervisor (supervise.c). Where that does not work it sees files as they are: it is named once,
 * and held until the steps before its own are over, since then they are as batch order has them. Under --strict it is not
 * started. */
#include "interpose.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define SCRIPTS 5 /* as the kernel */
#define FIRST_LINE 256

int ps_await_program(int dirfd, const char *path, bool follow) {
    char room[PS_PATH_ROOM];
    struct ps_path name;
    uint32_t slot;
    if (!ps_managed(dirfd, path, room, &name)) return 0;
    int error = ps_reach(&name, follow, PS_NEED_BIRTH, &slot);
    if (error || slot == PS_NONE || !ps_awaited(slot, ps_self_app)) return error;
    if ((ps_flags_of(slot) & (PS_BORN | PS_DIRECTORY | PS_SYMLINK)) != PS_BORN) return 0; /* nobody makes a program of it */
    while ((error = ps_wait_executable(slot, ps_self_app)) == EINTR) {}
    return error;
}

/* The interpreter that a first line of this many bytes names, in place; NULL if it is no script. */
static char *interpreter(char *line, long bytes) {
    if (bytes < 3 || line[0] != '#' || line[1] != '!') return NULL;
    line[bytes] = 0;
    line[strcspn(line, "\n")] = 0;
    line += 2 + strspn(line + 2, " \t");
    line[strcspn(line, " \t")] = 0;
    return *line ? line : NULL;
}

/* ---- programs that the library cannot get into ---------------------------------------------------------------------------- */

/* The loader takes no library along into a program with more rights than its user. */
static bool has_more_rights(int fd) {
    struct stat found;
    char capabilities[64];
    if (REAL(fstat)(fd, &found) || PS_KERNEL(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) == 1) return false;
    if (found.st_mode & S_ISUID && found.st_uid != geteuid()) return true;
    if (found.st_mode & S_ISGID && found.st_mode & S_IXGRP && found.st_gid != getegid()) return true;
    return geteuid() && PS_KERNEL(SYS_fgetxattr, fd, "security.capability", capabilities, sizeof capabilities, 0, 0) > 0;
}

/* Static programs that need no supervisor. ldconfig, which Python asks where libraries are, reads no file of a workflow. A tool
 * of valgrind is what the program runs in, and that one has the library: the tool starts it with a loader. */
static bool is_harmless(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *folder = slash ? memrchr(path, '/', (size_t)(slash - path)) : NULL;
    if (folder && !strncmp(folder, "/valgrind/", (size_t)(slash + 1 - folder))) return true;
    return slash && (!strcmp(slash, "/ldconfig") || !strcmp(slash, "/ldconfig.real"));
}

static const char *why(enum ps_unseen unseen) {
    switch (unseen) {
        case PS_STATIC: return "is linked statically";
        case PS_GO: return "is a Go program, which calls the kernel itself";
        case PS_MUSL: return "is linked against musl";
        case PS_OTHER_MACHINE: return "is built for another machine";
        default: return "has more rights than its user (setuid, setgid, file capabilities)";
    }
}

/* The kernel takes rights away from a program that is supervised, and the filter does not know the calls of other machines. */
static int try_to_supervise(enum ps_unseen unseen, enum ps_way way) {
    char supervisor[PATH_MAX];
    if (unseen == PS_PRIVILEGED || unseen == PS_OTHER_MACHINE) return PS_NOT_SUPERVISED;
    if (way == PS_BY_SUPERVISED) return 0;
    if (way == PS_BY_EXEC) return ps_supervise();
    return ps_supervisor(supervisor) ? 0 : PS_NOT_SUPERVISED;
}

/* It has a slot under its absolute path, which no file of the workflow can have: by that it is named once in all. */
static int unseen_starts(int fd, enum ps_unseen unseen, enum ps_way way) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1, 0, 0);
    if (bytes <= 0) return 0;
    path[bytes] = 0;
    if (is_harmless(path)) return 0;
    int tried = try_to_supervise(unseen, way);
    if (tried != PS_NOT_SUPERVISED) return !tried && way == PS_BY_SPAWN ? PS_LAUNCH : tried;
    struct ps_quiet quiet;
    ps_quiet_begin(&quiet);
    uint32_t slot = ps_obtain(path, (size_t)bytes), unseen_are = atomic_load(&ps->unseen_are), app;
    bool first = slot != PS_NONE && !(atomic_fetch_or(&ps_slot(slot)->flags, PS_WARNED) & PS_WARNED);
    if (first) ps_note(PS_NOTE_VIOLATION, slot, PS_UNSEEN_PROGRAM, unseen);
    ps_quiet_end(&quiet);
    if (unseen_are == PS_UNSEEN_REFUSED) return EPERM;
    if (slot == PS_NONE) return 0;
    const char *name = ps_app_name(ps_self_app, &app);
    if (first && unseen_are == PS_UNSEEN_SAID)
        ps_say("penstock: %s, started by %.*s, %s: the library cannot get into it, and nobody sees what it reads and writes",
               path, (int)app, name, why(unseen));
    int error;
    while ((error = ps_wait_turn(slot, ps_self_app)) == EINTR) {}
    return error;
}

/* ---- before exec -------------------------------------------------------------------------------------------------------- */

static const char *library_path(char *const *environment) {
    static const char variable[] = "LD_LIBRARY_PATH=";
    for (; environment && *environment; environment++)
        if (!strncmp(*environment, variable, sizeof variable - 1)) return *environment + sizeof variable - 1;
    return "";
}

int ps_exec_before(const char *path, char *const *environment, enum ps_way way) {
    char line[FIRST_LINE + 1];
    for (int scripts = 0; scripts < SCRIPTS; scripts++) {
        int error = ps_await_program(AT_FDCWD, path, true);
        if (error) return error;
        int fd = (int)PS_KERNEL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
        if (fd == -EACCES) /* it may be run and not read: its rights can be seen all the same */
            fd = (int)PS_KERNEL(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0, 0, 0);
        if (fd < 0) return 0; /* exec says why */
        char *next = interpreter(line, PS_KERNEL(SYS_pread64, fd, line, FIRST_LINE, 0, 0, 0));
        if (!next) {
            enum ps_unseen unseen = has_more_rights(fd) ? PS_PRIVILEGED : ps_elf_unseen(fd);
            error = ps_await_objects_of(path, fd, library_path(environment));
            if (unseen && !error) error = unseen_starts(fd, unseen, way);
        }
        PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
        if (!next) return error;
        path = next;
    }
    return 0; /* exec says ELOOP */
}

/* Whether a search through PATH ends here. */
static bool can_be_run(const char *path) {
    struct stat found;
    return !PS_KERNEL(SYS_newfstatat, AT_FDCWD, path, &found, 0, 0, 0) && S_ISREG(found.st_mode) &&
           !PS_KERNEL(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS, 0, 0);
}

int ps_exec_before_search(const char *file, char *const *environment, enum ps_way way, char *found) {
    char candidate[PATH_MAX];
    size_t name = strlen(file);
    if (!name || strchr(file, '/')) return name ? ps_exec_before(file, environment, way) : 0;
    const char *list = getenv("PATH");
    if (!list) list = "/bin:/usr/bin";
    for (;;) {
        size_t bytes = strcspn(list, ":");
        if (bytes + name + 2 <= sizeof candidate) {
            memcpy(candidate, list, bytes);
            if (bytes) candidate[bytes++] = '/';
            memcpy(candidate + bytes, file, name + 1);
            int error = ps_await_program(AT_FDCWD, candidate, true);
            if (error) return error;
            if (can_be_run(candidate)) {
                if (found) strcpy(found, candidate);
                return ps_exec_before(candidate, environment, way);
            }
        }
        list += strcspn(list, ":");
        if (!*list++) return 0;
    }
}

int ps_exec_before_at(int dirfd, const char *path, int flags, char *const *environment) {
    char room[PATH_MAX], link[64];
    if (path[0] == '/' || (path[0] && dirfd == AT_FDCWD)) return ps_exec_before(path, environment, PS_BY_EXEC);
    if (!path[0] && !(flags & AT_EMPTY_PATH)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    long bytes = PS_KERNEL(SYS_readlinkat, AT_FDCWD, link, room, sizeof room - 1, 0, 0);
    size_t more = strlen(path);
    if (bytes <= 0 || (size_t)bytes + more + 2 > sizeof room) return 0;
    if (more) room[bytes++] = '/';
    memcpy(room + bytes, path, more + 1);
    return ps_exec_before(room, environment, PS_BY_EXEC);
}
