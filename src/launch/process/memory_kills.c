/* Kills by the kernel for want of memory. A SIGKILL has no sender that a parent could see, so a
 * counter of the process's control group tells: oom_kill in memory.events (version 2 of control
 * groups) or memory.oom_control (version 1). It counts the group's processes, whether the
 * group's limit or the machine's memory was the reason. Without such files the machine's
 * counter is taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/resident.h"
#include "launch/process/process.h"

/* Returns the path of the group's file, or NULL. Inside a container, the group may be the root.
 */
static char *file_of(const char *root, const char *group, const char *name)
{
    char *path = choir__format("%s%s/%s", root, group, name);
    if (access(path, R_OK) != 0) {
        free(path);
        path = choir__format("%s/%s", root, name);
    }
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

/* Returns the file with the counter of this process's group, or NULL. */
static char *find_file(void)
{
    char line[4200], *path = NULL;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && !path && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *kind = strchr(line, ':'), *group = kind ? strchr(kind + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (!strcmp(kind, ":"))
            path = file_of("/sys/fs/cgroup", group, "memory.events");
        else if (!strcmp(kind, ":memory"))
            path = file_of("/sys/fs/cgroup/memory", group, "memory.oom_control");
    }
    if (f)
        fclose(f);
    return path;
}

int64_t choir__memory_kills(void)
{
    char *path = find_file();
    int64_t kills = choir__proc_number(path ? path : "/proc/vmstat", "oom_kill ");
    free(path);
    return kills;
}
