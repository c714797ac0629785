/* A deep model of equal blocks that ranks train under FSDP, or one rank without it. Each rank
 * has the plan in shared memory, where rank 0 stores its results. */
#ifndef CHOIR_TESTS_FSDP_FIXTURE_H
#define CHOIR_TESTS_FSDP_FIXTURE_H

#include "fault/notes.h"
#include "job_fixture.h"
#include "multi/ranks.h"
#include "nn/module.h"
#include "parallel/fsdp/fsdp.h"
#include "tensor/scope.h"

enum { BLOCKS = 10, WIDTH = 96, STEPS = 4, ROWS = 3, UNIT = WIDTH * (WIDTH + 1) };

typedef enum rule { ADAM, SGD, LAMB } rule;

struct job;

typedef struct plan {
    const char *backend; /* NULL: the usual one */
    char folder[64];     /* of off-loaded shards; "": no folder */
    choir_fsdp_opts opts;
    bool single, recorded, recompute;
    rule rule;
    int64_t microbatches;
    void (*prepare)(const struct job *j);       /* before the run; may be NULL */
    int (*look)(const struct job *j, int step); /* after each step; not 0: fails; may be NULL */
    notes *notes;
    /* results */
    uint32_t loss[STEPS];
    uint64_t weights, state; /* hashes */
    uint64_t peak;           /* the most bytes of rank 0's device */
} plan;

typedef struct job {
    plan *plan;
    rank_job r;
    choir_tensor *x;
} job;

static inline choir_optim *new_optim(choir_scope *run, choir_module *net, rule by)
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

static inline choir_module *new_blocks(choir_scope *run)
{
    choir_module *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] =
            choir_nn_sequential(run, choir_nn_linear(run, WIDTH, WIDTH), choir_nn_relu(run));
    return choir_nn_sequential_n(run, blocks, BLOCKS);
}

/* Opens a rank's part; choir_scope_status of its run says whether all went well. */
static inline void open_job(job *j, plan *p)
{
    *j = (job){.plan = p};
    if (p->backend)
        setenv("CHOIR_BACKEND", p->backend, 1);
    choir_check(choir_env_init(&j->r.env));
    if (p->prepare)
        p->prepare(j);
    j->r.env.microbatches = p->microbatches;
    j->r.run = choir_run_open(&j->r.env, 7);
    choir_env_micro(&j->r.env, &j->r.first, &j->r.count);
    j->r.net = new_blocks(j->r.run);
    if (p->recompute)
        choir_module_recompute_blocks(j->r.net, true);
    p->opts.offload_folder = *p->folder ? p->folder : NULL;
    if (!p->single)
        j->r.net = choir_fsdp(j->r.run, j->r.net, j->r.env.group, p->opts);
    j->r.optim = new_optim(j->r.run, j->r.net, p->rule);
    choir_optim_clip(j->r.optim, 0.05f);
    j->x = choir_randn(j->r.run, choir_dims(ROWS * p->microbatches, WIDTH), "x");
}

static inline choir_tensor *loss_of_rows(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    choir_tensor *x = choir_narrow(choir_in(micro, j->x), 0, ROWS * micro->micro, ROWS);
    choir_tensor *y = choir_forward(net, x);
    return choir_mean(choir_mul(y, y));
}

static inline choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    return train_rank(&j->r, step, loss_of_rows, j);
}

static inline choir_status step(job *j, int number)
{
    return run_step(j->r.run, j->plan->recorded, number, body, j);
}

static inline int train(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    choir_device_stats stats;
    uint64_t weights = CHOIR__HASH_SEED, state = weights;
    open_job(&j, p);
    CHECK_OK(choir_scope_status(j.r.run));
    for (int s = 0; s < STEPS; s++) {
        CHECK_OK(step(&j, s));
        float loss = mean_loss(&j.r.env, j.r.losses, j.r.count);
        if (rank == 0)
            p->loss[s] = bits_of(loss);
        CHECK(!p->look || p->look(&j, s) == 0);
    }
    choir_device_get_stats(j.r.env.device, &stats);
    choir_module_visit(j.r.net, false, hash_values, &weights); /* may be collective */
    choir_optim_visit(j.r.optim, hash_values, &state);
    if (rank == 0) {
        p->peak = stats.bytes_peak;
        p->weights = weights;
        p->state = state;
    }
    return close_rank_job(&j.r);
}

/* Trains on ranks; returns the plan with its results. */
static inline plan run(int ranks, plan p)
{
    train_on_ranks(ranks, train, &p, sizeof p);
    return p;
}

static inline void same(const plan *a, const plan *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_true(a->weights == b->weights);
}

#endif
