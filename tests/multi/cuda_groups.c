/* Groups of GPUs: the conformance suite with all data in the memory of cuda:RANK, over NCCL and
 * over the engines that stage GPU data in host memory. Further tests cover the errors that only
 * NCCL reports, and how such groups fail. Without a real GPU they run on the soft GPU
 * (tests/softgpu/with_gpu.sh). */
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "helpers.h"
#include "base/base.h"
#include "device/device.h"
#include "device/far.h"
#include "device/recording.h"

#include "collectives_fixture.h"
#include "softgpu/fail.h"

/* --- memory on the GPU --- */

enum { LENT = 16 };

static struct {
    const char *base;
    choir__pool_block *block;
} lent[LENT];
static choir_device *device; /* this rank's */

static trial_memory lend(const trial_memory *m)
{
    int i = 0;
    size_t bytes = malloc_usable_size(m->base);
    while (lent[i].base && lent[i].base != m->base)
        i++;
    lent[i].base = m->base;
    if (!lent[i].block)
        lent[i].block = choir__block_new(device, bytes);
    char *there = choir__block_data(lent[i].block);
    device->far->put(there, m->base, bytes);
    trial_memory far = *m;
    far.in = m->in ? there + (m->in - m->base) : NULL;
    far.out = m->out ? there + (m->out - m->base) : NULL;
    return far;
}

static void take_back(const trial_memory *m)
{
    for (int i = 0; i < LENT; i++)
        if (lent[i].base == m->base) {
            device->far->get(
                m->base, choir__block_data(lent[i].block), malloc_usable_size(m->base));
            choir__block_free(lent[i].block);
            lent[i].base = NULL;
            lent[i].block = NULL;
        }
}

#define SUITE_LEND(m)      lend(m)
#define SUITE_TAKE_BACK(m) take_back(m)
#include "conformance/collectives.h"
#include "comm/plugin.h"
#include "rows_fixture.h"

/* Blocks that a rank frees at its exit, together with their device. */
static choir__pool_block *held[256];
static int held_count;

static float *on_gpu(int64_t count, const float *values, choir__pool_block **block)
{
    *block = choir__block_new(device, (size_t)count * sizeof *values);
    if (held_count < (int)CHOIR_COUNT(held))
        held[held_count++] = *block;
    float *at = choir__block_data(*block);
    device->far->put(at, values, (size_t)count * sizeof *values);
    return at;
}

/* --- ranks --- */

static choir_status join(const char *backend, int rank, choir_group **group)
{
    char name[16];
    choir_group_opts opts = choir_group_defaults();
    snprintf(name, sizeof name, "cuda:%d", rank);
    opts.backend = backend;
    opts.device = name;
    opts.timeout_s = 60;
    choir_status status = choir_group_init(NULL, opts, group);
    device = status ? NULL : choir_device_find(name);
    return device ? CHOIR_OK : status ? status : CHOIR_ERR_DEVICE;
}

/* Runs the default and the native algorithm only, because the soft GPU is slow. */
static int most_of_the_suite(choir_group *group, int world)
{
    static const int64_t sizes[] = {3, 20011};
    static const suite_algorithm ways[] = {{NULL, true}, {"native", false}};
    bool nccl = strcmp(choir_group_backend(group), "nccl") == 0;
    for (int i = 0; i < 1 + nccl; i++) {
        CHECK_OK(choir_group_algorithm(group, ways[i].name));
        if (suite_sizes(group, &ways[i], sizes, 2) ||
            (nccl && !i && world == 3 && suite_types(group, &ways[i])) ||
            suite_several(group, &ways[i], false) || suite_several(group, &ways[i], true) ||
            (!i && suite_split(group, &ways[i])))
            return 1;
    }
    CHECK_OK(choir_group_algorithm(group, NULL));
    return suite_messages(group, 3000);
}

static int whole_suite(int rank, int world, void *arg)
{
    choir_group *group;
    CHECK_OK(join(arg, rank, &group));
    CHECK(strcmp(choir_group_backend(group), arg) == 0);
    if (most_of_the_suite(group, world))
        return 1;
    choir_group_free(group);
    return 0;
}

/* The gradients' tree, and rows: exactly, from memory on the GPU. */
static int trees(int rank, int world, void *arg)
{
    choir_group *group;
    enum { COUNT = 20011, MOST = 8 };
    static float nodes[MOST * COUNT], got[COUNT];
    CHECK_OK(join(arg, rank, &group));
    for (int64_t leaves = 1; leaves <= 7; leaves++)
        for (int native = 0; native < 2; native++) {
            choir__node mine[CHOIR__MAX_NODES];
            choir__pool_block *block;
            int64_t lo, hi;
            choir__tree_run(leaves, rank, world, &lo, &hi);
            int n = choir__tree_nodes(lo, hi, mine);
            for (int k = 0; k < n; k++)
                for (int64_t i = 0; i < COUNT; i++)
                    nodes[k * COUNT + i] = rows_sum(mine[k].start, mine[k].leaves, i, 1);
            float *at = on_gpu(MOST * COUNT, nodes, &block), scale = 1.0f / (float)leaves;
            CHECK_OK(choir__group_tree_reduce(
                group, &(choir__tree_reduce){at, COUNT * sizeof(float), COUNT, leaves, scale,
                           native ? CHOIR__NATIVE : CHOIR__AUTO, CHOIR_F32}));
            CHECK_OK(choir__queue_wait(choir__group_queue(group)));
            CHECK_OK(device->far->get(got, at, sizeof got));
            for (int64_t i = 0; i < COUNT; i++) {
                float want = rows_sum(0, leaves, i, scale), near = want - got[i];
                float most = native ? 0.05f : 0; /* of numbers up to 2e4 */
                CHECK(memcmp(&want, &got[i], sizeof want) == 0 ||
                      (near <= most && -near <= most));
            }
            choir__block_free(block);
        }
    choir_group_free(group);
    return 0;
}

static int rows(int rank, int world, void *arg)
{
    choir_group *group;
    CHECK_OK(join(arg, rank, &group));
    const rows_layout l = rows_lay_out(world, 7);
    float *nodes = calloc((size_t)(8 * l.whole), sizeof *nodes);
    float *out = calloc((size_t)(8 * l.own), sizeof *out);
    for (int64_t total = 1; total <= 7; total++) {
        choir__pool_block *in_block, *out_block;
        rows_trial t = {group, NULL, &l, nodes, out, l.whole, l.own, 0, total, total, 0.25f};
        rows_fill(&t);
        for (int64_t i = 0; i < l.own; i++)
            out[i] = -7;
        const choir__tree_scatter a = {.nodes = on_gpu(8 * l.whole, nodes, &in_block),
            .node_stride = (size_t)l.whole * sizeof(float),
            .cuts = l.cuts,
            .cut_count = l.count,
            .count = l.whole,
            .leaves = total,
            .total = total,
            .out = on_gpu(8 * l.own, out, &out_block),
            .out_stride = (size_t)l.own * sizeof(float),
            .scale = 0.25f};
        CHECK_OK(choir__group_tree_scatter(group, &a));
        CHECK_OK(choir__queue_wait(choir__group_queue(group)));
        CHECK_OK(device->far->get(out, a.out, (size_t)l.own * sizeof *out));
        if (rows_check(&t, out, 0, total, 0.25f))
            return 1;
        /* Gathers all ranks' rows to all, in a separate buffer and in place. */
        for (int64_t i = 0; i < l.whole; i++)
            nodes[i] = -1;
        for (int in_place = 0; in_place < 2; in_place++) {
            float *all = on_gpu(l.whole, nodes, &(choir__pool_block *){NULL});
            const choir__gather_rows g = {a.out, all, l.cuts, l.count, CHOIR_F32};
            CHECK_OK(choir__group_gather_rows(group, &g));
            CHECK_OK(choir__queue_wait(choir__group_queue(group)));
            CHECK_OK(device->far->get(nodes, all, (size_t)l.whole * sizeof *nodes));
            for (int c = 0; c < l.count; c++)
                for (int64_t i = 0; i < l.cuts[c].rows * l.cuts[c].row; i++) {
                    float want = rows_sum(0, total, l.cuts[c].at + i, 0.25f);
                    CHECK(memcmp(&want, &nodes[l.cuts[c].at + i], sizeof want) == 0);
                }
        }
        choir__block_free(in_block);
        choir__block_free(out_block);
    }
    choir_group_free(group);
    free(nodes);
    free(out);
    return 0;
}

/* More leaves than fit on the stack of NCCL's sum where ranks' runs begin at odd places. */
static int deep_tree(int rank, int world, void *arg)
{
    choir_group *group;
    choir__pool_block *block;
    choir__node mine[CHOIR__MAX_NODES];
    enum { LEAVES = 3 * ((1 << 17) - 1) };
    static float values[LEAVES], nodes[CHOIR__MAX_NODES];
    float got;
    int64_t lo, hi;
    CHECK_OK(join(arg, rank, &group));
    for (int64_t m = 0; m < LEAVES; m++)
        values[m] = rows_gradient(m, 0);
    choir__tree_run(LEAVES, rank, world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, mine);
    for (int k = 0; k < n; k++)
        nodes[k] = choir__tree_sum(values + mine[k].start, mine[k].leaves, 1);
    float *at = on_gpu(n, nodes, &block), want = choir__tree_sum(values, LEAVES, 1);
    CHECK_OK(choir__group_tree_reduce(
        group, &(choir__tree_reduce){at, sizeof(float), 1, LEAVES, 1, CHOIR__AUTO, CHOIR_F32}));
    CHECK_OK(choir__queue_wait(choir__group_queue(group)));
    CHECK_OK(device->far->get(&got, at, sizeof got));
    CHECK(memcmp(&want, &got, sizeof want) == 0);
    choir_group_free(group);
    return 0;
}

/* More cuts than NCCL has room for in one group, each with a row for every rank. */
static int many_cuts(int rank, int world, void *arg)
{
    enum { CUTS = 1500, MOST = 3, LEAVES = 7 };
    static choir__rows_cut cuts[CUTS];
    static float nodes[8 * CUTS * MOST], got[CUTS];
    choir__node mine[CHOIR__MAX_NODES];
    choir__pool_block *in_block, *out_block;
    choir_group *group;
    int64_t lo, hi, count = (int64_t)CUTS * world;
    CHECK_OK(join(arg, rank, &group));
    for (int c = 0; c < CUTS; c++)
        cuts[c] =
            (choir__rows_cut){.at = (int64_t)c * world, .rows = world, .row = 1, .out = c};
    choir__tree_run(LEAVES, rank, world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, mine);
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < count; i++)
            nodes[k * count + i] = rows_sum(mine[k].start, mine[k].leaves, i, 1);
    const choir__tree_scatter a = {.nodes = on_gpu(8 * count, nodes, &in_block),
        .node_stride = (size_t)count * sizeof(float),
        .cuts = cuts,
        .cut_count = CUTS,
        .count = count,
        .leaves = LEAVES,
        .total = LEAVES,
        .out = on_gpu(CUTS, got, &out_block),
        .out_stride = sizeof got,
        .scale = 0.5f};
    CHECK_OK(choir__group_tree_scatter(group, &a));
    CHECK_OK(choir__queue_wait(choir__group_queue(group)));
    CHECK_OK(device->far->get(got, a.out, sizeof got));
    for (int c = 0; c < CUTS; c++) {
        float want = rows_sum(0, LEAVES, c * world + rank, 0.5f);
        CHECK(memcmp(&want, &got[c], sizeof want) == 0);
    }
    choir_group_free(group);
    return 0;
}

/* Sends round the ring, from GPU to GPU, in one batch. */
static int messages(int rank, int world, void *arg)
{
    choir_group *group;
    choir__pool_block *a, *b;
    float x[1000], y[1000] = {0};
    CHECK_OK(join(arg, rank, &group));
    for (int i = 0; i < 1000; i++)
        x[i] = (float)(1000 * rank + i);
    float *from = on_gpu(1000, x, &a), *to = on_gpu(1000, y, &b);
    choir_group_batch_begin(group);
    CHECK_OK(choir_group_send(group, from, 1000, CHOIR_F32, (rank + 1) % world, NULL));
    CHECK_OK(choir_group_receive(group, to, 1000, CHOIR_F32, (rank + world - 1) % world, NULL));
    CHECK_OK(choir_group_batch_end(group, NULL));
    CHECK_OK(device->far->get(y, to, sizeof y));
    for (int i = 0; i < 1000; i++)
        CHECK(y[i] == (float)(1000 * ((rank + world - 1) % world) + i));
    choir__block_free(a);
    choir__block_free(b);
    choir_group_free(group);
    return 0;
}

static _Atomic int naps;

/* NCCL's plug-in calls this one (CMakeLists.txt exports it). */
int usleep(useconds_t us)
{
    naps++;
    return nanosleep(&(struct timespec){.tv_nsec = 1000L * us}, NULL);
}

/* NCCL's own thread launches a group of calls, shortly after the call has returned. Waiting for
 * it includes no sleep, unless it takes long. */
static int no_sleep(int rank, int world, void *arg)
{
    choir_group *group;
    choir__pool_block *a;
    float x[1000] = {0};
    CHECK_OK(join(arg, rank, &group));
    float *at = on_gpu(1000, x, &a);
    setenv("SOFTGPU_NCCL_SLOW", "30", 1);
    CHECK_OK(choir_group_all_reduce(group, at, 1000, CHOIR_F32, CHOIR_SUM, NULL));
    naps = 0; /* of the communicator's beginning */
    for (int i = 0; i < 5; i++)
        CHECK_OK(choir_group_all_reduce(group, at, 1000, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK_OK(choir_group_barrier(group, NULL));
    CHECK(naps == 0);
    /* Twice the quick queries: on a busy machine the watcher, which asks too, answers some. */
    setenv("SOFTGPU_NCCL_SLOW", "8000", 1);
    CHECK_OK(choir_group_all_reduce(group, at, 1000, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK_OK(choir_group_barrier(group, NULL));
    CHECK(naps > 0);
    choir__block_free(a);
    choir_group_free(group);
    return 0;
}

/* A batch that NCCL does not support (maxima), after a sum on its stream. The host packs the
 * data, so it waits for the stream. */
static int maxima_of_sums(int rank, int world, void *arg)
{
    enum { COUNT = 3000 };
    choir_group *group;
    choir__pool_block *a, *b;
    float x[COUNT], y[COUNT];
    CHECK_OK(join(arg, rank, &group));
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(rank + i);
        y[i] = (float)(i - rank);
    }
    float *sums = on_gpu(COUNT, x, &a), *others = on_gpu(COUNT, y, &b);
    choir_work work;
    CHECK_OK(choir_group_all_reduce(group, sums, COUNT, CHOIR_F32, CHOIR_SUM, &work));
    choir_group_batch_begin(group);
    CHECK_OK(choir_group_all_reduce(group, sums, COUNT, CHOIR_F32, CHOIR_MAX, NULL));
    CHECK_OK(choir_group_all_reduce(group, others, COUNT, CHOIR_F32, CHOIR_MAX, NULL));
    CHECK_OK(choir_group_batch_end(group, NULL));
    CHECK_OK(device->far->get(x, sums, sizeof x));
    CHECK_OK(device->far->get(y, others, sizeof y));
    for (int i = 0; i < COUNT; i++) {
        CHECK(x[i] == (float)(world * i + world * (world - 1) / 2));
        CHECK(y[i] == (float)i);
    }
    choir__block_free(a);
    choir__block_free(b);
    choir_group_free(group);
    return 0;
}

/* --- what NCCL refuses --- */

static int one_card(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    opts.device = "cuda:0";
    CHECK(choir_group_init(NULL, opts, &group) == CHOIR_ERR_DEVICE);
    CHECK(strstr(choir_error_message(), "got ranks 0 and 1 on GPU"));
    CHECK(strstr(choir_error_message(), "--backend shm"));
    return 0;
}

/* One rank's library is not NCCL. */
static int no_library(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    char folder[] = "/tmp/choir-nccl-XXXXXX", file[64];
    opts.backend = arg;
    if (rank == 1) {
        CHECK(mkdtemp(folder));
        snprintf(file, sizeof file, "%s/libsoftgpu.so", folder);
        CHECK(symlink("/proc/self/exe", file) == 0);
        setenv("NCCL_HOME", folder, 1);
    }
    CHECK(choir_group_init(NULL, opts, &group) == CHOIR_ERR_UNSUPPORTED);
    CHECK(strstr(choir_error_message(), "backend nccl: rank 1: a library can't be opened: "));
    CHECK(strstr(choir_error_message(), "/libsoftgpu.so"));
    CHECK(rank != 1 || (unlink(file) == 0 && rmdir(folder) == 0));
    return 0;
}

static int no_such_card(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    opts.device = rank ? "cuda:77" : NULL;
    CHECK(choir_group_init(NULL, opts, &group) == CHOIR_ERR_DEVICE);
    CHECK(strstr(choir_error_message(), "rank 1: no device 'cuda:77'"));
    return 0;
}

/* NCCL fails to give rank 0 an id. */
static int no_communicator(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    if (rank == 0)
        setenv("SOFTGPU_NCCL_FAIL", "id", 1);
    CHECK(choir_group_init(NULL, opts, &group) == CHOIR_ERR_DEVICE);
    CHECK(strstr(choir_error_message(), "rank 0 has no communicator on cuda:0: "));
    return 0;
}

/* --- failures --- */

/* Rank 1 exits without notice while the others wait for it on the GPU. */
static int a_rank_dies(int rank, int world, void *arg)
{
    choir_group *group;
    choir__pool_block *block;
    static float x[20000];
    CHECK_OK(join(arg, rank, &group));
    float *at = on_gpu(20000, x, &block);
    CHECK_OK(choir_group_all_reduce(group, at, 20000, CHOIR_F32, CHOIR_SUM, NULL));
    if (rank == 1)
        _exit(0); /* choir_spawn then leaves the others alone */
    choir_status status = choir_group_all_reduce(group, at, 20000, CHOIR_F32, CHOIR_SUM, NULL);
    CHECK(status == CHOIR_ERR_PEER_LOST);
    CHECK(strstr(choir_error_message(), "rank 1 (pid "));
    CHECK(strstr(choir_error_message(), "has ended") ||
          strstr(choir_error_message(), "died during all_reduce")); /* without its status */
    CHECK(choir_group_all_reduce(group, at, 1, CHOIR_F32, CHOIR_SUM, NULL) == status);
    choir_group_free(group);
    return 0;
}

/* (in shared memory) ranks that have made their sub-group */
static _Atomic int *halves;

/* Rank 3 exits in a sub-group, when all ranks have left the whole group's last call. That
 * sub-group fails; the ranks of the other one continue. */
static int a_sub_group_fails(int rank, int world, void *arg)
{
    choir_group *group, *half;
    choir__pool_block *block;
    float x[100] = {0};
    CHECK_OK(join(arg, rank, &group));
    CHECK_OK(choir_group_split(group, rank / 2, rank, &half));
    float *at = on_gpu(100, x, &block);
    CHECK_OK(choir_group_all_reduce(half, at, 100, CHOIR_F32, CHOIR_SUM, NULL));
    *halves += 1;
    if (rank == 3) {
        while (*halves % world)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        _exit(0);
    }
    choir_status status = choir_group_all_reduce(half, at, 100, CHOIR_F32, CHOIR_SUM, NULL);
    CHECK(status == (rank < 2 ? CHOIR_OK : CHOIR_ERR_PEER_LOST));
    CHECK(!status || strstr(choir_error_message(), "rank 1 (pid "));
    choir_group_free(half);
    choir_group_free(group);
    return 0;
}

/* NCCL itself reports an error: SOFTGPU_NCCL_FAIL. */
static int nccl_fails(int rank, int world, void *arg)
{
    choir_group *group;
    choir__pool_block *block;
    float x[100] = {0};
    choir_status status = CHOIR_OK;
    if (rank == 0)
        setenv("SOFTGPU_NCCL_FAIL", "3", 1);
    CHECK_OK(join(arg, rank, &group));
    float *at = on_gpu(100, x, &block);
    for (int i = 0; i < 10 && !status; i++)
        status = choir_group_all_reduce(group, at, 100, CHOIR_F32, CHOIR_SUM, NULL);
    CHECK(status == CHOIR_ERR_DEVICE);
    CHECK(strstr(choir_error_message(), "rank 0: NCCL: "));
    CHECK(strstr(choir_error_message(), "system error"));
    choir_group_free(group);
    return 0;
}

/* --- recorded steps --- */

enum { CALLS = 8 /* number of doublings, by two ranks; enough for a graph */ };

typedef struct recorded {
    choir_group *group;
    choir__pool_block *block;
    float *at;
    choir__recording *step;
} recorded;

static int record(const char *backend, int rank, recorded *r)
{
    choir_work work;
    const float one = 1;
    CHECK_OK(join(backend, rank, &r->group));
    r->at = on_gpu(1, &one, &r->block);
    r->step = choir__recording_open();
    for (int i = 0; i < CALLS; i++)
        CHECK_OK(choir_group_all_reduce(r->group, r->at, 1, CHOIR_F32, CHOIR_SUM, &work));
    choir__recording_close(r->step);
    CHECK_OK(choir__queue_wait(choir__group_queue(r->group)));
    return 0;
}

static int replay(const recorded *r, float want)
{
    float got;
    CHECK_OK(choir__recording_replay(r->step));
    CHECK_OK(choir__queue_wait(choir__group_queue(r->group)));
    CHECK_OK(device->far->get(&got, r->at, sizeof got));
    CHECK(got == want);
    return 0;
}

/* The group is freed before its graphs, although NCCL needs the opposite order. */
static int free_early(recorded *r)
{
    choir_group_free(r->group);
    CHECK(choir__recording_replay(r->step) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "free groups after the runs"));
    choir__recording_free(r->step);
    choir__block_free(r->block);
    return 0;
}

static int a_group_goes_first(int rank, int world, void *arg)
{
    recorded r;
    return record(arg, rank, &r) || replay(&r, 65536) || free_early(&r);
}

/* In a graph, NCCL's abort that ends the wait does not return while the graph exists. */
static int a_rank_dies_in_a_graph(int rank, int world, void *arg)
{
    recorded r;
    if (record(arg, rank, &r) || replay(&r, 65536))
        return 1;
    if (rank == 1)
        _exit(0);
    CHECK_OK(choir__recording_replay(r.step));
    CHECK(choir__queue_wait(choir__group_queue(r.group)) == CHOIR_ERR_PEER_LOST);
    CHECK(strstr(choir_error_message(), "rank 1 (pid "));
    return free_early(&r);
}

/* CUDA refuses a launch in the capture: the mark before the first call, its sum, or the mark
 * after it. The step then runs without a graph, and nothing fails. */
static int a_capture_is_refused(int rank, int world, void *arg)
{
    void (*fail_next)(softgpu_call call, int n);
    recorded r;
    for (int n = 1; n <= 3; n++) {
        if (record(arg, rank, &r))
            return 1;
        void *library = dlopen("libsoftgpu.so", RTLD_NOW | RTLD_NOLOAD);
        if (!library) /* a real GPU refuses nothing */
            return 0;
        *(void **)&fail_next = dlsym(library, "softgpu_fail_next");
        fail_next(SOFTGPU_FAIL_LAUNCH, n);
        if (replay(&r, 65536) || free_early(&r))
            return 1;
    }
    return 0;
}

/* --- tests --- */

static void run(int world, choir_spawn_fn *fn, const char *backend)
{
    if (choir_spawn(world, fn, (void *)(uintptr_t)backend) != CHOIR_OK)
        fail_msg("%s, world %d: %s", backend, world, choir_error_message());
}

static bool there_is(const char *plugin)
{
    char *path = choir__plugin_find(plugin, NULL);
    free(path);
    return path != NULL;
}

static void on_all(int world, choir_spawn_fn *fn)
{
    static const char *const backends[] = {"shm", "ucx", "nccl"};
    for (size_t i = 0; i < CHOIR_COUNT(backends); i++)
        if (!i || there_is(backends[i]))
            run(world, fn, backends[i]);
}

static void test_suite(void **state)
{
    if (there_is("nccl"))
        run(1, whole_suite, "nccl");
    on_all(3, whole_suite);
}

static void test_trees(void **state)
{
    on_all(3, trees);
    on_all(3, rows);
    on_all(3, deep_tree);
    on_all(3, many_cuts);
}

static void test_messages(void **state)
{
    on_all(3, messages);
    on_all(3, maxima_of_sums);
}

static void test_refused(void **state)
{
    if (!there_is("nccl"))
        skip();
    run(2, one_card, "nccl");
    if (getenv("SOFTGPU_STRICT")) { /* on the soft GPU */
        run(2, no_library, "nccl");
        run(2, no_sleep, "nccl");
    }
    run(2, no_such_card, "nccl");
    run(2, no_communicator, "nccl");
}

static void test_failures(void **state)
{
    halves = shared_memory(sizeof *halves);
    on_all(3, a_rank_dies);
    on_all(4, a_sub_group_fails);
    if (there_is("nccl"))
        run(2, nccl_fails, "nccl");
}

static void test_recorded(void **state)
{
    if (!there_is("nccl"))
        skip();
    run(2, a_group_goes_first, "nccl");
    run(2, a_capture_is_refused, "nccl");
    run(2, a_rank_dies_in_a_graph, "nccl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
