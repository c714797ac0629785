/* Sockets for the store: addresses, who holds a port, whose process is at the other end.
 * All sockets are non-blocking and closed on exec. */
#ifndef CHOIR_LAUNCH_STORE_NET_H
#define CHOIR_LAUNCH_STORE_NET_H

#include <stdbool.h>
#include <sys/socket.h>
#include <choir/status.h>

typedef struct choir__address {
    struct sockaddr_storage at;
    socklen_t length;
} choir__address;

enum { CHOIR__ADDRESSES_MAX = 8 };

/* The addresses of a host name, an address, or "unix:NAME" (then port counts for nothing).
 * passive: to listen at. Returns how many; 0 and why, `again` if it may work later. */
int choir__net_resolve(const char *host, int port, bool passive,
    choir__address list[CHOIR__ADDRESSES_MAX], char why[200], bool *again);

/* Only this machine's processes can reach it: loopback, or a Unix socket. */
bool choir__net_is_here(const choir__address *address);
bool choir__net_is_unix(const choir__address *address);
int choir__net_port(const choir__address *address); /* 0: a Unix socket */

/* "10.0.0.5:29500", "[::1]:29500", "unix:NAME" */
const char *choir__net_text(const choir__address *address, char text[160]);

/* Its host as choir__net_resolve takes it; "127.0.0.1" for one that stands for all. */
const char *choir__net_host(const choir__address *address, char host[160]);

/* -1 and errno. */
int choir__net_listen(const choir__address *address);
int choir__net_connect(const choir__address *address, double deadline);
int choir__net_accept(int listener, choir__address *from);
bool choir__net_self(int fd, choir__address *address); /* this end's own address */

/* False: the deadline (of choir__now) has passed. events: POLLIN, POLLOUT. */
bool choir__net_await(int fd, short events, double deadline);

/* Who listens at the port: "pid 123 (choir)", "a process of user id 7"; "another process" if
 * that is all that can be told. */
const char *choir__net_holder(int port, char text[160]);

typedef enum choir__whose {
    CHOIR__OURS,
    CHOIR__NOT_OURS,
    CHOIR__NOBODYS, /* it was closed, or is not accepted yet */
    CHOIR__CANNOT_TELL,
} choir__whose;

/* Whether a process of our user id holds the other end of a connection within this machine:
 * SO_PEERCRED of a Unix socket, else the kernel is asked. */
choir__whose choir__net_peer(int fd);

/* The same by reading the list, which takes longer the longer it is. */
choir__whose choir__net_peer_by_list(const choir__address *self, const choir__address *peer);

#endif
