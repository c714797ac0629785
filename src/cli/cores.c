/* The cores that this process may use: see auto.h.
 *
 * A container usually sees all cores of its machine, and its control group limits the time on
 * them: cpu.max (version 2), or cpu.cfs_quota_us beside cpu.cfs_period_us (version 1), in the
 * process's own group or in one that contains it. */
#include "cli/auto.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static FILE *open_at(const char *root, const char *folder, const char *name)
{
    char *path = choir__format("%s%s/%s", root, folder, name);
    FILE *f = fopen(path, "re");
    free(path);
    return f;
}

/* Reads the numbers of one or two files; false if one is missing or is "max". */
static bool read_quota(const char *root, const char *folder, double *quota, double *period)
{
    FILE *f = open_at(root, folder, "cpu.max"), *g = NULL;
    bool has = f && fscanf(f, "%lf %lf", quota, period) == 2;
    if (f)
        fclose(f);
    f = open_at(root, folder, "cpu.cfs_quota_us");
    g = open_at(root, folder, "cpu.cfs_period_us");
    if (f && g)
        has = fscanf(f, "%lf", quota) == 1 && fscanf(g, "%lf", period) == 1;
    if (f)
        fclose(f);
    if (g)
        fclose(g);
    return has && *quota > 0 && *period > 0;
}

/* Returns the cores that the group below `mount` and the groups around it allow. Where a
 * container sees its own group as the mount itself, `group` names folders that are not there.
 */
static double cores_of_group(const char *root, const char *mount, const char *group)
{
    char *folder = choir__format("%s%s", mount, strcmp(group, "/") ? group : "");
    double least = INT_MAX, quota, period;
    for (size_t shortest = strlen(mount); strlen(folder) >= shortest;) {
        if (read_quota(root, folder, &quota, &period) && quota / period < least)
            least = quota / period;
        *strrchr(folder, '/') = '\0';
    }
    free(folder);
    return least;
}

/* A line of /proc/self/cgroup is "0::/GROUP" (version 2) or "4:cpu,cpuacct:/GROUP". */
static double cores_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *group;
    line[strcspn(line, "\n")] = '\0';
    if (!controllers || !(group = strchr(++controllers, ':')))
        return INT_MAX;
    *group++ = '\0';
    if (!*controllers)
        return cores_of_group(root, "/sys/fs/cgroup", group);
    for (char *name; (name = strsep(&controllers, ","));)
        if (!strcmp(name, "cpu"))
            return cores_of_group(root, "/sys/fs/cgroup/cpu", group);
    return INT_MAX;
}

int choir__usable_cores(const char *root)
{
    cpu_set_t set;
    double cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    FILE *f = open_at(root, "/proc/self", "cgroup");
    char *line = NULL;
    size_t room = 0;
    while (f && getline(&line, &room, f) > 0) {
        double allowed = cores_of_line(root, line);
        if (allowed < cores)
            cores = allowed;
    }
    free(line);
    if (f)
        fclose(f);
    return cores > 1 ? (int)cores : 1;
}
