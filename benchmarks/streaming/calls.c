/* What one call costs: calls DIRECTORY ROUNDS prints one JSON object of nanoseconds, each the best of ROUNDS rounds.
 * DIRECTORY holds in.dat, a megabyte. Run it plain on one directory and preloaded on a managed one; the ratio is the price of interposition. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define CALLS 500 /* a round is shorter than the slice of a busy processor */
#define SMALL_FILES 250

static char block[BLOCK], in_path[4096], out_path[4096], directory[2048];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void open_close(void) {
    for (int i = 0; i < CALLS; i++) {
        int fd = open(in_path, O_RDONLY);
        must(fd >= 0, "open");
        close(fd);
    }
}

static void read_4k(void) {
    int fd = open(in_path, O_RDONLY);
    for (int i = 0; i < CALLS; i++) {
        must(read(fd, block, BLOCK) == BLOCK, "read");
        if (i % 250 == 249) lseek(fd, 0, SEEK_SET);
    }
    close(fd);
}

static void write_4k(void) {
    int fd = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int i = 0; i < CALLS; i++) must(write(fd, block, BLOCK) == BLOCK, "write");
    close(fd);
}

static void stat_path(void) {
    struct stat found;
    for (int i = 0; i < CALLS; i++) must(!stat(in_path, &found), "stat");
}

static void fstat_fd(void) {
    struct stat found;
    int fd = open(in_path, O_RDONLY);
    for (int i = 0; i < CALLS; i++) must(!fstat(fd, &found), "fstat");
    close(fd);
}

static void small_files(void) {
    char path[4096];
    for (int i = 0; i < SMALL_FILES; i++) {
        snprintf(path, sizeof path, "%s/out.small.%d", directory, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        must(fd >= 0 && write(fd, block, 100) == 100, "small file");
        close(fd);
    }
}

static void remove_small_files(void) {
    char path[4096];
    for (int i = 0; i < SMALL_FILES; i++) {
        snprintf(path, sizeof path, "%s/out.small.%d", directory, i);
        unlink(path);
    }
}

static const struct {
    const char *name;
    void (*work)(void), (*after)(void);
    int calls;
} measured[] = {
    {"open", open_close, NULL, CALLS},  {"read", read_4k, NULL, CALLS},
    {"write", write_4k, NULL, CALLS},   {"stat", stat_path, NULL, CALLS},
    {"fstat", fstat_fd, NULL, CALLS},   {"small_file", small_files, remove_small_files, SMALL_FILES},
};

int main(int argc, char **argv) {
    must(argc == 3 && strlen(argv[1]) < sizeof directory, "calls DIRECTORY ROUNDS");
    int rounds = atoi(argv[2]);
    strcpy(directory, argv[1]);
    snprintf(in_path, sizeof in_path, "%s/in.dat", directory);
    snprintf(out_path, sizeof out_path, "%s/out.dat", directory);
    for (size_t m = 0; m < sizeof measured / sizeof *measured; m++) {
        double best = 1e18;
        for (int round = 0; round < rounds; round++) {
            double start = now();
            measured[m].work();
            double took = (now() - start) / measured[m].calls;
            if (took < best) best = took;
            if (measured[m].after) measured[m].after();
        }
        printf("%s\"%s\": %.1f", m ? ", " : "{", measured[m].name, best);
    }
    puts("}");
    return 0;
}
