/* Word count in three steps, with compute in each.
     mapreduce split PREFIX CHUNKS BYTES MICROSECONDS_PER_MIB            writes the chunks of a text
     mapreduce map PREFIX FIRST COUNT MICROSECONDS_PER_MIB PARTS REDUCERS   counts words, one part for each reducer
     mapreduce merge PARTS MAPPERS REDUCERS CHUNKS_PER_MAPPER OUT       adds the parts up */
#include "work.h"

enum { WORDS = 5000, BLOCK = 1 << 16 };

static void split(char **argv)
{
    int chunks = atoi(argv[3]);
    size_t bytes = strtoull(argv[4], NULL, 10);
    double pace = atof(argv[5]) / 1e6 / (1 << 20);
    uint64_t dice = 1;
    for (int i = 0; i < chunks; i++) {
        char path[4096], block[BLOCK + 16];
        snprintf(path, sizeof path, "%s%05d", argv[2], i);
        FILE *out = opened(path, "w");
        for (size_t written = 0; written < bytes;) {
            size_t size = 0;
            while (size < BLOCK) size += (size_t)sprintf(block + size, "w%04d ", (int)(mixed(dice++) % WORDS));
            block[size - 1] = '\n';
            compute(pace * (double)size);
            if (fwrite(block, 1, size, out) != size) perror(path), exit(1);
            written += size;
        }
        closed(out);
    }
}

static void map(char **argv)
{
    static uint32_t counts[WORDS];
    int first = atoi(argv[3]), count = atoi(argv[4]), reducers = atoi(argv[7]);
    double pace = atof(argv[5]) / 1e6 / (1 << 20);
    for (int i = first; i < first + count; i++) {
        char path[4096], word[64];
        snprintf(path, sizeof path, "%s%05d", argv[2], i);
        FILE *in = opened(path, "r");
        double owed = 0;
        while (fscanf(in, "%63s", word) == 1) {
            counts[atoi(word + 1) % WORDS]++;
            if ((owed += pace * 6) > 0.001) compute(owed), owed = 0;
        }
        closed(in);
    }
    for (int r = 0; r < reducers; r++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%05d-%05d", argv[6], first, r);
        FILE *out = opened(path, "w");
        for (int w = r; w < WORDS; w += reducers) fprintf(out, "%d %u\n", w, counts[w]);
        closed(out);
    }
}

static void merge(char **argv)
{
    static uint64_t counts[WORDS];
    int mappers = atoi(argv[3]), reducers = atoi(argv[4]), each = atoi(argv[5]);
    for (int m = 0; m < mappers; m++)
        for (int r = 0; r < reducers; r++) {
            char path[4096];
            int word;
            unsigned found;
            snprintf(path, sizeof path, "%s%05d-%05d", argv[2], m * each, r);
            FILE *in = opened(path, "r");
            while (fscanf(in, "%d %u", &word, &found) == 2) counts[word] += found;
            closed(in);
        }
    FILE *out = opened(argv[6], "w");
    for (int w = 0; w < WORDS; w++) fprintf(out, "w%04d %llu\n", w, (unsigned long long)counts[w]);
    closed(out);
}

int main(int argc, char **argv)
{
    if (argc < 6) return 2;
    begin();
    if (!strcmp(argv[1], "split")) split(argv);
    else if (!strcmp(argv[1], "map")) map(argv);
    else merge(argv);
    return end();
}
