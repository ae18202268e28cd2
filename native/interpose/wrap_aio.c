/* Asynchronous I/O. Threads of libc do that of POSIX, and the kernel its own (io_submit, which libaio makes without libc),
 * behind every wrapper: so a consumer's request waits before it is made. A producer's bytes are published when it takes the
 * result from libc; what nobody takes, and what the kernel writes, counts at the commit. */
#include "interpose.h"

#include <aio.h>
#include <linux/aio_abi.h>

_Static_assert(sizeof(struct aiocb) == sizeof(struct aiocb64), "one aiocb for both");

/* 0 or errno. */
static int await_bytes(int fd, uint64_t start, uint64_t bytes) {
    struct ps_description *d = ps_tracked(fd);
    if (!d || !(d->flags & PS_D_WAITS)) return 0;
    /* Nobody knows when it is read: the bytes stay. */
    if (ps_flags_of(d->slot) & PS_TEMPORARY_FILE) ps_set_flags(ps_now(d->slot), PS_READS_BACK, 0);
    int error;
    while ((error = ps_wait_range(d->slot, ps_self_app, start, start + bytes, fd)) == EINTR) {}
    return error;
}

static int await_request(struct aiocb *request) {
    if (request->aio_lio_opcode != LIO_READ) return 0;
    return await_bytes(request->aio_fildes, (uint64_t)request->aio_offset, request->aio_nbytes);
}

/* The field says for lists what a request does; here it is kept for the result. */
static int begin(struct aiocb *request, int operation, int (*real)(struct aiocb *)) {
    if (!request) return real(request);
    request->aio_lio_opcode = operation;
    int error = await_request(request);
    return error ? ps_fail(error) : real(request);
}

PS_WRAPS int aio_read(struct aiocb *request) { return begin(request, LIO_READ, REAL(aio_read)); }
PS_WRAPS int aio_read64(struct aiocb64 *request) { return aio_read((struct aiocb *)request); }
PS_WRAPS int aio_write(struct aiocb *request) { return begin(request, LIO_WRITE, REAL(aio_write)); }
PS_WRAPS int aio_write64(struct aiocb64 *request) { return aio_write((struct aiocb *)request); }

PS_WRAPS int lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *event) {
    for (int i = 0; i < n; i++) {
        int error = list[i] ? await_request(list[i]) : 0;
        if (error) return ps_fail(error);
    }
    return REAL(lio_listio)(mode, list, n, event);
}
PS_WRAPS int lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *event) {
    return lio_listio(mode, (struct aiocb *const *)list, n, event);
}

PS_WRAPS ssize_t aio_return(struct aiocb *request) {
    ssize_t put = REAL(aio_return)(request);
    struct ps_description *d = put > 0 && request->aio_lio_opcode == LIO_WRITE ? ps_tracked(request->aio_fildes) : NULL;
    if (d && (d->flags & (PS_D_WRITES | PS_D_APPENDS)) == PS_D_WRITES) /* where an append went is not known */
        ps_note_written(d, (uint64_t)request->aio_offset, (uint64_t)request->aio_offset + (uint64_t)put);
    return put;
}
PS_WRAPS ssize_t aio_return64(struct aiocb64 *request) { return aio_return((struct aiocb *)request); }

/* ---- the kernel's own ----------------------------------------------------------------------------------------------- */

static int await_submitted(const struct iocb *request) {
    int fd = (int)request->aio_fildes;
    uint64_t start = (uint64_t)request->aio_offset, bytes = request->aio_nbytes;
    if (request->aio_lio_opcode == IOCB_CMD_PREADV && bytes <= 1024) /* of a list, whose length this is */
        return await_bytes(fd, start, ps_iov_bytes((const struct iovec *)(uintptr_t)request->aio_buf, (int)bytes));
    return request->aio_lio_opcode == IOCB_CMD_PREAD ? await_bytes(fd, start, bytes) : 0;
}

long ps_io_submit(unsigned long context, long n, void *list) {
    struct iocb **requests = list;
    for (long i = 0; requests && i < n; i++) {
        int error = requests[i] ? await_submitted(requests[i]) : 0;
        if (error) return ps_fail(error);
    }
    return REAL(syscall)(SYS_io_submit, context, n, list);
}

/* libaio's: a failure is a negative errno value. */
PS_WRAPS int io_submit(void *context, long n, void *list);
PS_WRAPS int io_submit(void *context, long n, void *list) {
    int kept = errno;
    long result = ps_io_submit((unsigned long)context, n, list);
    if (result < 0) result = -errno;
    errno = kept;
    return (int)result;
}
