/* Directory listings of supervised programs: whole, when the directory is final, without what batch order would not show. */
#include "supervisor.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 65536u

/* Whether batch order shows the entry; one that the program's own step made is there. */
static bool is_shown(const struct ps_path *directory, const char *entry) {
    char name[PS_PATH_ROOM];
    size_t bytes = directory->bytes == 1 && directory->name[0] == '.' ? 0 : directory->bytes, more = strlen(entry);
    if (!strcmp(entry, ".") || !strcmp(entry, "..") || bytes + more + 2 > sizeof name) return true;
    memcpy(name, directory->name, bytes);
    if (bytes) name[bytes++] = '/';
    memcpy(name + bytes, entry, more);
    uint32_t slot = ps_lookup(name, bytes + more);
    return slot == PS_NONE || ps_listable(slot, ps_self_app, UINT64_MAX);
}

static long without_later_ones(const struct ps_path *directory, char *buffer, long got) {
    long kept = 0;
    for (long at = 0; at < got;) {
        struct dirent64 *entry = (struct dirent64 *)(buffer + at);
        unsigned short bytes = entry->d_reclen;
        if (is_shown(directory, entry->d_name)) {
            memmove(buffer + kept, entry, bytes);
            kept += bytes;
        }
        at += bytes;
    }
    return kept;
}

/* Through the program's own description, whose position moves as if it had listed itself. */
static long list_for(const struct ps_call *call, const struct ps_path *directory, int fd) {
    size_t room = call->arguments[2] > ROOM ? ROOM : (size_t)call->arguments[2];
    char *buffer = malloc(ROOM);
    if (!buffer) return -ENOMEM;
    long got, kept = 0;
    do {
        got = PS_KERNEL(SYS_getdents64, fd, buffer, room, 0, 0, 0);
        if (got > 0) kept = without_later_ones(directory, buffer, got);
    } while (got > 0 && !kept);
    struct iovec here = {buffer, (size_t)kept}, there = {(void *)call->arguments[1], (size_t)kept};
    if (kept > 0 && PS_KERNEL(SYS_process_vm_writev, call->tid, &here, 1, &there, 1, 0) != kept) got = -EFAULT;
    free(buffer);
    return got <= 0 ? got : kept;
}

long ps_list(const struct ps_call *call) {
    char path[PS_PATH_ROOM], room[PS_PATH_ROOM];
    struct ps_path directory;
    if (ps_tracee_descriptor_path(call, (int)call->arguments[0], path) || path[0] != '/' ||
        ps_place_of(AT_FDCWD, path, room, &directory) != PS_INSIDE)
        return PS_GO_ON;
    uint32_t slot = ps_slot_of(&directory);
    if (slot == PS_NONE || !ps_awaited(slot, ps_self_app)) return PS_GO_ON;
    int error;
    while ((error = ps_wait_committed(slot, ps_self_app)) == EINTR) {}
    if (error) return -error;
    if (call->number != SYS_getdents64 || !ps_still_waits(call)) return PS_GO_ON;
    int fd = ps_tracee_descriptor(call, (int)call->arguments[0]);
    if (fd < 0) return PS_GO_ON;
    long result = list_for(call, &directory, fd);
    PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
    return result;
}
