/* Writes lines by every call of stdio: write_stdio OUT */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    FILE *out = fopen(argv[1], "w");
    if (!out) return perror(argv[1]), 1;
    for (int i = 0; i < 3000; i++) {
        fprintf(out, "line %d of a file that stdio writes", i);
        if (i % 100 == 0) fflush(out);
        if (i % 3 == 0) fputs(" by fputs", out);
        if (i % 5 == 0) {
            const char *word = " by fwrite";
            fwrite(word, 1, strlen(word), out);
        }
        putc('\n', out);
    }
    return fclose(out) ? 1 : 0;
}
