/* A library that opens a managed file and prints before main. */
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <stdlib.h>

__attribute__((constructor)) static void early(void) {
    const char *app = getenv("PENSTOCK_STREAM_APP");
    if (!app || strcmp(app, "maker")) return;
    int fd = open("out.early", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return;
    write(fd, "by a constructor", 16);
    close(fd);
    char path[64];
    ssize_t got = readlink("/proc/self/fd/1", path, sizeof path - 1);
    if (got > 0) puts("before main");
}
