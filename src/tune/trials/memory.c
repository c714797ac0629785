/* The memory of a trial's processes. Resident pages are added first, which is quick; only if
 * they exceed the limit, shared pages are divided among their users, for which the kernel looks
 * at each page. */
#include "tune/trials/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/resident.h"
#include "launch/process/process.h"

/* Adds the pages of a process, shared ones included, which is quick. */
static void add_resident(pid_t pid, void *arg)
{
    char path[64];
    long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%*s %lld", &pages) == 1)
        *(int64_t *)arg += pages * sysconf(_SC_PAGESIZE);
    if (file)
        fclose(file);
}

/* Adds the process's share of its pages, for which the kernel looks at each of them. */
static void add_share(pid_t pid, void *arg)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    *(int64_t *)arg += 1024 * choir__proc_number(path, "Pss:");
}

int64_t choir__memory_beyond(pid_t root, int64_t most)
{
    int64_t resident = 0, share = 0;
    choir__each_of_tree(root, add_resident, &resident);
    if (resident <= most)
        return 0;
    choir__each_of_tree(root, add_share, &share);
    return share > most ? share : 0;
}

void choir__memory_offer(void)
{
    FILE *file = fopen("/proc/self/oom_score_adj", "we");
    if (!file)
        return;
    fputs("500", file);
    fclose(file);
}
