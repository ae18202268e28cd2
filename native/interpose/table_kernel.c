/* What the kernel knows: the second witness of writes, the times of files, the lives of processes.
 *
 * Asked only when a wait has slept for a while. Descriptors made here live for one question.
 */
#include "table_sys.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/stat.h>

int (*ps_say_through)(void);

void ps_say(const char *format, ...) {
    static _Atomic uint32_t said;
    char line[PS_NAME_MAX + 512];
    if (atomic_fetch_add(&said, 1) >= 20) return; /* a program that tries again and again */
    va_list words;
    va_start(words, format);
    int bytes = vsnprintf(line, sizeof line - 1, format, words);
    va_end(words);
    if (bytes < 0) return;
    if ((size_t)bytes > sizeof line - 2) bytes = (int)sizeof line - 2;
    line[bytes++] = '\n';
    int fd = ps_say_through ? ps_say_through() : 2;
    ps_sys(SYS_write, fd, (long)line, bytes, 0, 0, 0);
    if (ps_say_through) ps_sys(SYS_close, fd, 0, 0, 0, 0, 0);
}

uint64_t ps_birth_of(pid_t pid, char *state) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    long fd = ps_sys(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0) return 0;
    long bytes = ps_sys(SYS_read, fd, (long)text, sizeof text - 1, 0, 0, 0);
    ps_sys(SYS_close, fd, 0, 0, 0, 0, 0);
    if (bytes <= 0) return 0;
    text[bytes] = 0;
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || at[1] != ' ') return 0;
    at += 2; /* field 3 */
    *state = *at;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (!at++) return 0;
    }
    return strtoull(at, NULL, 10);
}

bool ps_server_lives(void) {
    pid_t pid = atomic_load(&ps->server_pid);
    char state = 'R';
    if (pid == 0) return true; /* it has made the table and is about to start */
    if (ps_sys(SYS_kill, pid, 0, 0, 0, 0, 0) == -ESRCH) return false;
    uint64_t birth = ps_birth_of(pid, &state);
    if (birth == 0) return true; /* no /proc: its number is all there is */
    return birth == atomic_load(&ps->server_birth) && state != 'Z' && state != 'X';
}

static uint64_t nanoseconds(const struct statx_timestamp *time) {
    return time->tv_sec < 0 ? 0 : (uint64_t)time->tv_sec * 1000000000u + time->tv_nsec;
}

int ps_stat_name(const char *name, size_t bytes, uint64_t *size, unsigned *mode, bool *of_this_run) {
    char path[2 * 4096];
    const struct ps_root *root = ps_root(0);
    struct statx found;
    if (root->bytes + bytes + 2 > sizeof path) return ENAMETOOLONG;
    memcpy(path, root->path, root->bytes);
    path[root->bytes] = '/';
    memcpy(path + root->bytes + 1, name, bytes);
    path[root->bytes + 1 + bytes] = 0;
    long error = ps_sys(SYS_statx, AT_FDCWD, (long)path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, (long)&found, 0);
    if (error) return (int)-error;
    *size = found.stx_size;
    *mode = found.stx_mode;
    *of_this_run = nanoseconds(&found.stx_mtime) > ps->started_ns && nanoseconds(&found.stx_ctime) > ps->started_ns;
    return 0;
}

/* Whether bytes that the table does not know are in the file after all: written by a program without the library.
 * The kernel speaks of pages, and a page may hold the first half of a write whose second is still to come. So it is not
 * asked while a program with the library has the file open for writing: that one tells the table itself.
 * A description of its own is asked, since SEEK_HOLE moves the offset. What is seen is published for the next reader. */
bool ps_seen_by_kernel(uint32_t slot, int fd, uint64_t start, uint64_t end) {
    struct ps_slot *s = ps_slots + slot;
    struct statx found;
    char path[32];
    if (fd < 0 || atomic_load(&s->writers) > 0 || (atomic_load(&s->flags) & (PS_MAPPED | PS_REMOTE))) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    long own = ps_sys(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (own < 0) return false;
    bool seen = false;
    uint64_t solid = atomic_load(&s->solid), from = start < solid ? solid : start;
    if (ps_sys(SYS_statx, own, (long)"", AT_EMPTY_PATH, STATX_BASIC_STATS, (long)&found, 0) == 0 &&
        S_ISREG(found.stx_mode) && found.stx_size >= end) {
        long hole = ps_sys(SYS_lseek, own, (long)from, SEEK_HOLE, 0, 0, 0);
        seen = hole > 0 && (uint64_t)hole >= end && !ps_page_known_in_part(slot, from, end);
    }
    ps_sys(SYS_close, own, 0, 0, 0, 0, 0);
    seen = seen && atomic_load(&s->writers) == 0; /* nobody came meanwhile */
    if (seen) ps_written_by(slot, from, end, false);
    return seen;
}
