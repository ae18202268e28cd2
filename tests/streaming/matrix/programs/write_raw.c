/* Writes blocks of odd sizes by write, pwrite and writev: write_raw OUT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

static char bytes[40000];

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)('a' + (i * i + i / 7) % 26);
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return perror(argv[1]), 1;
    if (write(fd, bytes, 4097) != 4097 || write(fd, bytes, 1) != 1) return 1;
    struct iovec parts[2] = {{bytes + 5, 3001}, {bytes + 9, 11}};
    if (writev(fd, parts, 2) != 3012) return 1;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (pwrite(fd, bytes + 100, 9999, at) != 9999) return 1;
    if (lseek(fd, 9999, SEEK_CUR) < 0 || write(fd, bytes + 3, 20000) != 20000) return 1;
    int copy = dup(fd);
    if (close(fd) || write(copy, bytes, 77) != 77) return 1;
    return close(copy) ? 1 : 0;
}
