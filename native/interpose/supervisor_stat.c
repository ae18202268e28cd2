/* stat of directories in memory, which the user's disk has other numbers for: those are told from here. All else is the kernel's. */
#include "supervisor.h"

union found {
    struct stat plain;
    struct statx extended;
};

static bool tell_plain(const char *path, int flags, union found *out) {
    return !PS_KERNEL(SYS_newfstatat, AT_FDCWD, path, &out->plain, flags & AT_SYMLINK_NOFOLLOW, 0, 0) &&
           S_ISDIR(out->plain.st_mode) && ps_as_at_home(AT_FDCWD, path, &out->plain);
}

static bool tell_extended(const char *path, int flags, unsigned asked, union found *out) {
    flags &= AT_SYMLINK_NOFOLLOW | AT_STATX_SYNC_TYPE;
    return !PS_KERNEL(SYS_statx, AT_FDCWD, path, flags, asked, &out->extended, 0) && S_ISDIR(out->extended.stx_mode) &&
           ps_as_at_home_extended(AT_FDCWD, path, asked, &out->extended);
}

long ps_tell(const struct ps_call *call, long waited, int dirfd, uint64_t from, int flags, uint64_t to) {
    char path[PS_PATH_ROOM];
    struct ps_tracee tracee;
    union found found;
    if (waited != PS_GO_ON || !atomic_load(&ps->device)) return waited;
    if (from ? ps_tracee_path(call, dirfd, from, path) : ps_tracee_descriptor_path(call, dirfd, path)) return PS_GO_ON;
    bool is_extended = call->number == SYS_statx;
    if (!(is_extended ? tell_extended(path, flags, (unsigned)call->arguments[3], &found) : tell_plain(path, flags, &found)))
        return PS_GO_ON;
    if (!ps_tracee(call, &tracee) || tracee.user != geteuid() || !ps_still_waits(call)) return PS_GO_ON;
    return ps_tracee_give(call, to, &found, is_extended ? sizeof found.extended : sizeof found.plain) ? PS_GO_ON : 0;
}
