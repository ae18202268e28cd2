/* The shape of the 1000 Genomes workflow: rows of variants, one folder of small files for each individual's process, their
   merge, a filter of the same rows, and two analyses of both.
     genomes data OUT ROWS PEOPLE MICROSECONDS_PER_ROW
     genomes individuals DATA FOLDER INDEX OF PEOPLE MICROSECONDS_PER_ROW   rows INDEX, INDEX + OF, …; a file for each person
     genomes merge FOLDERS COUNT PEOPLE TARGET                            one file for each person from those of all folders
     genomes sifting DATA OUT MICROSECONDS_PER_ROW
     genomes overlap TARGET SIFTED PEOPLE OUT MICROSECONDS_PER_PERSON
     genomes frequency TARGET SIFTED PEOPLE OUT MICROSECONDS_PER_PERSON */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "work.h"

enum { LINE = 64 };

static void data(char **argv)
{
    int rows = atoi(argv[3]);
    double pace = atof(argv[5]) / 1e6;
    FILE *out = opened(argv[2], "w");
    for (int i = 0; i < rows; i++) {
        compute(pace);
        fprintf(out, "%08d %016llx %04d\n", i, (unsigned long long)mixed((uint64_t)i + 1), (int)(mixed((uint64_t)i) % 1000));
        if (i % 100 == 99) fflush(out);
    }
    closed(out);
}

static void individuals(char **argv)
{
    int index = atoi(argv[4]), of = atoi(argv[5]), people = atoi(argv[6]), row, score;
    double pace = atof(argv[7]) / 1e6;
    unsigned long long who;
    char **lists = calloc((size_t)people, sizeof *lists), path[4096];
    size_t *sizes = calloc((size_t)people, sizeof *sizes);
    FILE *in = opened(argv[2], "r");
    while (fscanf(in, "%d %llx %d", &row, &who, &score) == 3) {
        if (row % of != index) continue;
        compute(pace);
        int person = (int)(who % (unsigned long long)people);
        lists[person] = realloc(lists[person], sizes[person] + LINE);
        sizes[person] += (size_t)sprintf(lists[person] + sizes[person], "%d %d\n", row, score);
    }
    closed(in);
    if (mkdir(argv[3], 0755) && errno != EEXIST) perror(argv[3]), exit(1);
    for (int i = 0; i < people; i++) {
        snprintf(path, sizeof path, "%s/p%05d", argv[3], i);
        FILE *out = opened(path, "w");
        if (sizes[i] && fwrite(lists[i], 1, sizes[i], out) != sizes[i]) perror(path), exit(1);
        closed(out);
    }
}

/* Lists every folder as it is filled and keeps what each file holds; writes when all are read. */
static void merge(char **argv)
{
    int count = atoi(argv[3]), people = atoi(argv[4]), found = 0;
    char path[4096];
    long *sums = calloc((size_t)people, sizeof *sums);
    for (int f = 0; f < count; f++) {
        struct dirent *entry;
        snprintf(path, sizeof path, "%s%d", argv[2], f);
        DIR *folder = opendir(path);
        if (!folder) perror(path), exit(1);
        while ((entry = readdir(folder))) {
            if (entry->d_name[0] != 'p') continue;
            char file[8192];
            int row, score;
            snprintf(file, sizeof file, "%s%d/%s", argv[2], f, entry->d_name);
            FILE *in = opened(file, "r");
            while (fscanf(in, "%d %d", &row, &score) == 2) sums[atoi(entry->d_name + 1)] += row % 7 + score;
            closed(in);
            found++;
        }
        closedir(folder);
    }
    if (found != count * people) fprintf(stderr, "%d files of %d\n", found, count * people), exit(1);
    if (mkdir(argv[5], 0755) && errno != EEXIST) perror(argv[5]), exit(1);
    for (int i = 0; i < people; i++) {
        snprintf(path, sizeof path, "%s/p%05d", argv[5], i);
        FILE *out = opened(path, "w");
        fprintf(out, "%ld\n", sums[i]);
        closed(out);
    }
}

static void sifting(char **argv)
{
    int row, score;
    unsigned long long who;
    FILE *in = opened(argv[2], "r"), *out = opened(argv[3], "w");
    while (fscanf(in, "%d %llx %d", &row, &who, &score) == 3) {
        compute(atof(argv[4]) / 1e6);
        if (score > 900) fprintf(out, "%d\n", row);
    }
    closed(in);
    closed(out);
}

static void analysis(char **argv, int overlap)
{
    int people = atoi(argv[4]), row;
    long sifted = 0, total = 0, value;
    char path[4096];
    FILE *in = opened(argv[3], "r");
    while (fscanf(in, "%d", &row) == 1) sifted += row;
    closed(in);
    for (int i = 0; i < people; i++) {
        snprintf(path, sizeof path, "%s/p%05d", argv[2], i);
        in = opened(path, "r");
        if (fscanf(in, "%ld", &value) == 1) total += overlap ? value % 97 : value;
        closed(in);
        compute(atof(argv[6]) / 1e6);
    }
    FILE *out = opened(argv[5], "w");
    fprintf(out, "%ld %ld\n", sifted, total);
    closed(out);
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    begin();
    if (!strcmp(argv[1], "data")) data(argv);
    else if (!strcmp(argv[1], "individuals")) individuals(argv);
    else if (!strcmp(argv[1], "merge")) merge(argv);
    else if (!strcmp(argv[1], "sifting")) sifting(argv);
    else analysis(argv, !strcmp(argv[1], "overlap"));
    return end();
}
