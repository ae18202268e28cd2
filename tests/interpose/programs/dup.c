#include "family.h"
#include <sys/socket.h>

static void send_fd(int to, int fd) {
    char room[CMSG_SPACE(sizeof fd)] = "", one = 'x';
    struct iovec iov = {&one, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    sendmsg(to, &m, 0);
}

static int receive_fd(int from) {
    char room[CMSG_SPACE(sizeof(int))], one;
    struct iovec iov = {&one, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    recvmsg(from, &m, 0);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

int main(void) {
    int fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644), pair[2];
    int copy = dup(fd);
    SHOW(write(fd, "one ", 4)), SHOW(write(copy, "two ", 4));
    SHOW(dup2(fd, 40)), SHOW(write(40, "three ", 6));
    SHOW(dup2(fd, fd) == fd), SHOW(dup2(-1, 41)), SHOW(dup3(fd, fd, 0));
    SHOW(dup3(fd, 41, O_CLOEXEC)), SHOW(fcntl(41, F_GETFD));
    SHOW(fcntl(fd, F_DUPFD, 50)), SHOW(fcntl(fd, F_DUPFD_CLOEXEC, 51)), SHOW(write(51, "four ", 5));
    SHOW(fcntl(50, F_SETFD, FD_CLOEXEC)), SHOW(fcntl64(50, F_GETFD));
    SHOW(fcntl(fd, F_SETFL, O_APPEND)), SHOW(fcntl(fd, F_GETFL) & O_APPEND);
    SHOW(lseek(fd, 0, SEEK_SET)), SHOW(write(fd, "five ", 5));
    SHOW(close(fd)), SHOW(close(fd)), SHOW(lseek(copy, 0, SEEK_CUR));
    SHOW(close_range(50, 51, 0)), SHOW(write(51, "x", 1));
    closefrom(41);
    SHOW(write(41, "x", 1)), SHOW(write(40, "six ", 4));
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    send_fd(pair[0], 40), SHOW(close(40));
    int received = receive_fd(pair[1]);
    SHOW(write(received, "seven", 5)), SHOW(close(received)), SHOW(close(copy));
    show_file("out");
    struct flock lock = {.l_type = F_WRLCK};
    fd = open("out", O_RDWR);
    SHOW(fcntl(fd, F_SETLK, &lock));
    int other = open("tmp", O_WRONLY | O_CREAT | O_TRUNC, 0644); /* a managed descriptor is replaced by another */
    SHOW(write(other, "before", 6)), SHOW(dup2(fd, other) == other), SHOW(write(other, "AFTER", 5));
    show_file("tmp"), show_file("out");
    return 0;
}
