/* What all programs of the benchmark share: computing for a stated time, and notes of when they began and ended.

   Computing is real: the processor is busy until this thread has used that much of its time, whoever else runs.
   Notes go to the folder BENCH_TIMES, outside the workflow, in seconds of CLOCK_MONOTONIC. */
#ifndef WORK_H
#define WORK_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static volatile uint64_t work_done;

static inline void compute(double seconds)
{
    if (seconds <= 0) return;
    double until = seconds_of(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < until)
        for (int i = 0; i < 2000; i++) work_done = work_done * 6364136223846793005u + 1442695040888963407u;
}

static double work_began;

static inline void note(const char *what, double when)
{
    const char *folder = getenv("BENCH_TIMES");
    char path[4096], line[100];
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int length = snprintf(line, sizeof line, "%s %.6f\n", what, when);
    if (fd < 0 || write(fd, line, (size_t)length) != length) abort();
    close(fd);
}

static inline void begin(void)
{
    work_began = seconds_of(CLOCK_MONOTONIC);
}

static inline void note_first_result(void)
{
    static int told;
    if (!told++) note("first", seconds_of(CLOCK_MONOTONIC));
}

static inline int end(void)
{
    note("began", work_began);
    note("ended", seconds_of(CLOCK_MONOTONIC));
    return 0;
}

static inline FILE *opened(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (!file) perror(path), exit(1);
    return file;
}

static inline void closed(FILE *file)
{
    if (fclose(file)) perror("close"), exit(1);
}

static inline uint64_t mixed(uint64_t value)
{
    value ^= value >> 33, value *= 0xff51afd7ed558ccdu, value ^= value >> 33;
    return value;
}

/* Bytes that say where they stand, so that a block in the wrong place changes the checksum of its reader. */
static inline void fill(unsigned char *block, size_t size, uint64_t at)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = at + i + (at >> 20);
        memcpy(block + i, &word, 8);
    }
}

static inline uint64_t checksum(const unsigned char *block, size_t size, uint64_t sum)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, block + i, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u + 1;
    }
    return sum;
}

#endif
