#include "family.h"
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

int main(void) {
    char name[32], *nowhere = NULL;
    int here = SHOW_FD(open(".", O_RDONLY | O_DIRECTORY)), fd;
    SHOW_FD(open("out.missing", O_RDONLY));
    SHOW_BAD(open(nowhere, O_RDONLY));
    SHOW_FD(open("", O_RDONLY));
    SHOW_FD(open("out.none/x", O_WRONLY | O_CREAT, 0644));
    close(SHOW_FD(open("out.1", O_WRONLY | O_CREAT | O_EXCL, 0640)));
    SHOW_FD(open("out.1", O_WRONLY | O_CREAT | O_EXCL, 0640));
    close(SHOW_FD(open64("out.2", O_RDWR | O_CREAT | O_TRUNC, 0644)));
    close(SHOW_FD(openat(here, "out.3", O_WRONLY | O_CREAT, 0600)));
    close(SHOW_FD(openat64(here, "./out.4", O_WRONLY | O_CREAT, 0600)));
    close(SHOW_FD(openat(AT_FDCWD, "out.5", O_WRONLY | O_CREAT | O_APPEND, 0600)));
    close(SHOW_FD(creat("out.6", 0644)));
    close(SHOW_FD(creat64("out.7", 0644)));
    close(SHOW_FD(__open_2("out.1", O_RDONLY)));
    close(SHOW_FD(__open64_2("out.2", O_RDWR)));
    close(SHOW_FD(__openat_2(here, "out.3", O_RDONLY)));
    close(SHOW_FD(__openat64_2(here, "out.4", O_WRONLY)));
    SHOW_FD(open("out.1", O_RDONLY | O_DIRECTORY));
    SHOW_FD(open(".", O_WRONLY));
    close(SHOW_FD(open("out.1", O_PATH)));
    fd = SHOW_FD(open(".", O_TMPFILE | O_RDWR, 0600));
    SHOW(write(fd, "gone", 4));
    close(fd);
    strcpy(name, "tmp.XXXXXX"), fd = SHOW_FD(mkstemp(name)), write(fd, "a", 1), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX"), fd = SHOW_FD(mkstemp64(name)), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX"), fd = SHOW_FD(mkostemp(name, O_CLOEXEC)), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX"), fd = SHOW_FD(mkostemp64(name, O_APPEND)), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX.d"), fd = SHOW_FD(mkstemps(name, 2)), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX.d"), fd = SHOW_FD(mkstemps64(name, 2)), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX.d"), fd = SHOW_FD(mkostemps(name, 2, O_CLOEXEC)), close(fd), unlink(name);
    strcpy(name, "tmp.XXXXXX.d"), fd = SHOW_FD(mkostemps64(name, 2, 0)), close(fd), unlink(name);
    SHOW_FD(mkstemp(strcpy(name, "tmp.bad")));
    symlink("out.1", "out.link");
    SHOW_FD(open("out.link", O_RDONLY | O_NOFOLLOW));
    fd = SHOW_FD(open("out.link", O_WRONLY | O_TRUNC));
    SHOW(write(fd, "by link", 7));
    close(fd);
    show_file("out.1");
    return 0;
}
