/* Does to files what its words say, one after the other: a producer that treats its old outputs in every way there is, or
 * a consumer that notes what it sees.
 *
 *     nap:MS          probe:FILE           trunc:FILE:TEXT    append:FILE:TEXT    update:FILE:TEXT
 *     patch:FILE:TEXT rename:FILE:TEXT     remove:FILE        read:FILE:LOG       size:FILE:LOG
 *     map:FILE:LOG    list:DIRECTORY:LOG   run:FILE:LOG
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *file, int flags, const char *text) {
    int fd = open(file, flags, 0755);
    if (fd < 0) return; /* nothing there to add to or to update */
    size_t half = strlen(text) / 2;
    if (write(fd, text, half) != (ssize_t)half || write(fd, text + half, strlen(text) - half) < 0) exit(3);
    close(fd);
}

/* Changes the beginning of a file that is long enough, through memory. */
static void put_by_map(const char *file, const char *text) {
    struct stat found;
    size_t length = strlen(text);
    int fd = open(file, O_RDWR);
    if (fd < 0) return;
    if (fstat(fd, &found)) exit(6);
    if ((size_t)found.st_size >= length) {
        char *there = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (there == MAP_FAILED) exit(7);
        memcpy(there, text, length);
        munmap(there, length);
    }
    close(fd);
}

static void put_by_rename(const char *file, const char *text) {
    char other[4096];
    snprintf(other, sizeof other, "%s.tmp", file);
    put(other, O_WRONLY | O_CREAT | O_TRUNC, text);
    if (rename(other, file)) exit(4);
}

static void note(const char *log, const char *what, const char *text) {
    FILE *out = fopen(log, "a");
    if (!out) exit(5);
    fprintf(out, "%s %s\n", what, text);
    fclose(out);
}

static void note_content(const char *file, const char *log) {
    char text[65536];
    int fd = open(file, O_RDONLY);
    ssize_t bytes = 0, got;
    while (fd >= 0 && (got = read(fd, text + bytes, 7)) > 0) bytes += got;
    text[bytes] = 0;
    note(log, fd < 0 ? "missing" : "read", text);
    if (fd >= 0) close(fd);
}

static void note_mapped(const char *file, const char *log) {
    struct stat found;
    int fd = open(file, O_RDONLY);
    if (fd < 0) return note(log, "missing", "");
    if (fstat(fd, &found)) exit(8);
    char text[65536] = "";
    if (found.st_size > 0) {
        char *there = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (there == MAP_FAILED) exit(9);
        memcpy(text, there, (size_t)found.st_size);
        munmap(there, (size_t)found.st_size);
    }
    close(fd);
    note(log, "mapped", text);
}

static void note_entries(const char *directory, const char *log) {
    struct dirent **found;
    int count = scandir(directory, &found, NULL, alphasort);
    for (int i = 0; i < count; i++) note(log, "entry", found[i]->d_name);
    note(log, "entries", count < 0 ? strerror(errno) : "end");
}

/* Runs a file, whose output goes to the log; a shell's line at its head makes it print itself. */
static void note_output(const char *file, const char *log) {
    char text[32];
    pid_t child = fork();
    if (!child) {
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (dup2(out, 1) < 0) _exit(99);
        execl(file, file, (char *)NULL);
        _exit(errno);
    }
    int status = 0;
    if (waitpid(child, &status, 0) < 0) exit(10);
    snprintf(text, sizeof text, "%d", status);
    note(log, "ran", text);
}

static void note_size(const char *file, const char *log) {
    struct stat found;
    char text[32];
    snprintf(text, sizeof text, "%lld", stat(file, &found) ? -1LL : (long long)found.st_size);
    note(log, "size", text);
}

int main(int n, char **words) {
    for (int i = 1; i < n; i++) {
        char *act = strtok(words[i], ":"), *file = strtok(NULL, ":"), *text = strtok(NULL, ":");
        if (!strcmp(act, "nap")) usleep((useconds_t)atoi(file) * 1000);
        else if (!strcmp(act, "probe")) put(file, O_RDWR, "");
        else if (!strcmp(act, "trunc")) put(file, O_WRONLY | O_CREAT | O_TRUNC, text);
        else if (!strcmp(act, "append")) put(file, O_WRONLY | O_CREAT | O_APPEND, text);
        else if (!strcmp(act, "update")) put(file, O_WRONLY, text);
        else if (!strcmp(act, "rename")) put_by_rename(file, text);
        else if (!strcmp(act, "remove")) unlink(file);
        else if (!strcmp(act, "read")) note_content(file, text);
        else if (!strcmp(act, "patch")) put_by_map(file, text);
        else if (!strcmp(act, "map")) note_mapped(file, text);
        else if (!strcmp(act, "list")) note_entries(file, text);
        else if (!strcmp(act, "run")) note_output(file, text);
        else if (!strcmp(act, "size")) note_size(file, text);
        else return 2;
    }
    return 0;
}
