/* Looks at a file by pread, preadv, lseek, fstat, stat, access and a mapping: read_calls IN OUT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    char head[10] = "", tail[10] = "", first[7], second[13];
    if (access(argv[1], R_OK)) return perror("access"), 1;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    FILE *out = fopen(argv[2], "w");
    if (fd < 0 || !out) return perror(argv[1]), 1;
    ssize_t begun = pread(fd, head, 9, 3);
    struct iovec parts[2] = {{first, sizeof first}, {second, sizeof second}};
    ssize_t gathered = preadv(fd, parts, 2, 20);
    fprintf(out, "%zd [%.9s] %zd [%.7s|%.13s]\n", begun, head, gathered, first, second);
    off_t end = lseek(fd, 0, SEEK_END);
    struct stat of_fd, of_name;
    if (fstat(fd, &of_fd) || stat(argv[1], &of_name)) return perror("stat"), 1;
    ssize_t last = pread(fd, tail, 9, end - 9), beyond = pread(fd, tail + 9, 1, end);
    fprintf(out, "size %lld %lld %lld, last %zd [%.9s], beyond %zd\n", (long long)end, (long long)of_fd.st_size,
            (long long)of_name.st_size, last, tail, beyond);
    char *map = mmap(NULL, (size_t)end, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) return perror("mmap"), 1;
    unsigned sum = 0;
    for (off_t i = 0; i < end; i++) sum = sum * 31 + (unsigned char)map[i];
    fprintf(out, "sum %u\n", sum);
    return fclose(out) ? 1 : 0;
}
