#include "family.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
extern char **environ;

static void wait_for(pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    printf("ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

/* In a child by fork: runs the call and falls through if it fails. */
#define IN_CHILD(call)             \
    do {                           \
        puts(#call);               \
        fflush(stdout);            \
        pid_t pid = fork();        \
        if (!pid) {                \
            call;                  \
            _exit(66);             \
        }                          \
        wait_for(pid);             \
    } while (0)

int main(int argc, char **argv) {
    char *const echo[] = {"sh", "-c", "echo $0 $X >> out", NULL};
    char *const little[] = {"X=kept", "PATH=/bin:/usr/bin", NULL};
    char *const nothing[] = {NULL};
    if (argc > 1) return puts("again"), 0;
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    SHOW(write(fd, "begin\n", 6));
    IN_CHILD(write(fd, "child\n", 6); _exit(3));
    IN_CHILD(_Exit(4));
    IN_CHILD(quick_exit(5));
    IN_CHILD(execve("/bin/sh", echo, little));
    IN_CHILD(execv("/bin/sh", echo));
    IN_CHILD(execvp("sh", echo));
    IN_CHILD(execvpe("sh", echo, little));
    IN_CHILD(execl("/bin/sh", "sh", "-c", "echo l >> out", NULL));
    IN_CHILD(execlp("sh", "sh", "-c", "echo lp >> out", NULL));
    IN_CHILD(execle("/bin/sh", "sh", "-c", "echo le $X >> out", NULL, little));
    IN_CHILD(execve("/bin/sh", echo, nothing));
    IN_CHILD(execve("/none", echo, environ));
    IN_CHILD(fexecve(open("/bin/sh", O_RDONLY), echo, little));
    IN_CHILD(execveat(AT_FDCWD, "/bin/sh", echo, little, 0));
    IN_CHILD(raise(SIGKILL));
    pid_t pid = vfork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", "echo vfork >> out", NULL);
        _exit(1);
    }
    wait_for(pid);
    if (!(pid = _Fork())) _exit(7);
    wait_for(pid);
    SHOW(posix_spawn(&pid, "/bin/sh", NULL, NULL, echo, little)), wait_for(pid);
    SHOW(posix_spawnp(&pid, "sh", NULL, NULL, echo, nothing)), wait_for(pid);
    SHOW(posix_spawnp(&pid, "no-such-program", NULL, NULL, echo, environ));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out.spawn", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, fd, 2);
    char *const both[] = {"sh", "-c", "echo spawned; echo error >&2", NULL};
    SHOW(posix_spawn(NULL, "/bin/sh", &actions, NULL, both, environ)), wait_for(-1);
    show_file("out.spawn");
    SHOW(system("echo system >> out; exit 3")), SHOW(system(NULL) != 0), SHOW(system("kill -9 $$"));
    FILE *shell = popen("echo from the shell; cat out.spawn", "r");
    char line[64];
    while (fgets(line, sizeof line, shell)) printf("%s", line);
    SHOW(pclose(shell));
    shell = popen("cat > out.popen; exit 2", "w");
    fputs("to the shell\n", shell), SHOW(pclose(shell)), show_file("out.popen");
    SHOW(popen("true", "q") == NULL), SHOW(errno);
    SHOW(write(fd, "end\n", 4)), SHOW(close(fd));
    show_file("out");
    return 0;
}
