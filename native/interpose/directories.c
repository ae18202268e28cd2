/* A directory as the user's file system would have it. Where the workflow's directory is in memory, what the kernel tells of one
 * that is new or changed is memory's: its size, no blocks, and one link if it stands over one of the user's. The server has
 * measured what such a directory has at home (ps->measure); what depends on its entries is counted. */
#include "interpose.h"

#include <string.h>
#include <sys/sysmacros.h>

#define LISTED 4096 /* bytes at a time */

struct count {
    uint64_t entries, letters, directories;
};

/* As far as it may be listed. By the kernel: who asks has waited before, or is not to wait. */
static void count_entries(int dirfd, const char *path, struct count *out) {
    _Alignas(struct dirent64) char list[LISTED];
    if (!path || !path[0]) path = ".";
    long bytes, fd = PS_KERNEL(SYS_openat, dirfd, path, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC, 0, 0, 0);
    if (fd < 0) return;
    while ((bytes = PS_KERNEL(SYS_getdents64, fd, list, sizeof list, 0, 0, 0)) > 0)
        for (long at = 0; at < bytes;) {
            const struct dirent64 *entry = (const void *)(list + at);
            at += entry->d_reclen;
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            out->entries++;
            out->letters += strlen(entry->d_name);
            out->directories += entry->d_type == DT_DIR;
        }
    PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
}

/* Memory gives directories no blocks. What has some is the user's own, as it is at home; where those have none either, the
 * same comes out for them. */
static bool is_of_memory(dev_t device, uint64_t blocks) {
    return ps_in_memory() && device == atomic_load(&ps->device) && !blocks;
}

static uint64_t size_of(const struct count *count) {
    const struct ps_measure *m = &ps->measure;
    return m->size + m->size_of_entry * count->entries + m->size_of_letter * count->letters;
}

static uint64_t links_of(const struct count *count) {
    return ps->measure.links + ps->measure.links_of_directory * count->directories;
}

/* `links` as the kernel tells them: two, and one for each directory in it; one if it stands over another. */
static struct count counted(int dirfd, const char *path, uint64_t links) {
    const struct ps_measure *m = &ps->measure;
    struct count count = {.directories = links < 2 ? 0 : links - 2};
    if (m->size_of_entry || m->size_of_letter || (links < 2 && m->links_of_directory)) {
        count.directories = 0;
        count_entries(dirfd, path, &count);
    }
    return count;
}

bool ps_as_at_home(int dirfd, const char *path, struct stat *out) {
    if (!is_of_memory(out->st_dev, (uint64_t)out->st_blocks)) return false;
    struct count count = counted(dirfd, path, out->st_nlink);
    out->st_size = (off_t)size_of(&count);
    out->st_blocks = (blkcnt_t)ps->measure.blocks;
    out->st_blksize = (blksize_t)ps->measure.block_bytes;
    out->st_nlink = (nlink_t)links_of(&count);
    return true;
}

bool ps_as_at_home_extended(int dirfd, const char *path, unsigned asked, struct statx *out) {
    if (!is_of_memory(makedev(out->stx_dev_major, out->stx_dev_minor), out->stx_blocks)) return false;
    out->stx_blksize = (uint32_t)ps->measure.block_bytes;
    if (!(asked & (STATX_SIZE | STATX_NLINK | STATX_BLOCKS))) return true;
    struct count count = counted(dirfd, path, out->stx_nlink);
    out->stx_size = size_of(&count);
    out->stx_blocks = ps->measure.blocks;
    out->stx_nlink = (uint32_t)links_of(&count);
    return true;
}
