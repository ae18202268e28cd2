#include "family.h"

int main(void) {
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char text[8] = "";
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(write(fd, "0123456789", 10));
    SHOW(lseek(fd, -3, SEEK_CUR));
    SHOW(read(fd, text, 2)), puts(text);
    SHOW(lseek64(fd, 1 << 20, SEEK_SET));
    SHOW(write(fd, "far", 3));
    SHOW(lseek(fd, 0, SEEK_END));
    SHOW(lseek(fd, -2, SEEK_END));
    SHOW(lseek(fd, 0, SEEK_DATA));
    SHOW(lseek(fd, 1 << 20, SEEK_HOLE));
    SHOW(lseek(fd, -1, SEEK_SET));
    SHOW(lseek(fd, 0, 99));
    SHOW(lseek(-1, 0, SEEK_SET));
    SHOW(lseek(fd, 4, SEEK_SET));
    SHOW(read(fd, text, 2)), puts(text);
    return 0;
}
