#include "family.h"
#include <aio.h>
#include <dlfcn.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static ssize_t finish(struct aiocb *request) {
    const struct aiocb *list[] = {request};
    while (aio_error(request) == EINPROGRESS) aio_suspend(list, 1, NULL);
    return aio_return(request);
}

static void show(struct aiocb *request) {
    ssize_t got = finish(request);
    printf("got %zd: %.*s\n", got, got > 0 ? (int)got : 0, (char *)request->aio_buf);
}

/* By the kernel's own calls, as libaio makes them; `by_name`: by libaio's, which only the preloaded library has here. */
static int submitted(const char *way, int fd, size_t bytes) {
    char text[64];
    struct iovec parts[] = {{text, bytes / 2}, {text + bytes / 2, bytes - bytes / 2}};
    struct iocb one = {.aio_fildes = (uint32_t)fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)text};
    struct iocb *list[] = {&one};
    struct io_event event;
    aio_context_t context = 0;
    one.aio_nbytes = bytes, one.aio_offset = 2;
    if (!strcmp(way, "submit_vector"))
        one.aio_lio_opcode = IOCB_CMD_PREADV, one.aio_buf = (uintptr_t)parts, one.aio_nbytes = 2;
    if (syscall(SYS_io_setup, 1, &context)) return puts("absent"), 0;
    int (*by_name)(aio_context_t, long, struct iocb **) = (__typeof__(by_name))dlsym(RTLD_DEFAULT, "io_submit");
    if (!strcmp(way, "submit_by_name")) SHOW(by_name(context, 1, list));
    else SHOW(syscall(SYS_io_submit, context, 1, list));
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1) return 1;
    printf("got %d: %.*s\n", (int)event.res, event.res > 0 ? (int)event.res : 0, text);
    return close(fd);
}

/* aio read|read64|list|list64|submit… NAME BYTES: at offset 2. aio write NAME: tells when it has the result, ends after a line. */
static int asked(char **words) {
    char text[64];
    int reads = strcmp(words[1], "write"), fd = open(words[2], reads ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, 0644);
    struct aiocb request = {.aio_fildes = fd, .aio_buf = text, .aio_lio_opcode = LIO_READ};
    struct aiocb *list[] = {NULL, &request};
    if (!strncmp(words[1], "submit", 6)) return submitted(words[1], fd, (size_t)atoi(words[3]));
    request.aio_nbytes = reads ? (size_t)atoi(words[3]) : 8;
    request.aio_offset = reads ? 2 : 0;
    if (!strcmp(words[1], "read")) SHOW(aio_read(&request));
    if (!strcmp(words[1], "read64")) SHOW(aio_read64((struct aiocb64 *)&request));
    if (!strcmp(words[1], "list")) SHOW(lio_listio(LIO_WAIT, list, 2, NULL));
    if (!strcmp(words[1], "list64")) SHOW(lio_listio64(LIO_NOWAIT, (struct aiocb64 *const *)list, 2, NULL));
    if (!reads) memcpy(text, "by aio!\n", 8), SHOW(aio_write(&request));
    show(&request);
    fflush(stdout);
    if (!reads) getchar();
    return close(fd);
}

int main(int argc, char **argv) {
    char text[16] = "", more[16] = "and more";
    if (argc > 1) return asked(argv);
    int fd = open("out.aio", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct aiocb one = {.aio_fildes = fd, .aio_buf = "some bytes", .aio_nbytes = 10};
    struct aiocb two = {.aio_fildes = fd, .aio_buf = more, .aio_nbytes = 8, .aio_offset = 10, .aio_lio_opcode = LIO_WRITE};
    struct aiocb back = {.aio_fildes = fd, .aio_buf = text, .aio_nbytes = 9, .aio_offset = 5, .aio_lio_opcode = LIO_READ};
    struct aiocb bad = {.aio_fildes = -1, .aio_buf = text, .aio_nbytes = 9};
    struct aiocb *list[] = {&two, NULL};
    SHOW(aio_write(&one)), show(&one);
    SHOW(lio_listio(LIO_WAIT, list, 2, NULL)), show(&two);
    SHOW(aio_read(&back)), show(&back);
    back.aio_offset = 12, back.aio_nbytes = 16;
    SHOW(aio_read64((struct aiocb64 *)&back)), show(&back);
    SHOW(aio_read(&bad) ? errno : finish(&bad));
    SHOW(close(fd));
    int log = open("out.log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    struct aiocb appended = {.aio_fildes = log, .aio_buf = "line\n", .aio_nbytes = 5};
    SHOW(aio_write64((struct aiocb64 *)&appended)), show(&appended);
    SHOW(aio_write(&appended)), show(&appended), SHOW(close(log));
    show_file("out.aio"), show_file("out.log");
    return 0;
}
