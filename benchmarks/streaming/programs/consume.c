/* Reads files PREFIX00000, … in order and prints their checksum: consume PREFIX FIRST COUNT BLOCK MICROSECONDS_PER_MIB OUT
   The prefix "-" is the standard input, for the comparison with a pipe. */
#include "work.h"

int main(int argc, char **argv)
{
    if (argc != 7) return 2;
    begin();
    int first = atoi(argv[2]), count = atoi(argv[3]);
    size_t block = strtoull(argv[4], NULL, 10), got, total = 0;
    double pace = atof(argv[5]) / 1e6 / (1 << 20), owed = 0;
    unsigned char *buffer = malloc(block);
    uint64_t sum = 0;
    for (int i = first; i < first + count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%05d", argv[1], i);
        FILE *in = strcmp(argv[1], "-") ? opened(path, "r") : stdin;
        while ((got = fread(buffer, 1, block, in)) > 0) {
            sum = checksum(buffer, got, sum);
            total += got;
            if ((owed += pace * (double)got) > 0.0005) compute(owed), owed = 0;
            note_first_result();
        }
        closed(in);
    }
    FILE *out = opened(argv[6], "w");
    fprintf(out, "%zu %016llx\n", total, (unsigned long long)sum);
    closed(out);
    return end();
}
