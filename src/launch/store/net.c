/* Addresses and connections: names of hosts and "unix:NAME" become socket addresses, and
 * addresses become texts. Sockets are non-blocking and closed on exec. Whether an address is
 * this machine's decides whether a key is needed. */
#include "launch/store/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"

static const char unix_prefix[] = "unix:";

static bool resolve_unix(const char *name, choir__address *a, char why[200])
{
    struct sockaddr_un *un = (struct sockaddr_un *)&a->at;
    size_t length = strlen(name);
    if (!length || length >= sizeof un->sun_path) {
        snprintf(
            why, 200, "a Unix socket's name has 1 to %zu characters", sizeof un->sun_path - 1);
        return false;
    }
    memset(a, 0, sizeof *a);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, name, length); /* the leading zero byte makes it abstract */
    a->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return true;
}

int choir__net_resolve(const char *host, int port, bool passive,
    choir__address list[CHOIR__ADDRESSES_MAX], char why[200], bool *again)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
    struct addrinfo *found = NULL;
    char service[16];
    int count = 0;
    *again = false;
    if (!strncmp(host, unix_prefix, sizeof unix_prefix - 1))
        return resolve_unix(host + sizeof unix_prefix - 1, list, why);
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error) {
        *again = error == EAI_AGAIN || error == EAI_NONAME;
        snprintf(why, 200, "%s", error == EAI_SYSTEM ? choir__why(errno) : gai_strerror(error));
        return 0;
    }
    for (struct addrinfo *i = found; i && count < CHOIR__ADDRESSES_MAX; i = i->ai_next) {
        if (i->ai_addrlen > sizeof list->at)
            continue;
        memcpy(&list[count].at, i->ai_addr, i->ai_addrlen);
        list[count++].length = i->ai_addrlen;
    }
    freeaddrinfo(found);
    return count;
}

bool choir__net_is_unix(const choir__address *address)
{
    return address->at.ss_family == AF_UNIX;
}

bool choir__net_is_here(const choir__address *address)
{
    if (address->at.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address->at;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (address->at.ss_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)&address->at)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(in6) ||
               (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127);
    }
    return choir__net_is_unix(address);
}

int choir__net_port(const choir__address *address)
{
    if (address->at.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&address->at)->sin_port);
    if (address->at.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->at)->sin6_port);
    return 0;
}

const char *choir__net_text(const choir__address *address, char text[160])
{
    char host[INET6_ADDRSTRLEN + 24] = "?";
    if (choir__net_is_unix(address)) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&address->at;
        int length = (int)(address->length - offsetof(struct sockaddr_un, sun_path)) - 1;
        snprintf(text, 160, "unix:%.*s", length > 0 ? length : 0, un->sun_path + 1);
        return text;
    }
    getnameinfo((const struct sockaddr *)&address->at, address->length, host, sizeof host, NULL,
        0, NI_NUMERICHOST);
    bool six = address->at.ss_family == AF_INET6;
    snprintf(text, 160, six ? "[%s]:%d" : "%s:%d", host, choir__net_port(address));
    return text;
}

const char *choir__net_host(const choir__address *address, char host[160])
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)&address->at;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address->at;
    if (choir__net_is_unix(address))
        return choir__net_text(address, host);
    if (address->at.ss_family == AF_INET && in->sin_addr.s_addr == htonl(INADDR_ANY))
        snprintf(host, 160, "127.0.0.1");
    else if (address->at.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr))
        snprintf(host, 160, "127.0.0.1"); /* "::" accepts IPv4 as well */
    else if (getnameinfo((const struct sockaddr *)&address->at, address->length, host, 160,
                 NULL, 0, NI_NUMERICHOST))
        snprintf(host, 160, "127.0.0.1");
    return host;
}

static int close_keeping_errno(int fd)
{
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int new_socket(const choir__address *address)
{
    return socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

/* Makes small messages leave at once, and a vanished machine noticed within half a minute. */
static void tune(int fd, const choir__address *address)
{
    if (choir__net_is_unix(address))
        return;
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25 * 1000);
}

void choir__net_lost_after(int fd, double seconds)
{
    int whole = seconds < 3 ? 2 : (int)seconds;
    if (!(seconds > 0))
        return;
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, whole - 1);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * whole);
}

int choir__net_listen(const choir__address *address)
{
    int fd = new_socket(address);
    if (fd < 0)
        return -1;
    if (!choir__net_is_unix(address))
        set(fd, SOL_SOCKET, SO_REUSEADDR, 1); /* past connections do not hold the port */
    if (address->at.ss_family == AF_INET6)
        set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0); /* "::" accepts IPv4 as well */
    if (bind(fd, (const struct sockaddr *)&address->at, address->length) || listen(fd, 4096))
        return close_keeping_errno(fd);
    return fd;
}

int choir__net_accept(int listener, choir__address *from)
{
    from->length = sizeof from->at;
    int fd = accept4(
        listener, (struct sockaddr *)&from->at, &from->length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        tune(fd, from);
    return fd;
}

bool choir__net_self(int fd, choir__address *address)
{
    address->length = sizeof address->at;
    return getsockname(fd, (struct sockaddr *)&address->at, &address->length) == 0;
}

bool choir__net_await(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - choir__now();
        struct pollfd p = {.fd = fd, .events = events};
        if (left <= 0)
            left = 0;
        int ms = left > 3600 ? 3600 * 1000 : (int)(left * 1000) + (left > 0);
        int n = poll(&p, 1, ms);
        if (n > 0)
            return true;
        if (choir__now() >= deadline)
            return false;
    }
}

int choir__net_begin(const choir__address *address)
{
    int fd = new_socket(address);
    if (fd < 0)
        return -1;
    tune(fd, address);
    if (connect(fd, (const struct sockaddr *)&address->at, address->length) == 0 ||
        errno == EINPROGRESS)
        return fd;
    return close_keeping_errno(fd); /* a Unix listener's full queue: EAGAIN */
}

int choir__net_connect(const choir__address *address, double deadline)
{
    int fd = choir__net_begin(address), error = 0;
    socklen_t length = sizeof error;
    if (fd < 0)
        return -1;
    if (!choir__net_await(fd, POLLOUT, deadline))
        error = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
        error = errno;
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}
