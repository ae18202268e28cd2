/* Writes a file through a shared mapping: write_mapped OUT */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const size_t size = 50001;
    if (argc != 2) return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)size)) return perror(argv[1]), 1;
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return perror("mmap"), 1;
    for (size_t i = size; i-- > 0;) {
        map[i] = (char)('A' + i % 23);
        if (i == size / 2) usleep(20000);
    }
    munmap(map, size);
    return close(fd) ? 1 : 0;
}
