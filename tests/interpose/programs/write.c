#include "family.h"
#include <sys/uio.h>

int main(void) {
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct iovec two[2] = {{"AB", 2}, {"CDE", 3}};
    SHOW(write(fd, "hello", 5));
    SHOW(writev(fd, two, 2));
    SHOW(pwrite(fd, "xx", 2, 1));
    SHOW(pwrite64(fd, "yy", 2, 12));
    SHOW(pwritev(fd, two, 2, 20));
    SHOW(pwritev64(fd, two, 2, 26));
    SHOW(pwritev2(fd, two, 2, 32, 0));
    SHOW(pwritev2(fd, two, 2, -1, 0));
    SHOW(pwritev64v2(fd, two, 2, 40, 0));
    SHOW(pwritev2(fd, two, 1, 0, RWF_APPEND));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(write(fd, NULL, 0));
    SHOW_BAD(write(fd, NULL, 5));
    SHOW(pwrite(fd, "x", 1, -1));
    SHOW_BAD(writev(fd, two, -1));
    SHOW(dprintf(fd, "%d-%s", 42, "printed"));
    SHOW(write(fd, "|", 1));
    SHOW(ftruncate(fd, 60));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(fsync(fd));
    SHOW(fdatasync(fd));
    SHOW(fallocate(fd, 0, 0, 100));
    SHOW(posix_fallocate(fd, 100, 28));
    SHOW(lseek(fd, 0, SEEK_END));
    SHOW(close(fd));
    show_file("out");
    fd = open("out", O_WRONLY | O_APPEND);
    SHOW(write(fd, "end", 3));
    SHOW(pwrite(fd, "atend", 5, 0));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(fcntl(fd, F_SETFL, 0));
    SHOW(lseek(fd, 2, SEEK_SET));
    SHOW(write(fd, "!!", 2));
    SHOW(close(fd));
    show_file("out");
    fd = open("out", O_WRONLY | O_TRUNC);
    SHOW(lseek(fd, 5, SEEK_SET));
    SHOW(write(fd, "hole", 4));
    SHOW(close(fd));
    show_file("out");
    fd = open("out", O_RDONLY);
    SHOW(write(fd, "no", 2));
    SHOW(pwrite(fd, "no", 2, 0));
    SHOW(close(fd));
    SHOW(write(fd, "no", 2));
    SHOW(truncate("out", 3));
    show_file("out");
    SHOW(truncate64("out", 6));
    SHOW(truncate("out.missing", 6));
    SHOW(ftruncate(-1, 6));
    return 0;
}
