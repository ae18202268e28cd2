/* Does what its arguments say, one after the other, and prints what came of it. Built statically, or against musl, it is a
 * program that no library can get into; built as usual it is one like any other. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int kept = -1;

static void say(const char *request, const char *text) {
    char line[8192];
    int bytes = snprintf(line, sizeof line, "%s -> %s\n", request, text);
    if (write(1, line, (size_t)bytes) != bytes) _exit(9);
}

static const char *outcome(long result) {
    static __thread char text[64];
    if (result < 0) snprintf(text, sizeof text, "error %d", errno);
    else snprintf(text, sizeof text, "done");
    return text;
}

static const char *content(const char *path) { /* NULL: of the standard input */
    static __thread char text[4096];
    int fd = path ? open(path, O_RDONLY) : 0;
    if (fd < 0) return outcome(-1);
    size_t used = 0;
    for (ssize_t got; used < sizeof text - 1 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
    text[used] = 0;
    close(fd);
    return text;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static const char *entries(const char *path) {
    static char text[4096];
    char *names[256];
    int n = 0;
    DIR *directory = opendir(path);
    if (!directory) return outcome(-1);
    for (struct dirent *entry; n < 256 && (entry = readdir(directory));)
        if (entry->d_name[0] != '.') names[n++] = strdup(entry->d_name);
    closedir(directory);
    qsort(names, (size_t)n, sizeof *names, by_name);
    text[0] = 0;
    for (int i = 0; i < n; i++) strcat(strcat(text, names[i]), " ");
    return text;
}

static const char *about(const char *path, int flags) {
    static char text[64];
    struct stat found;
    if (fstatat(AT_FDCWD, path, &found, flags)) return outcome(-1);
    snprintf(text, sizeof text, "%o %ld", (unsigned)found.st_mode, S_ISREG(found.st_mode) ? (long)found.st_size : 0L);
    return text;
}

static int put(const char *path, int flags, const char *words) {
    int fd = open(path, flags, 0666);
    if (fd >= 0 && write(fd, words, strlen(words)) < 0) _exit(9);
    return fd;
}

/* A line on the standard input is the sign to go on; so is its end. */
static void await_sign(void) {
    char byte = 0;
    while (read(0, &byte, 1) == 1 && byte != '\n') {}
}

static void *read_it(void *path) {
    const char *text = content(path);
    say(path, text);
    return NULL;
}

static char *word(char **rest) {
    char *found = strsep(rest, ",");
    return found ? found : "";
}

static void handle(char *request, char **argv) {
    char copy[4096], *rest = copy;
    strcpy(copy, request);
    const char *what = strsep(&rest, ":"), *a = word(&rest), *b = word(&rest);
    int create = O_WRONLY | O_CREAT;
    if (!strcmp(what, "read")) say(request, content(a));
    else if (!strcmp(what, "input")) say(request, content(NULL));
    else if (!strcmp(what, "stat")) say(request, about(a, 0));
    else if (!strcmp(what, "lstat")) say(request, about(a, AT_SYMLINK_NOFOLLOW));
    else if (!strcmp(what, "access")) say(request, outcome(access(a, R_OK)));
    else if (!strcmp(what, "chmod")) say(request, outcome(chmod(a, (mode_t)strtol(b, NULL, 8))));
    else if (!strcmp(what, "chown")) say(request, outcome(lchown(a, getuid(), getgid())));
    else if (!strcmp(what, "touch")) say(request, outcome(utimensat(AT_FDCWD, a, NULL, 0)));
    else if (!strcmp(what, "setxattr")) say(request, outcome(setxattr(a, "user.a", b, strlen(b), 0)));
    else if (!strcmp(what, "getxattr")) say(request, outcome((int)getxattr(a, b, NULL, 0)));
    else if (!strcmp(what, "listxattr")) say(request, outcome((int)llistxattr(a, NULL, 0)));
    else if (!strcmp(what, "statfs")) say(request, outcome(statfs(a, &(struct statfs){0})));
    else if (!strcmp(what, "watch")) say(request, outcome(inotify_add_watch(inotify_init(), a, IN_MODIFY)));
    else if (!strcmp(what, "mknod")) say(request, outcome(mknod(a, (mode_t)strtol(b, NULL, 8), 0)));
    else if (!strcmp(what, "list")) say(request, entries(a));
    else if (!strcmp(what, "write")) say(request, outcome(close(put(a, create | O_TRUNC, b))));
    else if (!strcmp(what, "copy")) say(request, outcome(close(put(b, create | O_TRUNC, content(a)))));
    else if (!strcmp(what, "add")) say(request, outcome(close(put(a, create | O_APPEND, b))));
    else if (!strcmp(what, "over")) say(request, outcome(close(put(a, O_RDWR, b))));
    else if (!strcmp(what, "new")) say(request, outcome(put(a, create | O_EXCL, b)));
    else if (!strcmp(what, "keep")) say(request, outcome(kept = put(a, create | O_TRUNC, b)));
    else if (!strcmp(what, "more")) say(request, outcome(write(kept, a, strlen(a))));
    else if (!strcmp(what, "close")) say(request, outcome(close(kept)));
    else if (!strcmp(what, "look")) say(request, outcome(close(open(a, O_RDWR))));
    else if (!strcmp(what, "rename")) say(request, outcome(rename(a, b)));
    else if (!strcmp(what, "unlink")) say(request, outcome(unlink(a)));
    else if (!strcmp(what, "rmdir")) say(request, outcome(rmdir(a)));
    else if (!strcmp(what, "mkdir")) say(request, outcome(mkdir(a, 0777)));
    else if (!strcmp(what, "link")) say(request, outcome(link(a, b)));
    else if (!strcmp(what, "symlink")) say(request, outcome(symlink(a, b)));
    else if (!strcmp(what, "truncate")) say(request, outcome(truncate(a, atol(b))));
    else if (!strcmp(what, "nameless")) {
        char path[64];
        kept = open(a, O_TMPFILE | O_WRONLY, 0644);
        if (kept >= 0 && write(kept, "nameless", 8) != 8) _exit(9);
        snprintf(path, sizeof path, "/proc/self/fd/%d", kept);
        say(request, outcome(linkat(AT_FDCWD, path, AT_FDCWD, b, AT_SYMLINK_FOLLOW)));
    } else if (!strcmp(what, "umask")) umask((mode_t)strtol(a, NULL, 8));
    else if (!strcmp(what, "chdir")) say(request, outcome(chdir(a)));
    else if (!strcmp(what, "children")) say(request, outcome(waitpid(-1, NULL, 0)));
    else if (!strcmp(what, "group")) say(request, getpgrp() == getpgid(getppid()) ? "its parent's" : "its own");
    else if (!strcmp(what, "descriptor")) {
        int fd = open(a, create, 0666), next = dup(fd);
        char text[64];
        snprintf(text, sizeof text, "%d then %d, cloexec %d", fd, next, fcntl(fd, F_GETFD));
        say(request, text);
        close(fd), close(next);
    } else if (!strcmp(what, "uring")) say(request, outcome(syscall(SYS_io_uring_setup, 1, NULL)));
    else if (!strcmp(what, "sign")) say(request, "waits"), await_sign();
    else if (!strcmp(what, "threads")) {
        pthread_t one, other;
        pthread_create(&one, NULL, read_it, (void *)strdup(a));
        pthread_create(&other, NULL, read_it, (void *)strdup(b));
        pthread_join(other, NULL);
        pthread_join(one, NULL);
    } else if (!strcmp(what, "fork")) { /* the rest is done by a child; this one ends with it, or, after a comma, before it */
        pid_t child = fork();
        if (!child) return;
        int status = 0;
        if (!*a) waitpid(child, &status, 0);
        exit(WEXITSTATUS(status));
    } else if (!strcmp(what, "alone")) { /* without what it has inherited, as a daemon */
        for (int fd = 1; fd < 64; fd++) close(fd);
        for (int fd = 1; fd <= 2; fd++) open("/dev/null", O_WRONLY);
    } else if (!strcmp(what, "exec")) {
        execv(argv[1], argv + 1);
        say(request, outcome(-1));
    } else if (!strcmp(what, "exit")) exit(atoi(a));
    else say(request, "?");
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) handle(argv[i], argv + i);
    return 0;
}
