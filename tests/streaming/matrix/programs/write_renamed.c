/* Writes beside, then gives the file its name, as careful programs do: write_renamed OUT */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char beside[4096];
    if (argc != 2) return 2;
    snprintf(beside, sizeof beside, "%s.part", argv[1]);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return perror(beside), 1;
    for (int i = 0; i < 500; i++)
        if (dprintf(fd, "%d: whole or not at all\n", i) < 0) return 1;
    if (fchmod(fd, 0644) || fsync(fd) || close(fd) || rename(beside, argv[1])) return perror(argv[1]), 1;
    return access(beside, F_OK) ? 0 : 1;
}
