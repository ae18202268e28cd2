/* The slow producer: numbered lines in small writes with pauses, so that its reader catches up and waits.
   drip OUT [LINES [LINES PER WRITE [PAUSE IN MICROSECONDS]]]; "-" is the standard output. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    int lines = argc > 2 ? atoi(argv[2]) : 2000, together = argc > 3 ? atoi(argv[3]) : 97;
    int pause = argc > 4 ? atoi(argv[4]) : 500;
    int fd = strcmp(argv[1], "-") ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644) : 1;
    if (fd < 0) return perror(argv[1]), 1;
    static char block[1 << 20];
    for (int i = 0; i < lines;) {
        size_t filled = 0;
        for (int k = 0; k < together && i < lines && filled < sizeof block - 100; k++, i++)
            filled += (size_t)sprintf(block + filled, "%d %d apple,%d word%d\n", i, i * 7919 % 1000, i % 13, i % 37);
        for (size_t done = 0; done < filled;) {
            ssize_t wrote = write(fd, block + done, filled - done);
            if (wrote < 0) return perror(argv[1]), 1;
            done += (size_t)wrote;
        }
        usleep((useconds_t)pause);
    }
    if (close(fd)) return 1;
    usleep(10000); /* the file ends before its program does */
    return 0;
}
