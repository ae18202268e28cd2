/* Forks and stops each child as soon as there is one, mostly before it has run at all; prints their numbers, and waits. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    for (int i = 0; i < 30; i++) {
        pid_t child = i % 2 ? fork() : _Fork();
        if (!child)
            for (;;) pause();
        kill(child, SIGSTOP);
        printf("%d\n", (int)child);
    }
    puts("all");
    fflush(stdout);
    pause();
}
