/* Copies files one after the other by reads of an odd size; a short read that is no end is told: read_raw OUT IN... */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char block[4093];
    if (argc < 3) return 2;
    int out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int i = 2; i < argc; i++) {
        int in = open(argv[i], O_RDONLY), was_short = 0;
        if (in < 0 || out < 0) return perror(argv[i]), 1;
        ssize_t got;
        while ((got = read(in, block, sizeof block)) > 0) {
            if (was_short) return fprintf(stderr, "%s: a short read before the end\n", argv[i]), 1;
            was_short = got < (ssize_t)sizeof block;
            if (write(out, block, (size_t)got) != got) return 1;
        }
        if (got < 0) return perror(argv[i]), 1;
        close(in);
    }
    return close(out) ? 1 : 0;
}
