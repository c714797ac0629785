/* The cores and the memory that this process may use: see usable.h.
 *
 * A container usually sees all cores and all memory of its machine, and its control group
 * limits their use: cpu.max and memory.max (version 2), or cpu.cfs_quota_us beside
 * cpu.cfs_period_us and memory.limit_in_bytes (version 1), in the process's own group or in one
 * that contains it. */
#include "base/usable.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/number.h"

static FILE *open_at(const char *root, const char *folder, const char *name)
{
    char *path = choir__format("%s%s/%s", root, folder, name);
    FILE *f = fopen(path, "re");
    free(path);
    return f;
}

/* Reads up to two numbers from a file; returns their number. "max" is not a number. */
static int read_numbers(
    const char *root, const char *folder, const char *name, double *first, double *second)
{
    FILE *f = open_at(root, folder, name);
    int count = f ? fscanf(f, "%lf %lf", first, second) : 0;
    if (f)
        fclose(f);
    return count;
}

/* A resource that groups limit: version 1's name for its controller, and the limit that a
 * group's folder sets (0 or less: none). */
typedef struct resource {
    const char *controller;
    double (*limit)(const char *root, const char *folder);
} resource;

static double core_limit(const char *root, const char *folder)
{
    double quota = 0, period = 0, more;
    bool has = read_numbers(root, folder, "cpu.max", &quota, &period) == 2 ||
               (read_numbers(root, folder, "cpu.cfs_quota_us", &quota, &more) == 1 &&
                   read_numbers(root, folder, "cpu.cfs_period_us", &period, &more) == 1);
    return has && period > 0 ? quota / period : 0;
}

static double memory_limit(const char *root, const char *folder)
{
    double bytes = 0, more;
    bool has = read_numbers(root, folder, "memory.max", &bytes, &more) == 1 ||
               read_numbers(root, folder, "memory.limit_in_bytes", &bytes, &more) == 1;
    return has ? bytes : 0;
}

/* Returns the bytes of files in memory that the group need not keep. version 1 also has lines
 * for the group alone; lines for the group with its sub-groups begin with "total_". */
static double file_bytes(const char *root, const char *folder)
{
    static const char *const words[2][2] = {
        {"inactive_file ", "active_file "}, {"total_inactive_file ", "total_active_file "}};
    double bytes[2] = {0};
    bool total = false;
    char line[128];
    FILE *f = open_at(root, folder, "memory.stat");
    while (f && fgets(line, sizeof line, f))
        for (int i = 0; i < 4; i++) {
            const char *word = words[i / 2][i % 2];
            if (strncmp(line, word, strlen(word)))
                continue;
            bytes[i / 2] += choir__number_read(line + strlen(word), NULL);
            total |= i / 2 == 1;
        }
    if (f)
        fclose(f);
    return bytes[total];
}

static double room_limit(const char *root, const char *folder)
{
    double limit = memory_limit(root, folder), used = 0, more;
    bool known = read_numbers(root, folder, "memory.current", &used, &more) == 1 ||
                 read_numbers(root, folder, "memory.usage_in_bytes", &used, &more) == 1;
    if (limit <= 0 || !known)
        return 0;
    return fmax(1, limit - used + file_bytes(root, folder)); /* 0 would be no limit */
}

static const resource cores = {"cpu", core_limit}, memory = {"memory", memory_limit},
                      room = {"memory", room_limit};

/* Returns what the group below `mount` and the groups around it allow. Where a container sees
 * its own group as the mount itself, `group` names folders that are not there. */
static double of_group(
    const resource *r, const char *root, const char *mount, const char *group)
{
    char *folder = choir__format("%s%s", mount, strcmp(group, "/") ? group : "");
    double least = INFINITY;
    for (size_t shortest = strlen(mount); strlen(folder) >= shortest;) {
        double limit = r->limit(root, folder);
        least = limit > 0 ? fmin(limit, least) : least;
        *strrchr(folder, '/') = '\0';
    }
    free(folder);
    return least;
}

/* A line of /proc/self/cgroup is "0::/GROUP" (version 2) or "4:cpu,cpuacct:/GROUP". */
static double of_line(const resource *r, const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *group;
    line[strcspn(line, "\n")] = '\0';
    if (!controllers || !(group = strchr(++controllers, ':')))
        return INFINITY;
    *group++ = '\0';
    if (!*controllers)
        return of_group(r, root, "/sys/fs/cgroup", group);
    double least = INFINITY;
    for (char *name; (name = strsep(&controllers, ","));)
        if (!strcmp(name, r->controller)) {
            char *mount = choir__format("/sys/fs/cgroup/%s", name);
            least = of_group(r, root, mount, group);
            free(mount);
        }
    return least;
}

/* Returns `all`, or as much of it as the process's groups allow. */
static double allowed(const resource *r, const char *root, double all)
{
    FILE *f = open_at(root, "/proc/self", "cgroup");
    char *line = NULL;
    size_t length = 0;
    while (f && getline(&line, &length, f) > 0)
        all = fmin(all, of_line(r, root, line));
    free(line);
    if (f)
        fclose(f);
    return all;
}

int choir__usable_cores(const char *root)
{
    cpu_set_t set;
    double all = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    double usable = allowed(&cores, root, all);
    return usable > 1 ? (int)usable : 1;
}

double choir__usable_memory(const char *root)
{
    double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return allowed(&memory, root, all);
}

double choir__usable_room(const char *root)
{
    return allowed(&room, root, INFINITY);
}
