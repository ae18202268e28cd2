/* Does to files what its words say, one after the other: a producer that treats its old outputs in every way there is, or
 * a consumer that notes what it sees.
 *
 *     nap:MS          probe:FILE           trunc:FILE:TEXT    append:FILE:TEXT    update:FILE:TEXT
 *     rename:FILE:TEXT                     remove:FILE        read:FILE:LOG       size:FILE:LOG
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *file, int flags, const char *text) {
    int fd = open(file, flags, 0644);
    if (fd < 0) return; /* nothing there to add to or to update */
    size_t half = strlen(text) / 2;
    if (write(fd, text, half) != (ssize_t)half || write(fd, text + half, strlen(text) - half) < 0) exit(3);
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
        else if (!strcmp(act, "size")) note_size(file, text);
        else return 2;
    }
    return 0;
}
