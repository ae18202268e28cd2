/* Processes: spawn, exec, vfork, the ways to end. Children stay interposed; what they inherit has its writer at every
 * moment (the parent registers the child before it exists). fork itself is in process.c. */
#include "interpose.h"

#include <alloca.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ENVIRONMENT(given) ps_environment_for_child(given, alloca(ps_environment_room(given)))

/* ---- fork's kin -------------------------------------------------------------------------------------------------------- */

/* A wrapper cannot return twice on one stack, as vfork does: it is a fork, which the standard allows. */
PS_WRAPS pid_t vfork(void) { return fork(); }

PS_WRAPS pid_t _Fork(void) {
    uint32_t child = ps_active() ? ps_child_before() : PS_NONE;
    pid_t pid = REAL(_Fork)();
    if (pid == 0 && ps_state == PS_ACTIVE) ps_child_is_me(child);
    if (pid && child != PS_NONE) ps_child_of_mine(child, pid);
    return pid;
}

PS_WRAPS int daemon(int keep_directory, int keep_streams) {
    pid_t pid = fork();
    if (pid < 0) return -1;
    if (pid) _exit(0);
    if (setsid() < 0) return -1;
    if (!keep_directory && chdir("/")) return -1;
    if (keep_streams) return 0;
    int null = open("/dev/null", O_RDWR);
    if (null < 0) return -1;
    for (int fd = 0; fd <= 2; fd++) dup2(null, fd);
    if (null > 2) close(null);
    return 0;
}

/* ---- spawn ------------------------------------------------------------------------------------------------------------- */

typedef int spawner(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                    char *const[], char *const[]);

/* The directory that file actions change to: from there a child looks for its program. Rare, so a list will do. */
static struct folder {
    const posix_spawn_file_actions_t *actions;
    struct folder *next;
    char path[PATH_MAX];
} *folders;
static pthread_mutex_t folders_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Where `path` leads if the actions are carried out first; false: they change nothing about that. */
static bool after_actions(const posix_spawn_file_actions_t *actions, const char *path, char *room) {
    struct folder *folder = NULL;
    if (PS_OFTEN(!folders) || !actions || path[0] == '/') return false;
    pthread_mutex_lock(&folders_mutex);
    for (folder = folders; folder && folder->actions != actions;) folder = folder->next;
    bool fits = folder && (size_t)snprintf(room, PATH_MAX, "%s/%s", folder->path, path) < PATH_MAX;
    pthread_mutex_unlock(&folders_mutex);
    return fits;
}

static void forget_actions(const posix_spawn_file_actions_t *actions) {
    struct folder *gone = NULL;
    pthread_mutex_lock(&folders_mutex);
    for (struct folder **at = &folders; *at; at = &(*at)->next)
        if ((*at)->actions == actions) {
            gone = *at;
            *at = gone->next;
            break;
        }
    pthread_mutex_unlock(&folders_mutex);
    free(gone);
}

static void changes_to(const posix_spawn_file_actions_t *actions, const char *path) {
    char room[PATH_MAX];
    struct folder *folder = calloc(1, sizeof *folder);
    if (after_actions(actions, path, room)) path = room;
    if (!folder || strlen(path) >= PATH_MAX) return free(folder);
    forget_actions(actions);
    strcpy(folder->path, path);
    folder->actions = actions;
    pthread_mutex_lock(&folders_mutex);
    folder->next = folders;
    folders = folder;
    pthread_mutex_unlock(&folders_mutex);
}

PS_WRAPS int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path) {
    int error = REAL(posix_spawn_file_actions_addchdir_np)(actions, path);
    if (!error && ps_active()) changes_to(actions, path);
    return error;
}

PS_WRAPS int posix_spawn_file_actions_addfchdir_np(posix_spawn_file_actions_t *actions, int fd) {
    char path[64];
    int error = REAL(posix_spawn_file_actions_addfchdir_np)(actions, fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!error && ps_active()) changes_to(actions, path);
    return error;
}

PS_WRAPS int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *actions) {
    if (PS_RARELY(folders != NULL)) forget_actions(actions);
    return REAL(posix_spawn_file_actions_destroy)(actions);
}

/* A program that is to be supervised is executed by one that has the library: only a process itself can put itself under
 * a supervisor, and libc leaves none of ours between its fork and its exec. */
static int spawn_launcher(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    char launcher[PATH_MAX];
    size_t n = 0;
    if (!ps_supervisor(launcher)) return EIO;
    while (argv && argv[n]) n++;
    char **words = alloca((n + 4) * sizeof *words);
    words[0] = launcher;
    words[1] = "launch";
    words[2] = (char *)path;
    for (size_t i = 0; i <= n; i++) words[3 + i] = argv ? argv[i] : NULL;
    return REAL(posix_spawn)(pid, launcher, actions, attributes, words, envp);
}

/* libc executes the program in the child, unseen: the wait is here. */
static int spawn(spawner *real, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    if (!ps_active() || !ps_is_path(path)) return real(pid, path, actions, attributes, argv, envp);
    pid_t started = 0;
    char room[PATH_MAX], found[PATH_MAX] = "";
    int kept = errno, error;
    if (real == REAL(posix_spawnp) && !strchr(path, '/')) error = ps_exec_before_search(path, envp, PS_BY_SPAWN, found);
    else error = ps_exec_before(after_actions(actions, path, room) ? room : path, envp, PS_BY_SPAWN);
    errno = kept;
    bool launches = error == PS_LAUNCH;
    if (error && !launches) return error;
    uint32_t child = ps_child_before();
    char *const *environment = ENVIRONMENT(envp);
    if (launches) error = spawn_launcher(&started, found[0] ? found : path, actions, attributes, argv, environment);
    else error = real(&started, path, actions, attributes, argv, environment);
    if (child != PS_NONE) {
        if (error) ps_process_reap(child);
        else ps_process_started(child, started);
    }
    if (!error && pid) *pid = started;
    return error;
}

PS_WRAPS int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return spawn(REAL(posix_spawn), pid, path, actions, attributes, argv, envp);
}

PS_WRAPS int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    return spawn(REAL(posix_spawnp), pid, file, actions, attributes, argv, envp);
}

/* libc opens the file in the child, unseen: the wait is here. The child recognises the descriptor at its start. */
PS_WRAPS int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions, int fd, const char *path, int flags,
                                              mode_t mode) {
    struct ps_open o;
    int error;
    while ((error = ps_open_before(&o, AT_FDCWD, path, flags)) == EINTR) {}
    if (!error && o.waits && (flags & O_ACCMODE) == O_RDONLY) error = ps_await_slot(o.slot, PS_NEED_BIRTH);
    return error ? error : REAL(posix_spawn_file_actions_addopen)(actions, fd, path, flags, mode);
}

/* ---- exec -------------------------------------------------------------------------------------------------------------- */

PS_WRAPS int execve(const char *path, char *const argv[], char *const envp[]) {
    int error = ps_active() && ps_is_path(path) ? ps_exec_before(path, envp, PS_BY_EXEC) : 0;
    if (error) return ps_fail(error);
    return REAL(execve)(path, argv, ENVIRONMENT(envp));
}
PS_WRAPS int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
PS_WRAPS int execvpe(const char *file, char *const argv[], char *const envp[]) {
    int error = ps_active() && ps_is_path(file) ? ps_exec_before_search(file, envp, PS_BY_EXEC, NULL) : 0;
    if (error) return ps_fail(error);
    return REAL(execvpe)(file, argv, ENVIRONMENT(envp));
}
PS_WRAPS int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }
PS_WRAPS int fexecve(int fd, char *const argv[], char *const envp[]) {
    int error = ps_active() ? ps_exec_before_at(fd, "", AT_EMPTY_PATH, envp) : 0;
    if (error) return ps_fail(error);
    return REAL(fexecve)(fd, argv, ENVIRONMENT(envp));
}
PS_WRAPS int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags) {
    int error = ps_active() && ps_is_path(path) ? ps_exec_before_at(dirfd, path, flags, envp) : 0;
    if (error) return ps_fail(error);
    return REAL(execveat)(dirfd, path, argv, ENVIRONMENT(envp), flags);
}

static size_t count_arguments(va_list rest) {
    size_t n = 1;
    while (va_arg(rest, char *)) n++;
    return n;
}

/* argv from the arguments of execl and its kin; `rest` is left after the NULL. */
#define ARGUMENTS(argv, first, rest)                                 \
    va_list counted;                                                 \
    va_start(counted, first);                                        \
    size_t n_arguments = count_arguments(counted);                   \
    va_end(counted);                                                 \
    char **argv = alloca((n_arguments + 1) * sizeof *argv);          \
    argv[0] = (char *)first;                                         \
    va_start(rest, first);                                           \
    for (size_t i = 1; i <= n_arguments; i++) argv[i] = va_arg(rest, char *)

PS_WRAPS int execl(const char *path, const char *first, ...) {
    va_list rest;
    ARGUMENTS(argv, first, rest);
    va_end(rest);
    return execve(path, argv, environ);
}

PS_WRAPS int execlp(const char *file, const char *first, ...) {
    va_list rest;
    ARGUMENTS(argv, first, rest);
    va_end(rest);
    return execvpe(file, argv, environ);
}

PS_WRAPS int execle(const char *path, const char *first, ...) {
    va_list rest;
    ARGUMENTS(argv, first, rest);
    char *const *envp = va_arg(rest, char *const *);
    va_end(rest);
    return execve(path, argv, envp);
}

/* ---- the ways to end --------------------------------------------------------------------------------------------------- */

PS_WRAPS void _exit(int status) {
    ps_goodbye();
    REAL(_exit)(status);
    __builtin_unreachable();
}

PS_WRAPS void _Exit(int status) {
    ps_goodbye();
    REAL(_Exit)(status);
    __builtin_unreachable();
}

PS_WRAPS void quick_exit(int status) {
    ps_goodbye();
    REAL(quick_exit)(status);
    __builtin_unreachable();
}
