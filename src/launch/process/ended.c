/* How a process that is no child of this one has ended.
 *
 * Its pidfd tells that it has ended, and since Linux 6.15 also how, once its parent has reaped
 * it. Before that it is a zombie, whose last field in /proc/PID/stat is its wait status. The
 * parents of this library's own making reap late (process.h), so that every kernel tells. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/watch.h"
#include "launch/process/process.h"

/* The kernel's struct pidfd_info, in its first version. */
typedef struct pidfd_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid;
    uint32_t users[8];
    int32_t exit_code;
} pidfd_info;

enum { TELLS_EXIT = 1 << 3 };
#define GET_INFO _IOWR(0xFF, 11, pidfd_info)

/* Another user's process shows 0 in place of its wait status. */
static int status_of_zombie(int pid)
{
    char path[64], text[1024];
    struct stat owner;
    int status = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t bytes = f ? fread(text, 1, sizeof text - 1, f) : 0;
    bool ours = f && !fstat(fileno(f), &owner) && owner.st_uid == geteuid();
    if (f)
        fclose(f);
    text[bytes] = '\0';
    const char *name_end = strrchr(text, ')'), *last = strrchr(text, ' ');
    if (ours && name_end && last > name_end && !strncmp(name_end, ") Z ", 4))
        status = atoi(last + 1);
    return status;
}

int choir__wait_status(int pidfd)
{
    pidfd_info info = {.mask = TELLS_EXIT};
    if (pidfd < 0)
        return -1;
    int pid = choir__process_watched(pidfd), status = pid ? status_of_zombie(pid) : -1;
    if (status >= 0 && choir__process_watched(pidfd) == pid)
        return status;
    if (ioctl(pidfd, GET_INFO, &info) == 0 && (info.mask & TELLS_EXIT))
        return info.exit_code;
    return -1;
}
