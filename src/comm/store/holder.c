/* Whose socket is that: out of the kernel's lists in /proc.
 *
 * /proc/net/tcp has a line a socket: both addresses in hexadecimal (the address as the machine
 * holds it, the port as people write it), state, user id and inode. A process has the inode
 * among its descriptors. A socket that no process holds any more shows inode 0, and user id 0
 * with it, which says nothing. */
#include "comm/store/net.h"

#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { LISTENING = 0x0A };

typedef struct line {
    char self[48], peer[48]; /* "0100007F:07E8" */
    unsigned state, uid;
    unsigned long inode;
} line;

/* Calls until seen() says that is it; false: it never did. *readable: some list was there. */
static bool look_through(
    const char *path, bool (*seen)(const line *, void *), void *arg, bool *readable)
{
    char text[512];
    line l;
    bool found = false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (!found && fgets(text, sizeof text, file)) {
        *readable = true; /* at least the line of titles */
        if (sscanf(text, " %*d: %47s %47s %x %*s %*s %*s %u %*s %lu", l.self, l.peer, &l.state,
                &l.uid, &l.inode) == 5)
            found = seen(&l, arg);
    }
    fclose(file);
    return found;
}

static const char tcp[] = "/proc/thread-self/net/tcp", tcp6[] = "/proc/thread-self/net/tcp6";

/* --- who listens at a port --- */

typedef struct listening {
    int port;
    line found;
} listening;

static bool is_listening(const line *l, void *arg)
{
    listening *w = arg;
    const char *colon = strrchr(l->self, ':');
    if (l->state != LISTENING || !colon || strtol(colon + 1, NULL, 16) != w->port)
        return false;
    w->found = *l;
    return true;
}

static bool holds(const char *pid, const char *wanted)
{
    char path[300], link[64];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *folder = opendir(path);
    struct dirent *e;
    bool found = false;
    if (!folder)
        return false;
    while (!found && (e = readdir(folder))) {
        ssize_t n = readlinkat(dirfd(folder), e->d_name, link, sizeof link - 1);
        if (n > 0) {
            link[n] = '\0';
            found = !strcmp(link, wanted);
        }
    }
    closedir(folder);
    return found;
}

static void name_process(const char *pid, char text[160])
{
    char path[300], name[64] = "";
    snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(name, sizeof name, file))
            name[strcspn(name, "\n")] = '\0';
        fclose(file);
    }
    snprintf(text, 160, "pid %.20s (%s)", pid, *name ? name : "?");
}

const char *choir__net_holder(int port, char text[160])
{
    listening w = {.port = port};
    bool readable = false;
    char wanted[64];
    snprintf(text, 160, "another process");
    if (!look_through(tcp, is_listening, &w, &readable) &&
        !look_through(tcp6, is_listening, &w, &readable))
        return text;
    snprintf(text, 160, "a process of user id %u", w.found.uid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", w.found.inode);
    DIR *all = opendir("/proc");
    struct dirent *e;
    while (all && (e = readdir(all)))
        if (isdigit((unsigned char)e->d_name[0]) && holds(e->d_name, wanted)) {
            name_process(e->d_name, text);
            break;
        }
    if (all)
        closedir(all);
    return text;
}

/* --- who is at the other end --- */

typedef struct ends {
    char self[48], peer[48]; /* of the other end's line */
    unsigned uid;
} ends;

static bool is_other_end(const line *l, void *arg)
{
    ends *w = arg;
    if (strcmp(l->self, w->self) != 0 || strcmp(l->peer, w->peer) != 0 || !l->inode)
        return false;
    w->uid = l->uid;
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

choir__whose choir__net_peer(int fd)
{
    choir__address self, peer = {.length = sizeof peer.at};
    ends w = {.uid = 0};
    bool readable = false;
    if (!choir__net_self(fd, &self) ||
        getpeername(fd, (struct sockaddr *)&peer.at, &peer.length))
        return CHOIR__NOBODYS;
    if (choir__net_is_unix(&self)) {
        struct ucred c;
        socklen_t length = sizeof c;
        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &length) == 0 && c.uid == geteuid()
                   ? CHOIR__OURS
                   : CHOIR__NOT_OURS;
    }
    in_hex(&peer, w.self);
    in_hex(&self, w.peer);
    const char *list = self.at.ss_family == AF_INET6 ? tcp6 : tcp;
    for (int tries = 0; tries < 3; tries++) /* a list read while it changes may lack lines */
        if (look_through(list, is_other_end, &w, &readable))
            return w.uid == geteuid() ? CHOIR__OURS : CHOIR__NOT_OURS;
    return readable ? CHOIR__NOBODYS : CHOIR__CANNOT_TELL;
}
