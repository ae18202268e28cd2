#include "family.h"
#include <sys/sendfile.h>

int main(void) {
    int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644), copy = open("out.copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int ends[2];
    char text[64] = "";
    off_t at = 2, to = 30;
    write(out, "0123456789abcdef", 16);
    SHOW(lseek(out, 0, SEEK_SET));
    SHOW(sendfile(copy, out, NULL, 4)), SHOW(lseek(out, 0, SEEK_CUR)), SHOW(lseek(copy, 0, SEEK_CUR));
    SHOW(sendfile64(copy, out, &at, 100)), SHOW(at), SHOW(lseek(out, 0, SEEK_CUR));
    SHOW(copy_file_range(out, NULL, copy, NULL, 3, 0)), SHOW(lseek(copy, 0, SEEK_CUR));
    at = 5;
    SHOW(copy_file_range(out, &at, copy, &to, 6, 0)), SHOW(to);
    SHOW(copy_file_range(out, &at, copy, &to, 100, 0)), SHOW(at);
    SHOW(copy_file_range(out, &at, copy, &to, 100, 0));
    SHOW(pipe(ends));
    SHOW(splice(out, NULL, ends[1], NULL, 5, 0)), SHOW(splice(ends[0], NULL, copy, NULL, 5, 0));
    at = 1;
    SHOW(splice(out, &at, ends[1], NULL, 2, 0)), SHOW(read(ends[0], text, 10)), puts(text);
    SHOW(write(copy, "end", 3)), SHOW(lseek(copy, 0, SEEK_CUR));
    SHOW(sendfile(copy, -1, NULL, 4)), SHOW(sendfile(-1, out, NULL, 4));
    show_file("out.copy");
    return 0;
}
