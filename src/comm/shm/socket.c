/* Unix sockets between the ranks of a machine.
 *
 * The addresses are abstract, "choir/KEY" for rank 0 and "choir/KEY/RANK/WORLD/NONCE" for a
 * rank that connects to it. So accept() alone identifies the caller, and no caller can block
 * the others by staying silent. KEY is 64 bits of a hash of the job's name: every user can read
 * it in /proc/net/unix, but the 128 random bits of a job's name cannot be recovered from it.
 * Other users are kept out because both sides ask the kernel (SO_PEERCRED) whether the peer has
 * their own user id. */
#include "comm/shm/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FDS_MAX = 64 };

/* Makes an address; name follows the zero byte that marks it as abstract. */
static socklen_t address(struct sockaddr_un *a, const char *name)
{
    size_t length = strlen(name);
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    memcpy(a->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static void close_keeping_errno(int fd)
{
    int why = errno;
    close(fd);
    errno = why;
}

/* Returns true if the peer has our user id; on the connecting side, the peer is the process
 * that called listen(). */
static bool trusted(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           peer.uid == geteuid();
}

int choir__socket_peer_pid(int fd)
{
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    return peer.pid;
}

int choir__socket_listen(uint64_t key)
{
    struct sockaddr_un a;
    char name[64];
    snprintf(name, sizeof name, "choir/%016" PRIx64, key);
    socklen_t length = address(&a, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&a, length) || listen(fd, 4 * FDS_MAX)) {
        close_keeping_errno(fd);
        return -1;
    }
    return fd;
}

int choir__socket_connect(uint64_t key, int rank, int world)
{
    struct sockaddr_un a;
    char name[96];
    uint64_t nonce = 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        goto failed;
    snprintf(
        name, sizeof name, "choir/%016" PRIx64 "/%d/%d/%016" PRIx64, key, rank, world, nonce);
    if (bind(fd, (struct sockaddr *)&a, address(&a, name)))
        goto failed;
    snprintf(name, sizeof name, "choir/%016" PRIx64, key);
    if (connect(fd, (struct sockaddr *)&a, address(&a, name)))
        goto failed;
    if (!trusted(fd)) {
        errno = EPERM;
        goto failed;
    }
    return fd;
failed:
    close_keeping_errno(fd);
    return -1;
}

int choir__socket_accept(int listener, uint64_t key, int *rank, int *world)
{
    struct sockaddr_un a;
    socklen_t length = sizeof a;
    memset(&a, 0, sizeof a);
    int fd = accept4(listener, (struct sockaddr *)&a, &length, SOCK_CLOEXEC);
    if (fd < 0)
        return -1;
    uint64_t theirs = 0;
    char name[sizeof a.sun_path + 1] = "";
    size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    if (length > head)
        memcpy(name, a.sun_path + 1, length - head);
    if (!trusted(fd) || sscanf(name, "choir/%16" SCNx64 "/%d/%d/", &theirs, rank, world) != 3 ||
        theirs != key) {
        close(fd);
        errno = 0;
        return -1;
    }
    return fd;
}

bool choir__socket_send(int fd, const void *data, size_t bytes, const int *fds, int fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {(void *)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count) {
        size_t length = (size_t)fd_count * sizeof(int);
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(length);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(length);
        memcpy(CMSG_DATA(c), fds, length);
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes;
}

bool choir__socket_receive(
    int fd, void *data, size_t bytes, int *fds, int fd_room, int *fd_count)
{
    /* A peer that closes before it has read our message causes a reset; its last message is
     * still readable after that. */
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {data, bytes};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control};
    ssize_t got;
    int resets = 0;
    do
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !resets++)));
    *fd_count = 0;
    for (struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&message) : NULL; c;
         c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < count; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof passed);
            if (*fd_count < fd_room)
                fds[(*fd_count)++] = passed;
            else
                close(passed);
        }
    }
    if (got >= 0)
        errno = got == 0 ? 0 : EPROTO;
    return got == (ssize_t)bytes;
}
