/* Writes through stdio and returns from main without closing. */
#include "family.h"

int main(int argc, char **argv) {
    FILE *file = fopen(argv[argc - 1], "w");
    fputs("flushed at exit\n", file);
    return 0;
}
