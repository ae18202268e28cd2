/* Prints each line of a file, or of stdin, as soon as stdio delivers it. */
#include "family.h"

int main(int argc, char **argv) {
    char line[256];
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    while (file && fgets(line, sizeof line, file)) {
        fputs(line, stdout);
        fflush(stdout);
    }
    puts(file && feof(file) && !ferror(file) ? "end of file" : "error");
    return 0;
}
