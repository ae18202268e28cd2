/* Writes files PREFIX00000, PREFIX00001, …: produce PREFIX FIRST COUNT BYTES BLOCK MICROSECONDS_PER_MIB
   The prefix "-" is the standard output, for the comparison with a pipe. */
#include "work.h"

int main(int argc, char **argv)
{
    if (argc != 7) return 2;
    begin();
    int first = atoi(argv[2]), count = atoi(argv[3]);
    size_t bytes = strtoull(argv[4], NULL, 10), block = strtoull(argv[5], NULL, 10);
    double pace = atof(argv[6]) / 1e6 / (1 << 20), owed = 0;
    unsigned char *buffer = malloc(block);
    for (int i = first; i < first + count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%05d", argv[1], i);
        FILE *out = strcmp(argv[1], "-") ? opened(path, "w") : stdout;
        for (size_t at = 0; at < bytes; at += block) {
            size_t size = bytes - at < block ? bytes - at : block;
            if ((owed += pace * (double)size) > 0.0005) compute(owed), owed = 0;
            fill(buffer, size, at + (uint64_t)i * 1000003);
            if (fwrite(buffer, 1, size, out) != size) return perror(path), 1;
        }
        closed(out);
    }
    return end();
}
