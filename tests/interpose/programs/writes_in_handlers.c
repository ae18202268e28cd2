/* The main loop and a signal handler both open, write, close: on files of their own and on a shared descriptor. */
#include "family.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t fired, bad;
static int shared;

static void handler(int number) {
    int kept = errno;
    (void)number;
    int fd = open("out.handler", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "handler", 7) != 7 || close(fd)) bad = 1;
    if (write(shared, "12345678", 8) != 8) bad = 2;
    fired++;
    errno = kept;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    long mine = 0;
    shared = open("late.shared", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (time_t end = time(NULL) + 2; time(NULL) < end && !bad;) {
        int fd = open("tmp", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, "main", 4) != 4 || close(fd)) return puts("main failed"), 1;
        if (rename("tmp", "out.main")) return perror("rename"), 1;
        if (write(shared, "abcdefgh", 8) != 8) return puts("shared failed"), 1;
        mine++;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    struct stat found;
    fstat(shared, &found);
    if (bad || found.st_size != 8 * (mine + fired)) return printf("bad %d size %ld\n", bad, (long)found.st_size), 1;
    printf("good: %ld and %d\n", mine, (int)fired);
    return 0;
}
