/* --strategy auto's rule as a table, and the cores that control groups leave to a process. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "base/usable.h"
#include "job/auto_rule.h"

#define GIB 1073741824.0

static void ranks_by_case(void **state)
{
    static const struct {
        const char *what;
        choir__auto_case c;
        int ranks, threads;
    } rows[] = {
        {"toy", {16, 32, 0, 3e4, 165, 64 * GIB, false, 0}, 1, 1},
        {"a small gpt2", {16, 24, 0, 7.5e9, 809856, 64 * GIB, false, 0}, 12, 1},
        {"on two cores", {2, 24, 0, 7.5e9, 809856, 64 * GIB, false, 0}, 2, 1},
        {"on one core", {1, 24, 0, 7.5e9, 809856, 64 * GIB, false, 0}, 1, 1},
        {"a prime batch", {16, 23, 0, 7.5e9, 809856, 64 * GIB, false, 0}, 1, 16},
        {"a prime batch of as many cores", {23, 23, 0, 7.5e9, 809856, 64 * GIB, false, 0}, 23,
            1},
        {"M = 1 is declared", {16, 24, 1, 7.5e9, 809856, 64 * GIB, false, 0}, 1, 16},
        {"M = 6 is declared", {16, 24, 6, 7.5e9, 809856, 64 * GIB, false, 0}, 6, 2},
        {"M = 6 on four cores", {4, 24, 6, 7.5e9, 809856, 64 * GIB, false, 0}, 3, 1},
        {"little work per parameter", {2, 32, 0, 3.6e8, 1863690, 64 * GIB, false, 0}, 1, 1},
        {"more samples", {2, 128, 0, 1.4e9, 1863690, 64 * GIB, false, 0}, 2, 1},
        {"enough work for three", {8, 24, 0, 5e7, 5000, 64 * GIB, false, 0}, 3, 1},
        {"batch norm of small parts", {8, 32, 0, 1e12, 25557032, 64 * GIB, true, 0}, 2, 4},
        {"batch norm, M is declared", {8, 32, 8, 1e12, 25557032, 64 * GIB, true, 0}, 8, 1},
        {"little memory", {16, 32, 0, 1e15, 1240000000, 96 * GIB, false, 0}, 2, 8},
        {"GPUs have their own", {16, 32, 0, 1e15, 1240000000, 0, false, 0}, 16, 1},
        {"a limit that the model fits", {4, 32, 0, 3e4, 165, 64 * GIB, false, 1e6}, 1, 1},
        {"a smaller one", {4, 32, 0, 3e4, 165, 64 * GIB, false, 5e3}, 4, 1},
        {"a smaller one, M = 6", {4, 24, 6, 3e4, 165, 64 * GIB, false, 5e3}, 3, 1},
        {"a batch smaller than the cores", {64, 4, 0, 1e15, 1000, 0, false, 0}, 4, 16},
    };
    (void)state;
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++) {
        int ranks = choir__auto_ranks(&rows[i].c);
        int threads = choir__auto_threads(&rows[i].c, ranks);
        if (ranks != rows[i].ranks || threads != rows[i].threads)
            fail_msg("%s: %d ranks of %d cores, expected %d of %d", rows[i].what, ranks,
                threads, rows[i].ranks, rows[i].threads);
    }
}

/* --- control groups --- */

static char root[] = "/tmp/choir-auto-XXXXXX";

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "mkdir -p %s%s", root, folder);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Starts over with one group line. */
static void group(const char *line)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    assert_int_equal(system(command), 0);
    put("/proc/self", "cgroup", line);
}

static void quotas_limit_cores(void **state)
{
    cpu_set_t set;
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    int all = CPU_COUNT(&set);
    assert_int_equal(choir__usable_cores(root), all); /* no groups at all */
    group("0::/\n");
    put("/sys/fs/cgroup", "cpu.max", "max 100000\n");
    assert_int_equal(choir__usable_cores(root), all);
    put("/sys/fs/cgroup", "cpu.max", "50000 100000\n"); /* half a core is one */
    assert_int_equal(choir__usable_cores(root), 1);
    put("/sys/fs/cgroup", "cpu.max", "99900000 100000\n");
    assert_int_equal(choir__usable_cores(root), all);
    group("0::/a/b\n"); /* the group around it limits it, too */
    put("/sys/fs/cgroup/a/b", "cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a", "cpu.max", "150000 100000\n");
    assert_int_equal(choir__usable_cores(root), 1);
    group("0::/elsewhere\n"); /* a container that sees its group as the mount */
    put("/sys/fs/cgroup", "cpu.max", "100000 100000\n");
    assert_int_equal(choir__usable_cores(root), 1);
    group("5:memory:/\n4:cpu,cpuacct:/job\n"); /* version 1 */
    put("/sys/fs/cgroup/cpu/job", "cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/job", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(choir__usable_cores(root), all);
    put("/sys/fs/cgroup/cpu/job", "cpu.cfs_quota_us", "100000\n");
    assert_int_equal(choir__usable_cores(root), 1);
    group("nonsense\n4:cpu\n:::\n");
    assert_int_equal(choir__usable_cores(root), all);
}

static void limits_of_memory(void **state)
{
    (void)state;
    group("4:cpu,cpuacct:/job\n"); /* no group has a limit of memory */
    double all = choir__usable_memory(root);
    assert_true(all > 0);
    group("0::/a/b\n"); /* version 2, by the group around it */
    put("/sys/fs/cgroup/a/b", "memory.max", "max\n");
    assert_true(choir__usable_memory(root) == all);
    put("/sys/fs/cgroup/a", "memory.max", "1048576\n");
    assert_true(choir__usable_memory(root) == 1048576);
    group("0::/elsewhere\n"); /* a container that sees its group as the mount */
    put("/sys/fs/cgroup", "memory.max", "2097152\n");
    assert_true(choir__usable_memory(root) == 2097152);
    group("5:memory:/job\n4:cpu,cpuacct:/job\n"); /* version 1: a huge number is no limit */
    put("/sys/fs/cgroup/memory/job", "memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(choir__usable_memory(root) == all);
    put("/sys/fs/cgroup/memory/job", "memory.limit_in_bytes", "4194304\n");
    assert_true(choir__usable_memory(root) == 4194304);
}

static void room_of_memory(void **state)
{
    (void)state;
    group("4:cpu,cpuacct:/job\n");
    assert_true(isinf(choir__usable_room(root)));
    group("0::/c/d\n"); /* version 2: what the group around it has left is less */
    put("/sys/fs/cgroup", "memory.max", "max\n");
    put("/sys/fs/cgroup/c/d", "memory.max", "8000\n");
    put("/sys/fs/cgroup/c/d", "memory.current", "1000\n");
    put("/sys/fs/cgroup/c", "memory.max", "9000\n");
    put("/sys/fs/cgroup/c", "memory.current", "7000\n");
    assert_true(choir__usable_room(root) == 2000);
    put("/sys/fs/cgroup/c", "memory.stat",
        "anon 5000\nfile 2000\ninactive_file 300\nactive_file 200\nslab 9\n");
    assert_true(choir__usable_room(root) == 2500); /* files may be dropped */
    put("/sys/fs/cgroup/c", "memory.current", "9900\n");
    assert_true(choir__usable_room(root) == 1);
    group("5:memory:/work\n"); /* version 1 */
    put("/sys/fs/cgroup/memory/work", "memory.limit_in_bytes", "6000\n");
    put("/sys/fs/cgroup/memory/work", "memory.usage_in_bytes", "5000\n");
    put("/sys/fs/cgroup/memory/work", "memory.stat",
        "inactive_file 10\nactive_file 10\ntotal_inactive_file 400\ntotal_active_file 100\n");
    assert_true(choir__usable_room(root) == 1500);
}

static int clean(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_by_case),
        cmocka_unit_test(quotas_limit_cores),
        cmocka_unit_test(limits_of_memory),
        cmocka_unit_test(room_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
