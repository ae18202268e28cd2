#include "family.h"
#include <fts.h>
#include <ftw.h>
#include <glob.h>

static int visit(const char *path, const struct stat *s, int kind) {
    return (void)s, printf("ftw %s %d\n", path, kind), 0;
}
static int visit64(const char *path, const struct stat64 *s, int kind) {
    return (void)s, printf("ftw64 %s %d\n", path, kind), 0;
}
static int nvisit(const char *path, const struct stat *s, int kind, struct FTW *at) {
    return (void)s, printf("nftw %s %d %d\n", path, kind, at->level), 0;
}
static int nvisit64(const char *path, const struct stat64 *s, int kind, struct FTW *at) {
    return (void)s, printf("nftw64 %s %d %d\n", path, kind, at->level), 0;
}
static int not_dots(const struct dirent *e) { return e->d_name[0] != '.'; }
static int not_dots64(const struct dirent64 *e) { return e->d_name[0] != '.'; }
static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

int main(void) {
    SHOW(mkdir("made", 0755));
    for (int i = 0; i < 5; i++) {
        char name[32];
        sprintf(name, "made/f%d", i);
        close(open(name, O_WRONLY | O_CREAT, 0644));
    }
    int count = 0;
    DIR *d = opendir("made");
    struct dirent *e;
    struct dirent64 *e64;
    while ((e = readdir(d))) count += e->d_name[0] != '.';
    printf("readdir %d errno %d\n", count, errno);
    rewinddir(d), count = 0;
    while ((e64 = readdir64(d))) count += e64->d_name[0] != '.';
    printf("readdir64 %d\n", count);
    rewinddir(d);
    readdir(d), readdir(d);
    long where = telldir(d);
    char name[256];
    strcpy(name, readdir(d)->d_name);
    readdir(d);
    seekdir(d, where);
    printf("seekdir %d\n", strcmp(name, readdir(d)->d_name));
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct dirent room, *got;
    rewinddir(d), count = 0;
    while (!readdir_r(d, &room, &got) && got) count++;
    struct dirent64 room64, *got64;
    rewinddir(d);
    while (!readdir64_r(d, &room64, &got64) && got64) count++;
    printf("readdir_r %d\n", count);
    SHOW(fchdir(dirfd(d))), SHOW(access("f1", F_OK)), SHOW(chdir(".."));
    SHOW(closedir(d));
    int fd = open("made", O_RDONLY | O_DIRECTORY);
    d = fdopendir(fd), count = 0;
    while ((e = readdir(d))) count++;
    printf("fdopendir %d\n", count);
    closedir(d);
    char buffer[4096];
    fd = open("made", O_RDONLY);
    ssize_t bytes;
    count = 0;
    while ((bytes = getdents64(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < bytes; at += ((struct dirent64 *)(buffer + at))->d_reclen) count++;
    printf("getdents64 %d %zd\n", count, bytes);
    close(fd);
    struct dirent **list;
    struct dirent64 **list64;
    int n = SHOW(scandir("made", &list, not_dots, alphasort));
    for (int i = 0; i < n; i++) puts(list[i]->d_name);
    n = SHOW(scandir64("made", &list64, not_dots64, versionsort64));
    for (int i = 0; i < n; i++) puts(list64[i]->d_name);
    SHOW(scandirat(AT_FDCWD, "made", &list, NULL, NULL));
    SHOW(scandirat64(AT_FDCWD, "made", &list64, NULL, NULL));
    SHOW(scandir("made/none", &list, NULL, NULL));
    glob_t g;
    SHOW(glob("made/f[13]", 0, NULL, &g));
    for (size_t i = 0; i < g.gl_pathc; i++) puts(g.gl_pathv[i]);
    globfree(&g);
    glob64_t g64;
    SHOW(glob64("m*/f?", GLOB_MARK, NULL, &g64));
    for (size_t i = 0; i < g64.gl_pathc; i++) puts(g64.gl_pathv[i]);
    SHOW(glob("made/none*", 0, NULL, &g));
    SHOW(mkdir("made/sub", 0700));
    for (int i = 0; i < 5; i++) sprintf(name, "made/f%d", i), unlink(name);
    SHOW(ftw("made", visit, 4));
    SHOW(ftw64("made", visit64, 4));
    SHOW(nftw("made", nvisit, 4, FTW_PHYS));
    SHOW(nftw64("made", nvisit64, 4, FTW_DEPTH));
    char *paths[] = {"made", NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL, by_name);
    FTSENT *entry;
    while ((entry = fts_read(walk))) printf("fts %s %d\n", entry->fts_path, entry->fts_info);
    fts_close(walk);
    printf("opendir none %s\n", opendir("none") ? "open" : strerrorname_np(errno));
    return 0;
}
