/* FSDP that gathers its weights: between ranks without shared memory, and on request. The bits
 * are those of one device; a rank's memory holds a few units and its shard; writing to a whole
 * weight changes the rows of every rank. The death of a rank and a unit that does not fit are
 * reported on all ranks. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "comm/plugin.h"
#include "fault/notes.h"
#include "multi/ranks.h"
#include "parallel/fsdp/fsdp.h"
#include "tensor/scope.h"

enum { BLOCKS = 10, WIDTH = 96, STEPS = 4, M = 5, ROWS = 3, UNIT = WIDTH * (WIDTH + 1) };

typedef struct plan {
    const char *backend;
    choir_fsdp_opts opts;
    bool single, recorded, recompute;
    int64_t microbatches;
    uint32_t loss[STEPS];
    uint64_t weights, peak; /* peak: most bytes of a rank's device, after the first step */
    notes *notes;
    int victim;
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

static int open_job(job *j, plan *p)
{
    choir_module *blocks[BLOCKS];
    *j = (job){.plan = p};
    if (p->backend)
        setenv("CHOIR_BACKEND", p->backend, 1);
    CHECK_OK(choir_env_init(&j->env));
    j->env.microbatches = p->microbatches ? p->microbatches : M;
    j->run = choir_run_open(&j->env, 7);
    choir_env_micro(&j->env, &j->first, &j->count);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = choir_nn_sequential(
            j->run, choir_nn_linear(j->run, WIDTH, WIDTH), choir_nn_relu(j->run));
    j->net = choir_nn_sequential_n(j->run, blocks, BLOCKS);
    if (p->recompute)
        choir_module_recompute_blocks(j->net, true);
    if (!p->single)
        j->net = choir_fsdp(j->run, j->net, j->env.group, p->opts);
    choir_adamw_opts adam = choir_adamw_defaults();
    adam.lr = 0.02f;
    j->optim = choir_adamw(j->run, j->net, adam);
    choir_optim_clip(j->optim, 0.05f);
    j->x = choir_randn(j->run, choir_dims(ROWS * j->env.microbatches, WIDTH), "x");
    CHECK_OK(choir_scope_status(j->run));
    return 0;
}

static int close_job(job *j)
{
    CHECK_OK(choir_scope_close(j->run));
    choir_env_free(&j->env);
    return 0;
}

static int step(job *j, int number)
{
    if (j->plan->recorded) {
        CHECK_OK(choir_step(j->run, body, j));
        return 0;
    }
    choir_scope *s = choir_step_open(j->run, (uint64_t)number);
    choir_status status = body(s, j), closed = choir_scope_close(s);
    CHECK_OK(status);
    CHECK_OK(closed);
    return 0;
}

static void hash(const char *name, choir_tensor *t, void *arg)
{
    uint64_t *h = arg;
    uint32_t *x = calloc((size_t)t->count, sizeof *x);
    (void)name;
    choir_check(choir_read(t, x, (size_t)t->count * sizeof *x));
    for (int64_t i = 0; i < t->count; i++)
        *h = (*h ^ x[i]) * 0x100000001B3u;
    free(x);
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    choir_device_stats stats;
    (void)world;
    if (open_job(&j, p))
        return 1;
    for (int s = 0; s < STEPS; s++) {
        float mine[8] = {0}, loss;
        if (step(&j, s))
            return 1;
        for (int64_t m = 0; m < j.count; m++)
            mine[m] = (float)choir_item(j.losses[m]);
        CHECK_OK(choir_env_mean(&j.env, mine, &loss));
        if (rank == 0)
            memcpy(&p->loss[s], &loss, sizeof loss);
    }
    choir_device_get_stats(j.env.device, &stats);
    if (rank == 0)
        p->peak = stats.bytes_peak;
    uint64_t weights = 0xCBF29CE484222325u;
    choir_module_visit(j.net, false, hash, &weights);
    if (rank == 0)
        p->weights = weights;
    return close_job(&j);
}

static plan run(int ranks, plan p)
{
    plan *shared =
        mmap(NULL, sizeof p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *shared = p;
    if (choir_spawn(ranks, train, shared))
        fail_msg(
            "%s, %d ranks: %s", p.backend ? p.backend : "shm", ranks, choir_error_message());
    p = *shared;
    munmap(shared, sizeof p);
    return p;
}

static choir_fsdp_opts gathered(bool reshard, int shard_ranks)
{
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.gather = true;
    opts.reshard_after_forward = reshard;
    opts.shard_ranks = shard_ranks;
    return opts;
}

static bool have_ucx(void)
{
    char *plugin = choir__plugin_find("ucx", NULL);
    free(plugin);
    return plugin != NULL;
}

static void same(const plan *a, const plan *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_true(a->weights == b->weights);
}

/* Also with one micro-batch less on some ranks, in copies, by single layers, and recomputed. */
static void bits(void **state)
{
    (void)state;
    plan single = run(1, (plan){.single = true}), four = single;
    four = run(1, (plan){.single = true, .microbatches = 4});
    assert_true(single.loss[0] != single.loss[STEPS - 1]);
    for (int engine = 0; engine < 1 + have_ucx(); engine++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            plan p = {.backend = engine ? "ucx" : "shm",
                .opts = gathered(ranks != 3, 0),
                .recorded = ranks % 2 == 0,
                .recompute = ranks > 2};
            p.opts.unit_class = ranks == 4 ? "linear" : NULL;
            p = run(ranks, p);
            same(&single, &p);
            if (ranks % 2)
                continue;
            p = run(ranks, (plan){.backend = engine ? "ucx" : "shm",
                               .opts = gathered(true, ranks / 2),
                               .microbatches = 4});
            same(&four, &p);
        }
}

/* The limit is a shard of weights, gradients and two moments, and at most four units: two of
 * weights, two of gradients. All weights alone would be BLOCKS units. */
static void memory(void **state)
{
    (void)state;
    const uint64_t unit = UNIT * sizeof(float), slack = 256 * 1024;
    plan p = run(4, (plan){.opts = gathered(true, 0), .microbatches = 4});
    assert_true(p.peak < 4 * BLOCKS * unit / 4 + 4 * unit + slack);
    plan kept = run(4, (plan){.opts = gathered(false, 0), .microbatches = 4});
    assert_true(kept.peak > p.peak + (BLOCKS - 4) * unit);
    same(&p, &kept);
    uint64_t peaks[2]; /* gradients of stage 1, too, are whole in two units at most */
    for (int stage = 1; stage <= 2; stage++) {
        choir_fsdp_opts opts = choir_fsdp_defaults();
        opts.stage = stage;
        peaks[stage - 1] = run(4, (plan){.opts = opts, .microbatches = 4}).peak;
    }
    assert_true(peaks[0] == peaks[1]);
}

/* --- writing to a weight --- */

static int writes(int rank, int world, void *arg)
{
    job j;
    int count;
    float *x = calloc(WIDTH * WIDTH, sizeof *x), *y = calloc(WIDTH * WIDTH, sizeof *y);
    (void)rank, (void)world;
    if (open_job(&j, arg))
        return 1;
    choir__param **params = choir__module_params(j.net, &count);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        x[i] = (float)i * 1e-6f;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < count; i++) {
            size_t bytes = (size_t)params[i]->tensor->count * sizeof *x;
            x[0] = (float)(turn + i) * 1e-3f;
            CHECK_OK(choir_write(params[i]->tensor, x, bytes));
        }
        if (turn) /* the optimizer continues from the written values */
            CHECK(step(&j, 0) == 0);
        for (int i = 0; i < count; i++) {
            size_t bytes = (size_t)params[i]->tensor->count * sizeof *x;
            x[0] = (float)(turn + i) * 1e-3f;
            CHECK_OK(choir_read(params[i]->tensor, y, bytes));
            CHECK((memcmp(x, y, bytes) == 0) == !turn);
            for (int64_t k = 0; k < params[i]->tensor->count; k++)
                CHECK(y[k] > x[k] - 0.1f && y[k] < x[k] + 0.1f);
        }
    }
    free(params);
    free(x);
    free(y);
    return close_job(&j);
}

static void written(void **state)
{
    (void)state;
    plan p = {.opts = gathered(true, 0)};
    assert_int_equal(choir_spawn(3, writes, &p), CHOIR_OK);
}

/* --- failures --- */

static void die(choir_module *m, choir_tensor *const *in, int count, void *arg)
{
    (void)m, (void)in, (void)count, (void)arg;
    kill(getpid(), SIGKILL);
}

static int dies(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    (void)world;
    if (open_job(&j, p) || step(&j, 0))
        return 1;
    p->notes->pid[rank] = getpid();
    CHECK_OK(choir_group_barrier(j.env.group, NULL));
    if (rank == p->victim) { /* in the middle of a forward pass */
        choir_module *inner = j.net->inside->entries->child->inside->entries->next->next->child;
        choir_module_hook(inner, (choir_module_hooks){.before_forward = die}, NULL);
    }
    choir_scope *s = choir_step_open(j.run, 1);
    choir_status status = body(s, &j), closed = choir_scope_close(s);
    status = status ? status : closed;
    if (!status)
        status = choir_device_sync(j.env.device);
    note(p->notes, rank, status);
    return 0;
}

static void dead(void **state)
{
    (void)state;
    for (int engine = 0; engine < 1 + have_ucx(); engine++) {
        char who[64];
        plan p = {.backend = engine ? "ucx" : "shm",
            .opts = gathered(true, 0),
            .notes = new_notes(),
            .victim = 1};
        assert_int_equal(choir_spawn(3, dies, &p), CHOIR_ERR_PEER_LOST);
        snprintf(who, sizeof who, "rank 1 (pid %d) died", (int)p.notes->pid[1]);
        for (int r = 0; r < 3; r += 2) {
            if (!strstr(p.notes->message[r], who))
                fail_msg("%s, rank %d: '%s'", p.backend, r, p.notes->message[r]);
            assert_int_equal(p.notes->status[r], CHOIR_ERR_PEER_LOST);
        }
        munmap(p.notes, sizeof *p.notes);
    }
}

static int starves(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    choir_device_stats stats;
    (void)world;
    if (open_job(&j, p) || step(&j, 0))
        return 1;
    choir__pool_trim(j.env.device);
    choir_device_get_stats(j.env.device, &stats);
    CHECK_OK(choir_group_barrier(j.env.group, NULL));
    if (rank == p->victim) /* activations fit */
        choir_device_set_limit(j.env.device, stats.bytes_reserved + 3 * UNIT);
    choir_scope *s = choir_step_open(j.run, 1);
    choir_status status = body(s, &j), closed = choir_scope_close(s);
    status = status ? status : closed;
    if (!status)
        status = choir_device_sync(j.env.device);
    note(p->notes, rank, status);
    choir_scope_close(j.run);
    return 0;
}

static void too_large(void **state)
{
    (void)state;
    plan p = {.opts = gathered(true, 0), .notes = new_notes(), .victim = 1};
    assert_int_equal(choir_spawn(2, starves, &p), CHOIR_OK);
    for (int r = 0; r < 2; r++) {
        if (p.notes->status[r] != CHOIR_ERR_MEMORY ||
            !strstr(p.notes->message[r], "for the weights of the unit with '"))
            fail_msg("rank %d: '%s'", r, p.notes->message[r]);
    }
    munmap(p.notes, sizeof *p.notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(memory),
        cmocka_unit_test(written), cmocka_unit_test(dead), cmocka_unit_test(too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
