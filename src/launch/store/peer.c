/* The owner of the other end of a connection within this machine.
 *
 * A Unix socket reports it (SO_PEERCRED). For TCP the kernel is asked for the other end's
 * socket, by both addresses (sock_diag), or if that is not built in, its list is read. Either
 * names the user who made the socket. A closed socket has no inode any more, and its user is
 * unknown. */
#include "launch/store/net.h"
#include "launch/store/proc_net.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static choir__whose judge(unsigned uid, unsigned long inode)
{
    return !inode ? CHOIR__NOBODYS : uid == geteuid() ? CHOIR__OURS : CHOIR__NOT_OURS;
}

/* --- sock_diag --- */

static void put_end(const choir__address *a, __be16 *port, __be32 address[4])
{
    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&a->at;
        memcpy(address, &in->sin6_addr, sizeof in->sin6_addr);
        *port = in->sin6_port;
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a->at;
        address[0] = in->sin_addr.s_addr;
        *port = in->sin_port;
    }
}

static choir__whose ask(const choir__address *self, const choir__address *peer)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } request = {.head = {.nlmsg_len = sizeof request,
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (__u8)self->at.ss_family,
            .sdiag_protocol = IPPROTO_TCP,
            .idiag_states = ~0u,
            .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    put_end(peer, &request.body.id.idiag_sport, request.body.id.idiag_src);
    put_end(self, &request.body.id.idiag_dport, request.body.id.idiag_dst);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0)
        return CHOIR__CANNOT_TELL;
    ssize_t n = -1;
    if (send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request) /* answered at once */
        n = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    close(fd);
    if (n < (ssize_t)sizeof answer.head || !NLMSG_OK(&answer.head, (size_t)n))
        return CHOIR__CANNOT_TELL;
    if (answer.head.nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *error = NLMSG_DATA(&answer.head);
        return answer.head.nlmsg_len >= NLMSG_LENGTH(sizeof *error) && error->error == -ENOENT
                   ? CHOIR__NOBODYS
                   : CHOIR__CANNOT_TELL;
    }
    const struct inet_diag_msg *found = NLMSG_DATA(&answer.head);
    if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        answer.head.nlmsg_len < NLMSG_LENGTH(sizeof *found))
        return CHOIR__CANNOT_TELL;
    return judge(found->idiag_uid, found->idiag_inode);
}

/* --- /proc --- */

typedef struct ends {
    char self[48], peer[48]; /* addresses in the other end's line */
    choir__whose whose;
} ends;

static bool is_other_end(const choir__proc_line *l, void *arg)
{
    ends *w = arg;
    if (strcmp(l->self, w->self) != 0 || strcmp(l->peer, w->peer) != 0)
        return false;
    w->whose = judge(l->uid, l->inode);
    return true;
}

static void in_hex(const choir__address *a, char text[48])
{
    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&a->at;
        uint32_t w[4];
        memcpy(w, &in->sin6_addr, sizeof w);
        snprintf(
            text, 48, "%08X%08X%08X%08X:%04X", w[0], w[1], w[2], w[3], ntohs(in->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a->at;
        snprintf(text, 48, "%08X:%04X", in->sin_addr.s_addr, ntohs(in->sin_port));
    }
}

choir__whose choir__net_peer_by_list(const choir__address *self, const choir__address *peer)
{
    ends w = {.whose = CHOIR__NOBODYS};
    bool readable = false;
    in_hex(peer, w.self);
    in_hex(self, w.peer);
    const char *list = self->at.ss_family == AF_INET6 ? choir__proc_tcp6 : choir__proc_tcp;
    for (int tries = 0; tries < 3; tries++) /* a list read while it changes may lack lines */
        if (choir__proc_net(list, is_other_end, &w, &readable))
            return w.whose;
    return readable ? CHOIR__NOBODYS : CHOIR__CANNOT_TELL;
}

/* --- either --- */

choir__whose choir__net_peer(int fd)
{
    choir__address self, peer = {.length = sizeof peer.at};
    struct ucred c;
    socklen_t length = sizeof c;
    if (!choir__net_self(fd, &self) ||
        getpeername(fd, (struct sockaddr *)&peer.at, &peer.length))
        return CHOIR__NOBODYS;
    if (choir__net_is_unix(&self))
        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &length) == 0 && c.uid == geteuid()
                   ? CHOIR__OURS
                   : CHOIR__NOT_OURS;
    choir__whose whose = ask(&self, &peer);
    return whose == CHOIR__CANNOT_TELL ? choir__net_peer_by_list(&self, &peer) : whose;
}
