/* Two threads fill a file from both ends by pwrite and leave a hole in its middle: write_sparse OUT */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 3000, BLOCKS = 20 };
static int fd;

static void put(int number)
{
    char block[BLOCK];
    memset(block, 'a' + number, BLOCK);
    if (pwrite(fd, block, BLOCK, (off_t)number * BLOCK) != BLOCK) _exit(1);
    usleep(1000);
}

static void *forwards(void *unused)
{
    for (int i = 0; i < BLOCKS / 2 - 1; i++) put(i);
    return unused;
}

static void *backwards(void *unused)
{
    for (int i = BLOCKS; i-- > BLOCKS / 2;) put(i);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    if (argc != 2) return 2;
    fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return perror(argv[1]), 1;
    pthread_create(&threads[0], NULL, forwards, NULL);
    pthread_create(&threads[1], NULL, backwards, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return close(fd) ? 1 : 0;
}
