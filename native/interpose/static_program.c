/* A static program takes no preloaded library: its files stream unseen, by the kernel's witness and its end alone. That is
 * said on stderr before it runs; what a workflow starts itself is refused by its launcher. */
#include "interpose.h"

#include <elf.h>
#include <string.h>

static bool has_interpreter(int fd, const Elf64_Ehdr *head) {
    Elf64_Phdr part;
    for (unsigned i = 0; i < head->e_phnum; i++) {
        long at = (long)(head->e_phoff + (uint64_t)i * head->e_phentsize);
        if (PS_KERNEL(SYS_pread64, fd, &part, sizeof part, at, 0, 0) != sizeof part) return true;
        if (part.p_type == PT_INTERP) return true;
    }
    return false;
}

void ps_warn_if_static(const char *path) {
    Elf64_Ehdr head;
    char line[4400];
    if (!ps_is_path(path) || !strchr(path, '/')) return;
    int fd = (int)PS_KERNEL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (fd < 0) return;
    bool is_static = PS_KERNEL(SYS_pread64, fd, &head, sizeof head, 0, 0, 0) == sizeof head &&
                     !memcmp(head.e_ident, ELFMAG, SELFMAG) && head.e_ident[EI_CLASS] == ELFCLASS64 &&
                     head.e_phentsize == sizeof(Elf64_Phdr) && !has_interpreter(fd, &head);
    PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
    if (!is_static) return;
    int bytes = snprintf(line, sizeof line, "penstock: %.4000s is a static program: it cannot be interposed, and nothing "
                         "waits for it or for what it reads\n", path);
    PS_KERNEL(SYS_write, 2, line, bytes, 0, 0, 0);
}
