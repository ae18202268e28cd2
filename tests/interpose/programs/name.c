#include "family.h"

static void make(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(fd, text, strlen(text));
    close(fd);
}

int main(void) {
    char name[32] = "madeXXXXXX";
    make("tmp", "one"), make("tmp2", "two"), make("tmp3", "three"), make("tmp4", "four");
    SHOW(rename("tmp", "out"));
    show_file("out"), show_file("tmp");
    SHOW(rename("tmp2", "out"));
    show_file("out");
    SHOW(rename("tmp.none", "out"));
    SHOW(renameat(AT_FDCWD, "tmp3", AT_FDCWD, "out.3"));
    SHOW(renameat2(AT_FDCWD, "tmp4", AT_FDCWD, "out.3", RENAME_NOREPLACE));
    SHOW(renameat2(AT_FDCWD, "tmp4", AT_FDCWD, "out.3", RENAME_EXCHANGE));
    show_file("out.3"), show_file("tmp4");
    SHOW(link("out", "out.l"));
    SHOW(linkat(AT_FDCWD, "out", AT_FDCWD, "out.l2", 0));
    SHOW(link("out", "out.l"));
    show_file("out.l");
    SHOW(symlink("out.3", "out.s"));
    SHOW(symlinkat("out", AT_FDCWD, "out.s2"));
    show_file("out.s");
    SHOW(unlink("out.l"));
    SHOW(unlink("out.l"));
    SHOW(unlinkat(AT_FDCWD, "out.l2", 0));
    SHOW(remove("out.s2"));
    SHOW(mkdir("made", 0755));
    SHOW(mkdir("made", 0755));
    SHOW(mkdir("made.none/x", 0755));
    SHOW(mkdirat(AT_FDCWD, "made/deep", 0755));
    make("made/deep/f", "deep");
    SHOW(rename("made/deep", "made/moved"));
    show_file("made/moved/f");
    SHOW(rmdir("made"));
    SHOW(unlink("made/moved/f"));
    SHOW(unlinkat(AT_FDCWD, "made/moved", AT_REMOVEDIR));
    SHOW(rmdir("made"));
    SHOW(mkdtemp(name) != NULL);
    SHOW(rmdir(name));
    SHOW(mkfifo("out.pipe", 0600));
    SHOW(mkfifoat(AT_FDCWD, "out.pipe", 0600));
    int both = SHOW_FD(open("out.pipe", O_RDWR));
    SHOW(write(both, "through", 7));
    SHOW(read(both, name, 7));
    SHOW(unlink("out.pipe"));
    SHOW(chdir("none"));
    SHOW(mkdir("made", 0755));
    SHOW(chdir("made"));
    make("inside", "inside");
    SHOW(chdir(".."));
    show_file("made/inside"), show_file("made/../made/./inside"), show_file("made//inside");
    return 0;
}
