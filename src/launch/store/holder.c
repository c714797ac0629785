/* The process that listens at a port: its socket's inode is in the list of sockets, and among
 * the process's descriptors. */
#include "launch/store/net.h"
#include "launch/store/proc_net.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTENING = 0x0A };

bool choir__proc_net(
    const char *path, bool (*seen)(const choir__proc_line *, void *), void *arg, bool *readable)
{
    char text[512];
    choir__proc_line l;
    bool found = false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (!found && fgets(text, sizeof text, file)) {
        *readable = true; /* at least the header line */
        if (sscanf(text, " %*d: %47s %47s %x %*s %*s %*s %u %*s %lu", l.self, l.peer, &l.state,
                &l.uid, &l.inode) == 5)
            found = seen(&l, arg);
    }
    fclose(file);
    return found;
}

typedef struct listening {
    int port;
    choir__proc_line found;
} listening;

static bool is_listening(const choir__proc_line *l, void *arg)
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
    if (!choir__proc_net(choir__proc_tcp, is_listening, &w, &readable) &&
        !choir__proc_net(choir__proc_tcp6, is_listening, &w, &readable))
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
