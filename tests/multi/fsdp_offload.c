/* FSDP with off-loaded shards: in host memory or in a file, on any number of ranks, the bits
 * are those of one device, and the pool holds a few units. A file's pages are the process's
 * only while they are used. A folder that is missing or full, or disappears during the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <choir/choir.h>

#include "fault/notes.h"
#include "multi/ranks.h"
#include "nn/module.h"
#include "parallel/fsdp/fsdp.h"
#include "tensor/scope.h"

enum { BLOCKS = 10, WIDTH = 96, STEPS = 4, ROWS = 3, UNIT = WIDTH * (WIDTH + 1) };

typedef enum rule { ADAM, SGD, LAMB } rule;

typedef struct plan {
    choir_fsdp_opts opts;
    char folder[64]; /* "": host memory */
    bool single, recorded, vanishes;
    rule rule;
    int64_t microbatches;
    uint32_t loss[STEPS];
    uint64_t weights, state, peak; /* peak: of rank 0's pool */
    /* of rank 0's files, bytes, when it makes the module and when it steps; 0: none */
    uint64_t limit, later_limit;
    notes *notes;
} plan;

typedef struct job {
    plan *plan;
    choir_env env;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    int64_t first, count;
    choir_tensor *x, *losses[8];
} job;

/* True if ranks compute on (soft) GPUs, which reach no file. */
static bool on_gpus(void)
{
    const char *device = getenv("CHOIR_DEVICE");
    return device && !strncmp(device, "cuda", 4);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    for (int64_t m = 0; m < j->count; m++) {
        choir_scope *micro = choir_micro_open(step, j->first + m);
        choir_tensor *x = choir_narrow(choir_in(micro, j->x), 0, ROWS * (j->first + m), ROWS);
        choir_tensor *y = choir_forward(j->net, x), *loss = choir_mean(choir_mul(y, y));
        choir_status status = choir_backward(loss), closed;
        if (!status)
            j->losses[m] = choir_keep(j->run, loss);
        closed = choir_scope_close(micro);
        if (status || closed)
            return status ? status : closed;
    }
    return choir_optim_step(j->optim);
}

static choir_optim *new_optim(choir_scope *run, choir_module *net, rule by)
{
    choir_sgd_opts sgd = choir_sgd_defaults();
    choir_adamw_opts adam = choir_adamw_defaults();
    choir_lamb_opts lamb = choir_lamb_defaults();
    sgd.momentum = 0.9f;
    sgd.lr = adam.lr = lamb.lr = 0.02f;
    return by == SGD    ? choir_sgd(run, net, sgd)
           : by == LAMB ? choir_lamb(run, net, lamb)
                        : choir_adamw(run, net, adam);
}

static void limit_files(const job *j, uint64_t bytes)
{
    struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    if (bytes && j->env.rank == 0)
        setrlimit(RLIMIT_FSIZE, &limit);
}

static void open_job(job *j, plan *p)
{
    choir_module *blocks[BLOCKS];
    *j = (job){.plan = p};
    choir_check(choir_env_init(&j->env));
    limit_files(j, p->limit);
    j->env.microbatches = p->microbatches;
    j->run = choir_run_open(&j->env, 7);
    choir_env_micro(&j->env, &j->first, &j->count);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = choir_nn_sequential(
            j->run, choir_nn_linear(j->run, WIDTH, WIDTH), choir_nn_relu(j->run));
    j->net = choir_nn_sequential_n(j->run, blocks, BLOCKS);
    p->opts.offload_folder = *p->folder ? p->folder : NULL;
    if (!p->single)
        j->net = choir_fsdp(j->run, j->net, j->env.group, p->opts);
    j->optim = new_optim(j->run, j->net, p->rule);
    choir_optim_clip(j->optim, 0.05f);
    j->x = choir_randn(j->run, choir_dims(ROWS * p->microbatches, WIDTH), "x");
}

static choir_status step(job *j, int number)
{
    if (j->plan->recorded)
        return choir_step(j->run, body, j);
    choir_scope *s = choir_step_open(j->run, (uint64_t)number);
    choir_status status = body(s, j), closed = choir_scope_close(s);
    return status ? status : closed;
}

static void hash(const char *name, choir_tensor *t, void *arg)
{
    uint64_t *h = arg;
    uint32_t *x = calloc((size_t)t->count + 1, sizeof *x);
    (void)name;
    choir_check(choir_read(t, x, (size_t)t->count * sizeof *x));
    for (int64_t i = 0; i < t->count; i++)
        *h = (*h ^ x[i]) * 0x100000001B3u;
    free(x);
}

/* Returns how many KiB of unnamed files in the folder are in this process's memory; -1: none is
 * mapped. */
static long resident(const char *folder)
{
    char line[512];
    long kib = -1, more;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
            here = strstr(line, folder) != NULL;
        else if (here && sscanf(line, "Rss: %ld", &more) == 1)
            kib = (kib < 0 ? 0 : kib) + more;
    }
    if (f)
        fclose(f);
    return kib;
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    choir_device_stats stats;
    (void)world;
    open_job(&j, p);
    CHECK_OK(choir_scope_status(j.run));
    for (int s = 0; s < STEPS; s++) {
        float mine[8] = {0}, loss;
        CHECK_OK(step(&j, s));
        for (int64_t m = 0; m < j.count; m++)
            mine[m] = (float)choir_item(j.losses[m]);
        CHECK_OK(choir_env_mean(&j.env, mine, &loss));
        if (rank == 0)
            memcpy(&p->loss[s], &loss, sizeof loss);
        if (s == 1 && p->vanishes && rank == 0)
            CHECK(rmdir(p->folder) == 0);
    }
    CHECK_OK(choir_device_sync(j.env.device));
    choir_device_get_stats(j.env.device, &stats);
    if (*p->folder) /* but for the pages between parameters */
        CHECK(resident(p->folder) >= 0 && resident(p->folder) < 200);
    uint64_t weights = 0xCBF29CE484222325u, state = weights;
    choir_module_visit(j.net, false, hash, &weights);
    choir_optim_visit(j.optim, hash, &state);
    if (rank == 0) {
        p->peak = stats.bytes_peak;
        p->weights = weights;
        p->state = state;
    }
    CHECK_OK(choir_scope_close(j.run));
    choir_env_free(&j.env);
    return 0;
}

static plan run(int ranks, plan p)
{
    plan *shared =
        mmap(NULL, sizeof p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *shared = p;
    if (choir_spawn(ranks, train, shared))
        fail_msg("%d ranks: %s", ranks, choir_error_message());
    p = *shared;
    munmap(shared, sizeof p);
    return p;
}

static choir_fsdp_opts offloaded(int shard_ranks)
{
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.offload = true;
    opts.shard_ranks = shard_ranks;
    return opts;
}

static void same(const plan *a, const plan *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_true(a->weights == b->weights);
}

static char folder[] = "/tmp/choir-offload.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails if a file is left */
}

/* One micro-batch or several per rank, one less on some, in copies, and every optimizer. */
static void bits(void **state)
{
    (void)state;
    for (int m = 4; m <= 5; m++)
        for (rule r = ADAM; r <= LAMB; r++) {
            plan single = run(1, (plan){.single = true, .rule = r, .microbatches = m});
            assert_true(single.loss[0] != single.loss[STEPS - 1]);
            for (int ranks = 1; ranks <= 4; ranks++)
                for (int file = 0; file < (on_gpus() ? 1 : 2); file++) {
                    plan p = {.rule = r,
                        .microbatches = m,
                        .opts = offloaded(m == 4 && ranks % 2 == 0 ? ranks / 2 : 0),
                        .recorded = (ranks + file) % 2 == 0};
                    if (file)
                        strcpy(p.folder, folder);
                    p = run(ranks, p);
                    same(&single, &p);
                    if (ranks == 1)
                        assert_true(p.state == single.state);
                }
        }
}

/* The pool holds weights and gradients of two units each; on one rank, too, and if a rank adds
 * up micro-batches. The model has BLOCKS units, and its state is as much as 4 BLOCKS of them.
 */
static void memory(void **state)
{
    (void)state;
    const uint64_t unit = UNIT * sizeof(float), slack = 256 * 1024;
    for (int ranks = 1; ranks <= 2; ranks++) {
        plan p = run(ranks, (plan){.opts = offloaded(0), .microbatches = ranks});
        assert_true(p.peak < 4 * unit + slack);
        p = run(ranks, (plan){.opts = offloaded(0), .microbatches = 4});
        assert_true(p.peak < 4 * unit + slack);
    }
}

/* --- folders --- */

/* Opens the job and steps, and notes what comes of it. */
static int suffers(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    (void)world;
    signal(SIGXFSZ, SIG_IGN);
    open_job(&j, p);
    limit_files(&j, p->later_limit);
    choir_status status = choir_scope_status(j.run);
    if (status == CHOIR_OK)
        status = step(&j, 0);
    note(p->notes, rank, status);
    choir_scope_close(j.run);
    choir_env_free(&j.env);
    return 0;
}

/* Expects the sentence on the rank that finds out, and on the other rank, too, if that is still
 * in the same collective work: the optimizer steps alone. */
static void expect(plan p, int ranks, const char *text)
{
    p.notes = new_notes();
    p.microbatches = 2;
    assert_int_equal(choir_spawn(2, suffers, &p), CHOIR_OK);
    for (int r = 0; r < ranks; r++) {
        assert_int_not_equal(p.notes->status[r], CHOIR_OK);
        if (!strstr(p.notes->message[r], text))
            fail_msg("rank %d: '%s', not '%s'", r, p.notes->message[r], text);
    }
    munmap(p.notes, sizeof *p.notes);
}

static void bad_folders(void **state)
{
    (void)state;
    plan p = {.opts = offloaded(0), .folder = "/nowhere/at/all"};
    if (on_gpus()) {
        strcpy(p.folder, folder);
        expect(p, 2, "cannot compute with host memory");
        return;
    }
    expect(p, 2, "off-loaded shards cannot go to a file in '/nowhere/at/all': No such file");
    strcpy(p.folder, folder);
    const uint64_t share = UNIT * sizeof(float) * BLOCKS / 2;
    const char *what[] = {
        "share of the weights", "share of the gradients", "optimizer's state"};
    for (int full = 0; full < 3; full++) { /* room for this number of shares */
        char text[128];
        *(full ? &p.later_limit : &p.limit) = (uint64_t)full * (share + 64 * 1024) + 8 * 1024;
        p.limit = full ? 0 : p.limit;
        snprintf(text, sizeof text, "%s in '%s': File too large", what[full], folder);
        expect(p, full == 2 ? 1 : 2, text);
    }
}

/* The file stays until the last rank ends. */
static void vanishing(void **state)
{
    (void)state;
    if (on_gpus())
        return;
    plan p = {.opts = offloaded(0), .microbatches = 2, .vanishes = true};
    strcpy(p.folder, "/tmp/choir-vanish.XXXXXX");
    assert_non_null(mkdtemp(p.folder));
    plan single = run(1, (plan){.single = true, .microbatches = 2});
    p = run(2, p);
    same(&single, &p);
    assert_int_not_equal(access(p.folder, F_OK), 0);
}

static void wrong(void **state)
{
    (void)state;
    plan p = {.opts = offloaded(0)};
    p.opts.stage = 2;
    expect(p, 2, "choose stage 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(memory),
        cmocka_unit_test(bad_folders), cmocka_unit_test(vanishing), cmocka_unit_test(wrong)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
