/* Sockets for the store: addresses, the process that holds a port, and the owner of a
 * connection's other end. All sockets are non-blocking and closed on exec. */
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

/* Resolves a host name, an address, or "unix:NAME" (which ignores port). passive: addresses to
 * listen on. Returns their number, or 0 with the reason in `why`; *again: a later attempt may
 * succeed. */
int choir__net_resolve(const char *host, int port, bool passive,
    choir__address list[CHOIR__ADDRESSES_MAX], char why[200], bool *again);

/* True if only this machine's processes can reach the address: loopback, or a Unix socket. */
bool choir__net_is_here(const choir__address *address);
bool choir__net_is_unix(const choir__address *address);
int choir__net_port(const choir__address *address); /* 0 for a Unix socket */

/* "10.0.0.5:29500", "[::1]:29500", "unix:NAME" */
const char *choir__net_text(const choir__address *address, char text[160]);

/* Returns the address's host in the form that choir__net_resolve accepts; "127.0.0.1" for a
 * wildcard address. */
const char *choir__net_host(const choir__address *address, char host[160]);

/* Return a descriptor, or -1 and errno. */
int choir__net_listen(const choir__address *address);
int choir__net_connect(const choir__address *address, double deadline);
/* Begins to connect: the descriptor becomes writable when that has succeeded or failed. */
int choir__net_begin(const choir__address *address);
int choir__net_accept(int listener, choir__address *from);
/* Sets the seconds without an answer after which a connection's machine counts as gone, in
 * place of half a minute; 0: no change. */
void choir__net_lost_after(int fd, double seconds);
/* Seconds until a machine counts as cut off, if the job continues without it. */
static const double choir__net_cut_off_s = 4;
bool choir__net_self(int fd, choir__address *address); /* this end's own address */

/* Waits for `events` (POLLIN, POLLOUT). Returns false if the deadline (of choir__now) has
 * passed. */
bool choir__net_await(int fd, short events, double deadline);

/* Describes the process that listens on the port: "pid 123 (choir)", "a process of user id 7",
 * or "another process" if nothing more is known. */
const char *choir__net_holder(int port, char text[160]);

typedef enum choir__whose {
    CHOIR__OURS,
    CHOIR__NOT_OURS,
    CHOIR__NOBODYS, /* closed, or not accepted yet */
    CHOIR__CANNOT_TELL,
} choir__whose;

/* Checks whether a process of this user id holds the other end of a connection within this
 * machine: by SO_PEERCRED for a Unix socket, otherwise by asking the kernel. */
choir__whose choir__net_peer(int fd);

/* Like choir__net_peer, but reads the kernel's list, which takes longer the longer it is. Tests
 * call it, too. */
choir__whose choir__net_peer_by_list(const choir__address *self, const choir__address *peer);

#endif
