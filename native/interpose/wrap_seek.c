/* lseek. A consumer that asks where the file ends, or where its holes are, waits for the commit. */
#include "interpose.h"

static off_t seek(struct ps_description *d, int fd, off_t offset, int whence) {
    if (d->flags & PS_D_WAITS && whence != SEEK_SET && whence != SEEK_CUR) {
        int error = ps_await_slot(d->slot, PS_NEED_STAT); /* a size is asked for, in a way */
        if (error) return ps_fail(error);
    }
    bool locked = ps_description_lock(d);
    off_t at = REAL(lseek)(fd, offset, whence);
    if (at >= 0 && ps_tracked(fd) == d) atomic_store_explicit(&d->offset, at, memory_order_relaxed);
    if (locked) ps_description_unlock(d);
    void *listing = at == 0 ? atomic_load(&d->listing) : NULL;
    if (listing) ps_listing_rewind(listing);
    return at;
}

PS_WRAPS off_t lseek(int fd, off_t offset, int whence) {
    struct ps_description *d = ps_tracked(fd);
    return !d ? REAL(lseek)(fd, offset, whence) : seek(d, fd, offset, whence);
}
PS_WRAPS off64_t lseek64(int fd, off64_t offset, int whence) { return lseek(fd, offset, whence); }
