/* What supervised programs have open for writing. Their writes and closes are not seen; the kernel tells (inotify) when the
 * last descriptor, mapping or child of an opened file is gone. Only then its bytes are known, all at once.
 *
 * Whoever is killed has closed nothing: what it held is let go when its step is over, as with the library. In doubt (others
 * write the file too) a file is held until the programs have ended: later, never earlier. */
#include "supervisor.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

struct held {
    struct held *next;
    struct ps_description *d;
    pid_t opener;
    bool goodbye; /* the opener has ended, or is about to, by itself */
    int watch;    /* -1: the kernel will not tell */
    struct timespec changed;
    off_t bytes; /* when it was opened */
};

static struct held *all;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int events = -1;

int ps_writers_start(void) { return events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC); }

void ps_writers_add(struct ps_description *d, int fd, pid_t opener) {
    struct held *held = calloc(1, sizeof *held);
    struct stat found = {0};
    char path[32];
    if (!held) return; /* the table has it until the supervisor ends */
    PS_KERNEL(SYS_fstat, fd, &found, 0, 0, 0, 0);
    *held = (struct held){.d = d, .opener = opener, .watch = -1, .changed = found.st_mtim, .bytes = found.st_size};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    pthread_mutex_lock(&mutex);
    /* The opens keep closes apart: two alike that follow each other become one. */
    if (events >= 0) held->watch = inotify_add_watch(events, path, IN_CLOSE_WRITE | IN_OPEN);
    held->next = all;
    all = held;
    pthread_mutex_unlock(&mutex);
}

static bool is_changed(const struct held *held, const struct stat *now) {
    return now->st_size != held->bytes || ps_nanoseconds(&now->st_mtim) != ps_nanoseconds(&held->changed);
}

/* The file is as its writer left it. One that was there, and that nothing was done to, counts as not written. */
static void close_it(struct held *held) {
    char path[PS_PATH_ROOM];
    struct stat found;
    uint32_t bytes, slot = ps_now(held->d->slot);
    const char *name = ps_name(slot, &bytes);
    bool there = ps_absolute(name, bytes, path, sizeof path) &&
                 !PS_KERNEL(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW, 0, 0) && S_ISREG(found.st_mode);
    bool untouched = held->d->flags & (PS_D_IDLE | PS_D_FOREIGN) && there && !is_changed(held, &found);
    if (there && !untouched) {
        ps_note_touched(held->d, 0);
        ps_written_by(held->d->slot, 0, (uint64_t)found.st_size, false);
    }
    ps_description_drop(held->d);
    free(held);
}

static bool is_alive(pid_t pid) {
    char path[32], text[1024], state = 'X';
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    long fd = PS_KERNEL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    long bytes = fd < 0 ? 0 : PS_KERNEL(SYS_read, fd, text, sizeof text - 1, 0, 0, 0);
    if (fd >= 0) PS_KERNEL(SYS_close, fd, 0, 0, 0, 0, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2) return false;
    return state != 'Z' && state != 'X' && !(flags & 4); /* PF_EXITING: the kernel closes for it */
}

static uint32_t count_of(uint32_t slot) {
    uint32_t n = 0;
    for (struct held *held = all; held; held = held->next) n += ps_now(held->d->slot) == slot;
    return n;
}

static bool is_the_last(const struct held *held) {
    uint32_t slot = ps_now(held->d->slot);
    if (held->d->holding == PS_NONE) return true; /* not counted */
    return (uint32_t)atomic_load(&ps_slot(slot)->writers) <= count_of(slot);
}

/* One description of that file is gone: whose, if several have it, is all the same but for those who were killed. */
static void one_closed(int watch) {
    struct held **found = NULL;
    unsigned n = 0;
    for (struct held **at = &all; *at; at = &(*at)->next) {
        if ((*at)->watch != watch) continue;
        n++;
        if ((*at)->goodbye || is_alive((*at)->opener)) found = at;
    }
    if (!found || !is_the_last(*found)) return;
    struct held *held = *found;
    *found = held->next;
    if (n == 1) inotify_rm_watch(events, watch);
    close_it(held);
}

void ps_writers_events(void) {
    char room[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    pthread_mutex_lock(&mutex);
    for (long bytes; (bytes = PS_KERNEL(SYS_read, events, room, sizeof room, 0, 0, 0)) > 0;)
        for (long at = 0; at < bytes;) {
            const struct inotify_event *event = (const struct inotify_event *)(room + at);
            if (event->mask & IN_CLOSE_WRITE) one_closed(event->wd);
            at += (long)(sizeof *event + event->len);
        }
    pthread_mutex_unlock(&mutex);
}

void ps_writers_goodbye(pid_t process) {
    pthread_mutex_lock(&mutex);
    for (struct held *held = all; held; held = held->next)
        if (held->opener == process) held->goodbye = true;
    pthread_mutex_unlock(&mutex);
}

void ps_writers_inherited(void) {
    uint64_t size;
    unsigned mode;
    bool of_this_run;
    for (uint32_t handle = 0; handle < PS_HELD; handle++) {
        uint32_t bytes, slot = ps_held_slot(ps_self, handle);
        if (slot == PS_NONE) continue;
        const char *name = ps_name(ps_now(slot), &bytes);
        if (ps_stat_name(name, bytes, &size, &mode, &of_this_run) || !of_this_run) continue;
        ps_writer_wrote(ps_self, handle, slot, ps_self_app);
        ps_written_by(slot, 0, size, false);
        ps_writer_told(ps_self, handle);
    }
}

bool ps_writers_end(void) {
    bool orderly = true;
    pthread_mutex_lock(&mutex);
    for (struct held *next, *held = all; held; held = next) {
        next = held->next;
        if (held->goodbye) close_it(held);
        else orderly = false;
    }
    pthread_mutex_unlock(&mutex);
    return orderly;
}
