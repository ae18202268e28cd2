/* system and popen, as libc has them, over our own spawn: libc's would start the shell behind every symbol. */
#include "interpose.h"

#include <paths.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

/* ---- system: the caller ignores SIGINT and SIGQUIT and holds back SIGCHLD while the shell runs -------------------------- */

static pthread_mutex_t system_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned systems; /* shells that run; the first changes the dispositions, the last restores them */
static struct sigaction interrupt_before, quit_before;

static void ignore_signals(void) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    pthread_mutex_lock(&system_mutex);
    if (!systems++) {
        sigaction(SIGINT, &ignore, &interrupt_before);
        sigaction(SIGQUIT, &ignore, &quit_before);
    }
    pthread_mutex_unlock(&system_mutex);
}

static void restore_signals(void) {
    pthread_mutex_lock(&system_mutex);
    if (!--systems) {
        sigaction(SIGINT, &interrupt_before, NULL);
        sigaction(SIGQUIT, &quit_before, NULL);
    }
    pthread_mutex_unlock(&system_mutex);
}

static int spawn_shell(pid_t *pid, const char *command, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes) {
    char *const argv[] = {"sh", "-c", "--", (char *)command, NULL};
    return posix_spawn(pid, _PATH_BSHELL, actions, attributes, argv, environ);
}

static int run_shell(const char *command) {
    sigset_t held, before, defaults;
    posix_spawnattr_t attributes;
    pid_t pid;
    int status = 127 << 8;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    sigemptyset(&defaults);
    ignore_signals();
    pthread_sigmask(SIG_BLOCK, &held, &before);
    if (interrupt_before.sa_handler != SIG_IGN) sigaddset(&defaults, SIGINT);
    if (quit_before.sa_handler != SIG_IGN) sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &before);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int error = spawn_shell(&pid, command, NULL, &attributes);
    posix_spawnattr_destroy(&attributes);
    if (!error)
        while (waitpid(pid, &status, 0) < 0)
            if (errno != EINTR) {
                status = -1;
                break;
            }
    int kept = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    restore_signals();
    errno = error ? error : kept;
    return status;
}

PS_WRAPS int system(const char *command) { return command ? run_shell(command) : run_shell("exit 0") == 0; }

/* ---- popen ------------------------------------------------------------------------------------------------------------- */

static struct shell {
    FILE *file;
    pid_t pid;
    struct shell *next;
} *shells;
static pthread_mutex_t shells_mutex = PTHREAD_MUTEX_INITIALIZER;

PS_WRAPS FILE *popen(const char *command, const char *mode) {
    int ends[2];
    bool reads = mode[0] == 'r';
    struct shell *shell = NULL;
    posix_spawn_file_actions_t actions;
    if (!reads && mode[0] != 'w') return errno = EINVAL, NULL;
    if (pipe2(ends, O_CLOEXEC)) return NULL;
    int mine = ends[!reads], its = ends[reads];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, its, reads ? 1 : 0); /* onto itself: clears close-on-exec */
    FILE *file = REAL(fdopen)(mine, reads ? "r" : "w");
    if (file) shell = malloc(sizeof *shell);
    int error = shell ? spawn_shell(&shell->pid, command, &actions, NULL) : ENOMEM;
    posix_spawn_file_actions_destroy(&actions);
    REAL(close)(its);
    if (error) {
        free(shell);
        if (file) REAL(fclose)(file);
        else REAL(close)(mine);
        return errno = error, NULL;
    }
    bool ends_at_exec = false;
    for (const char *at = mode + 1; *at; at++) ends_at_exec |= *at == 'e';
    if (!ends_at_exec) REAL(fcntl)(mine, F_SETFD, 0);
    shell->file = file;
    pthread_mutex_lock(&shells_mutex);
    shell->next = shells;
    shells = shell;
    pthread_mutex_unlock(&shells_mutex);
    return file;
}

PS_WRAPS int pclose(FILE *file) {
    struct shell *shell = NULL;
    int status;
    pthread_mutex_lock(&shells_mutex);
    for (struct shell **at = &shells; *at; at = &(*at)->next)
        if ((*at)->file == file) {
            shell = *at;
            *at = shell->next;
            break;
        }
    pthread_mutex_unlock(&shells_mutex);
    if (!shell) return REAL(pclose)(file); /* opened before us, or none at all */
    pid_t pid = shell->pid;
    free(shell);
    REAL(fclose)(file);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return status;
}
