#include "family.h"
#include <sys/uio.h>
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);

int main(void) {
    char text[64] = "", more[8] = "";
    int out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(out, "0123456789abcdefghij", 20);
    close(out);
    int fd = open("out", O_RDONLY);
    struct iovec two[2] = {{text, 3}, {more, 2}};
    SHOW(read(fd, text, 4)), puts(text);
    SHOW(__read_chk(fd, text, 2, 64)), puts(text);
    SHOW(readv(fd, two, 2)), puts(more);
    SHOW(pread(fd, text, 5, 10)), puts(text);
    SHOW(pread64(fd, text, 5, 18)), puts(text);
    SHOW(__pread_chk(fd, text, 2, 1, 64)), puts(text);
    SHOW(__pread64_chk(fd, text, 2, 2, 64)), puts(text);
    SHOW(preadv(fd, two, 2, 1)), puts(more);
    SHOW(preadv64(fd, two, 2, 2)), puts(more);
    SHOW(preadv2(fd, two, 2, 3, 0)), puts(more);
    SHOW(preadv2(fd, two, 2, -1, 0)), puts(more);
    SHOW(preadv64v2(fd, two, 2, 4, RWF_HIPRI)), puts(more);
    SHOW(read(fd, text, 0));
    SHOW(read(fd, text, 64)), puts(text);
    SHOW(read(fd, text, 64));
    SHOW(pread(fd, text, 5, 100));
    SHOW(pread(fd, text, 5, -1));
    SHOW_BAD(readv(fd, two, -1));
    SHOW_BAD(read(fd, NULL, 5));
    SHOW(read(-1, text, 5));
    SHOW(write(fd, text, 5));
    close(fd);
    SHOW(read(fd, text, 5));
    fd = open("out", O_WRONLY);
    SHOW(read(fd, text, 5));
    int folder = open(".", O_RDONLY);
    SHOW(read(folder, text, 5));
    return 0;
}
