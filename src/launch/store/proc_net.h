/* The kernel's list of TCP sockets, /proc/net/tcp.
 *
 * The list has one line per socket: both addresses in hexadecimal (the address in the machine's
 * byte order, the port in the usual one), state, user id and inode. A process has the inode
 * among its descriptors. A socket that no process holds any more shows inode 0 and user id 0,
 * so its user id means nothing. */
#ifndef CHOIR_LAUNCH_STORE_PROC_NET_H
#define CHOIR_LAUNCH_STORE_PROC_NET_H

#include "base/base.h"

typedef struct choir__proc_line {
    char self[48], peer[48]; /* "0100007F:07E8" */
    unsigned state, uid;
    unsigned long inode;
} choir__proc_line;

static const char choir__proc_tcp[] = "/proc/thread-self/net/tcp";
static const char choir__proc_tcp6[] = "/proc/thread-self/net/tcp6";

/* Calls seen() for each line until it returns true; returns false if it never did. *readable:
 * the list could be read. */
bool choir__proc_net(const char *path, bool (*seen)(const choir__proc_line *, void *),
    void *arg, bool *readable);

#endif
