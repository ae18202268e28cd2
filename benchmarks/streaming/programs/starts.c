/* Starts a program so many times, one after the other, and notes the seconds of one: starts COUNT PROGRAM [ARGUMENTS] */
#include <spawn.h>
#include <sys/wait.h>

#include "work.h"

extern char **environ;

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    begin();
    int count = atoi(argv[1]), status;
    double began = seconds_of(CLOCK_MONOTONIC);
    for (int i = 0; i < count; i++) {
        pid_t child;
        if (posix_spawnp(&child, argv[2], NULL, NULL, argv + 2, environ)) return perror(argv[2]), 1;
        if (waitpid(child, &status, 0) < 0 || status) return 1;
    }
    note("first", work_began + (seconds_of(CLOCK_MONOTONIC) - began) / count);
    return end();
}
