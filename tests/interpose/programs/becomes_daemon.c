#include "family.h"

int main(int argc, char **argv) {
    if (argc < 2 || daemon(0, 0)) return 1;
    char path[4096];
    snprintf(path, sizeof path, "%s/out", argv[1]);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(fd, "by a daemon", 11) != 11) return 1;
    return 0;
}
