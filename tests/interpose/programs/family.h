/* What every program of these tests begins with: it says whether it runs as it is meant to (plain, or with the library
 * loaded and active), and prints each call with its result. Plain and preloaded runs must print the same. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

__attribute__((constructor)) static void as_meant(void) {
    const char *expects = getenv("PENSTOCK_TEST_EXPECTS");
    int (*asked)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "penstock_interposed");
    int found = asked ? asked() : 0;
    if (found == (expects ? atoi(expects) : 0)) return;
    fprintf(stderr, "the library should be in state %s and is in %d\n", expects ? expects : "0", found);
    _exit(97);
}

/* Prints an expression, its value, and errno if it is -1. */
#define SHOW(expression)                                                          \
    ({                                                                            \
        errno = 0;                                                                \
        long shown = (long)(expression);                                          \
        printf("%s = %ld%s%s\n", #expression, shown, shown == -1 ? " " : "",      \
               shown == -1 ? strerrorname_np(errno) : "");                        \
        shown;                                                                    \
    })

/* The same for descriptors, whose number is not the point. */
#define SHOW_FD(expression)                                                       \
    ({                                                                            \
        errno = 0;                                                                \
        int shown = (expression);                                                 \
        printf("%s = %s\n", #expression, shown >= 0 ? "open" : strerrorname_np(errno)); \
        shown;                                                                    \
    })

/* A call with a bad pointer: not where a checker would (rightly) speak up. */
#define SHOW_BAD(expression) (getenv("PENSTOCK_TEST_CHECKED") ? 0 : SHOW(expression))

__attribute__((unused)) static void show_file(const char *path) {
    char text[512];
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[got] = 0;
    for (size_t i = 0; i < got; i++)
        if (!text[i]) text[i] = '0';
    printf("%s: %s\n", path, file ? text : strerrorname_np(errno));
    if (file) fclose(file);
}
