/* Writes or reads one partition of a large file: partition write|read FILE OFFSET LENGTH BLOCK MICROSECONDS_PER_MIB [OUT] */
#include "work.h"

int main(int argc, char **argv)
{
    if (argc < 7) return 2;
    begin();
    int writing = !strcmp(argv[1], "write");
    size_t from = strtoull(argv[3], NULL, 10), length = strtoull(argv[4], NULL, 10), block = strtoull(argv[5], NULL, 10);
    double pace = atof(argv[6]) / 1e6 / (1 << 20), owed = 0;
    unsigned char *buffer = malloc(block);
    uint64_t sum = 0;
    int fd = writing ? open(argv[2], O_WRONLY | O_CREAT, 0644) : open(argv[2], O_RDONLY);
    if (fd < 0) return perror(argv[2]), 1;
    for (size_t at = from; at < from + length; at += block) {
        size_t size = from + length - at < block ? from + length - at : block;
        if (writing) fill(buffer, size, at);
        if ((owed += pace * (double)size) > 0.0005) compute(owed), owed = 0;
        ssize_t done = writing ? pwrite(fd, buffer, size, (off_t)at) : pread(fd, buffer, size, (off_t)at);
        if (done != (ssize_t)size) return fprintf(stderr, "%s: %zd of %zu bytes at %zu\n", argv[2], done, size, at), 1;
        if (!writing) sum = checksum(buffer, size, sum), note_first_result();
    }
    close(fd);
    if (!writing) {
        FILE *out = opened(argv[7], "w");
        fprintf(out, "%zu %016llx\n", length, (unsigned long long)sum);
        closed(out);
    }
    return end();
}
