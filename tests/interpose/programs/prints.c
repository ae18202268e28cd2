/* Ten lines to stdout; `slowly`: one for each line of stdin, flushed. */
#include "family.h"

int main(int argc, char **argv) {
    char line[16];
    for (int i = 0; i < 10; i++) {
        if (argc > 1 && read(0, line, 1) <= 0) return 1;
        printf("line %d\n", i);
        if (argc > 1) fflush(stdout);
    }
    if (argc > 1) read(0, line, 1);
    (void)argv;
    return 0;
}
