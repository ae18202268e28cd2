/* Reads lines, then bytes, by stdio, and tells what it saw: read_stdio IN OUT */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
    if (!in || !out) return perror(argv[1]), 1;
    char line[300], block[1000];
    for (int i = 0; i < 50 && fgets(line, sizeof line, in); i++) fprintf(out, "%d: %s", i, line);
    int next = getc(in);
    if (next != EOF) ungetc(next, in);
    long at = ftell(in);
    size_t got, total = 0;
    while ((got = fread(block, 1, sizeof block, in)) > 0) {
        fwrite(block, 1, got, out);
        total += got;
    }
    fprintf(out, "\nat %ld, then %zu bytes, end %d, error %d\n", at, total, feof(in) != 0, ferror(in) != 0);
    rewind(in);
    if (fgets(line, sizeof line, in)) fprintf(out, "again: %s", line);
    return fclose(in) || fclose(out) ? 1 : 0;
}
