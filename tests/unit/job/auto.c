/* --strategy auto's cut and its placements as tables, and the cores that control groups leave
 * to a process. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "base/usable.h"
#include "job/auto/auto.h"

#define GIB 1073741824.0

/* The cut of a job that declares none, whatever the machine. */
static void cut_by_case(void **state)
{
    static const struct {
        const char *what;
        choir__auto_case c;
        int64_t m;
    } rows[] = {
        {"toy", {32, 3e4, 165, false, 0}, 1},
        {"a small gpt2", {24, 7.5e9, 809856, false, 0}, 8},
        {"a batch that 6 divides", {30, 7.5e9, 809856, false, 0}, 6},
        {"an odd batch", {21, 7.5e9, 809856, false, 0}, 7},
        {"a prime batch", {23, 7.5e9, 809856, false, 0}, 1},
        {"little work per parameter", {32, 3.6e8, 1863690, false, 0}, 1},
        {"more samples", {128, 1.4e9, 1863690, false, 0}, 2},
        {"enough work for three", {24, 5e7, 5000, false, 0}, 2},
        {"enough work for three parts, no two", {21, 5e7, 5000, false, 0}, 3},
        {"batch norm of small parts", {32, 1e12, 25557032, true, 0}, 2},
        {"batch norm", {256, 1e12, 25557032, true, 0}, 8},
        {"a limit that the model fits", {32, 3e4, 165, false, 1e6}, 1},
        {"a smaller one", {32, 3e4, 165, false, 5e3}, 8},
        {"a batch smaller than most cuts", {4, 1e15, 1000, false, 0}, 4},
    };
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++)
        if (choir__auto_cut(&rows[i].c) != rows[i].m)
            fail_msg("%s: %lld micro-batches, expected %lld", rows[i].what,
                (long long)choir__auto_cut(&rows[i].c), (long long)rows[i].m);
    assert_int_equal(choir__auto_threads(1e15, 16, 1), 16);
    assert_int_equal(choir__auto_threads(7.5e9, 16, 6), 2);
    assert_int_equal(choir__auto_threads(7.5e9, 16, 8), 1); /* too short a step */
}

/* The placements of all of some ranks: each strategy has its dimension of the cut. */
static void forms_by_cut(void **state)
{
    static const struct {
        int ranks;
        int64_t microbatches, chunks, slices;
        const char *forms; /* "strategy mesh", each with a line */
    } rows[] = {
        {2, 8, 0, 0, "ddp \nfsdp \npipeline \n"},
        {2, 1, 0, 0, "pipeline \n"},
        {4, 2, 0, 0, "ddp+pipeline 2x2\nfsdp+pipeline 2x2\npipeline \n"},
        {2, 1, 2, 4, "pipeline \ntp \ncp \n"},
        {4, 2, 0, 2,
            "ddp+pipeline 2x2\nfsdp+pipeline 2x2\nddp+tp 2x2\nfsdp+tp 2x2\npipeline \n"
            "tp+pipeline 2x2\n"},
    };
    choir__job *j = choir__calloc(1, sizeof *j);
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++) {
        choir__auto_form forms[64];
        char text[4096] = "";
        j->training.microbatches = rows[i].microbatches;
        j->training.chunks = rows[i].chunks;
        j->training.slices = rows[i].slices;
        const int count = choir__auto_forms(&j->training, rows[i].ranks, forms, 64);
        for (int f = 0; f < count; f++) {
            const size_t used = strlen(text);
            assert_int_equal(forms[f].ranks, rows[i].ranks);
            snprintf(text + used, sizeof text - used, "%.40s %.20s\n", forms[f].strategy,
                forms[f].mesh);
        }
        assert_string_equal(text, rows[i].forms);
    }
    free(j);
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
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_by_case),
        cmocka_unit_test(forms_by_cut),
        cmocka_unit_test(quotas_limit_cores),
        cmocka_unit_test(limits_of_memory),
        cmocka_unit_test(room_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
