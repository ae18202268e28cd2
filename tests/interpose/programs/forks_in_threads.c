/* Eight threads write files of their own and fork children that write one each. */
#include "family.h"
#include <pthread.h>
#include <sys/wait.h>

static void make(long thread, int turn, const char *who) {
    char name[64];
    sprintf(name, "out.%ld.%d.%s", thread, turn, who);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "data", 4) != 4 || close(fd)) _exit(1);
}

static void *work(void *number) {
    for (int turn = 0; turn < 10; turn++) {
        pid_t pid = fork();
        if (!pid) {
            make((long)number, turn, "child");
            _exit(0);
        }
        make((long)number, turn, "thread");
        int status;
        if (waitpid(pid, &status, 0) != pid || status) exit(2);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    puts("160 files");
    return 0;
}
