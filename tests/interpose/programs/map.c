#include "family.h"
#include <sys/mman.h>

int main(void) {
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SHOW(ftruncate(fd, 12288));
    char *map = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SHOW(close(fd));
    strcpy(map, "mapped"), strcpy(map + 8192, "third page");
    SHOW(msync(map, 12288, MS_SYNC));
    SHOW(munmap(map, 4096));
    map = mremap(map + 4096, 8192, 4096 * 4, MREMAP_MAYMOVE);
    puts(map + 4096);
    SHOW(munmap(map, 4096 * 4));
    fd = open("out", O_RDONLY);
    map = mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 8192);
    puts(map);
    SHOW(munmap(map, 4096));
    SHOW(mmap(NULL, 4096, PROT_READ, MAP_SHARED, -1, 0) == MAP_FAILED);
    SHOW(munmap((void *)1, 4096));
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(map, "anonymous"), puts(map);
    SHOW(munmap(map, 4096));
    return 0;
}
