/* A model, a mask of which selects the branches that are used, and a job that trains it alone
 * or under DDP. The inputs depend on step and micro-batch only. Each rank stores its outcome in
 * memory that all processes share. */
#ifndef CHOIR_TESTS_DDP_FIXTURE_H
#define CHOIR_TESTS_DDP_FIXTURE_H

#include <stdlib.h>
#include <sys/mman.h>

#include <choir/choir.h>

#include "helpers.h"
#include "multi/ranks.h"
#include "nn/module.h"
#include "parallel/ddp/ddp.h"

enum { LEFT = 1, RIGHT = 2, SPARE = 4, TABLE = 8, ALL = 15 };
enum { WIDTH = 24, IDS = 13, ROWS = 5, FLOATS = 8192, RANKS = 4 };

/* The branches are registered in an order that differs from backward's. */
typedef struct branches {
    choir_module base;
    choir_module *head, *left, *spare, *right, *table, *norm, *trunk;
    int mask;
} branches;

static choir_tensor *branches_forward(choir_module *self, choir_tensor *const *in, int count)
{
    branches *b = (branches *)self;
    (void)count; /* x (ROWS, WIDTH), ids (ROWS) */
    choir_tensor *h = choir_tanh(choir_forward(b->norm, choir_forward(b->trunk, in[0])));
    choir_tensor *y = h;
    if (b->mask & LEFT)
        y = choir_add(y, choir_forward(b->left, h));
    if (b->mask & RIGHT)
        y = choir_add(y, choir_forward(b->right, h));
    if (b->mask & SPARE)
        y = choir_add(y, choir_forward(b->spare, h));
    if (b->mask & TABLE)
        y = choir_add(y, choir_forward(b->table, in[1]));
    return choir_forward(b->head, y);
}

static const choir_module_class branches_class = {
    "branches", sizeof(branches), branches_forward, 0};

static branches *branches_new(choir_scope *run)
{
    branches *b = choir_module_new(run, &branches_class);
    choir_module *m = &b->base;
    choir_module_child(m, "head", &b->head, choir_nn_linear(run, WIDTH, 3));
    choir_module_child(m, "left", &b->left, choir_nn_linear(run, WIDTH, WIDTH));
    choir_module_child(m, "spare", &b->spare, choir_nn_linear(run, WIDTH, WIDTH));
    choir_module_child(m, "right", &b->right, choir_nn_linear(run, WIDTH, WIDTH));
    choir_module_child(
        m, "table", &b->table, choir_nn_embedding(run, IDS, WIDTH, choir_init_normal(0, 1)));
    choir_module_child(m, "norm", &b->norm, choir_nn_batch_norm(run, WIDTH));
    choir_module_child(m, "trunk", &b->trunk, choir_nn_linear(run, WIDTH, WIDTH));
    b->mask = ALL;
    return b;
}

/* The outcome of a rank. */
typedef struct outcome {
    float weights[FLOATS], state[FLOATS], statistics[2 * WIDTH];
    int64_t count, state_count;
    int failed; /* the first status that is not CHOIR_OK */
    char message[512];
    float numbers[64]; /* free for the test to use */
    int64_t counts[16];
} outcome;

typedef struct job {
    int64_t micro; /* M */
    int steps;
    bool ddp, recorded;
    choir_ddp_opts opts;
    int (*mask)(int64_t step, int64_t micro); /* NULL: all */
    void (*prepare)(struct job *j);           /* after choir_ddp; may be NULL */
    outcome *out;                             /* (RANKS) */
    /* of one rank */
    choir_env env;
    choir_scope *run;
    branches *net;
    choir_module *model;
    choir_optim *optim;
    int64_t first, count;
} job;

static void copy_weights(const char *name, choir_tensor *t, void *arg)
{
    outcome *o = arg;
    int64_t n = choir_tensor_count(t);
    choir_check(choir_read(t, o->weights + o->count, (size_t)n * sizeof(float)));
    o->count += n;
}

static void copy_statistics(branches *net, float *to)
{
    const char *names[] = {"norm.running_mean", "norm.running_var"};
    for (int i = 0; i < 2; i++)
        choir_check(choir_read(
            choir_module_find(&net->base, names[i]), to + i * WIDTH, WIDTH * sizeof(float)));
}

static void copy_state(const char *name, choir_tensor *t, void *arg)
{
    outcome *o = arg;
    int64_t n = choir_tensor_count(t);
    choir_check(choir_read(t, o->state + o->state_count, (size_t)n * sizeof(float)));
    o->state_count += n;
}

/* Runs forward and backward of one micro-batch. */
static choir_status one_micro(job *j, choir_scope *step, int64_t number, int64_t m)
{
    int64_t ids[ROWS];
    choir_scope *micro = choir_micro_open(step, m);
    j->net->mask = j->mask ? j->mask(number, m) : ALL;
    for (int i = 0; i < ROWS; i++)
        ids[i] = (7 * i + 3 * m + number) % IDS;
    choir_tensor *x = choir_full(micro, CHOIR_F32, choir_dims(ROWS, WIDTH), 0);
    if (!j->recorded)
        x = choir_randn(micro, choir_dims(ROWS, WIDTH), "x");
    x = choir_add(
        x, choir_full(micro, CHOIR_F32, choir_dims(ROWS, WIDTH), 0.1 * (double)(m + 1)));
    choir_tensor *of = choir_from(micro, CHOIR_I64, choir_dims(ROWS), ids);
    choir_tensor *y = choir_forward(j->model, x, of);
    choir_status status = choir_backward(choir_mean(choir_mul(y, y)));
    choir_status closed = choir_scope_close(micro);
    return status != CHOIR_OK ? status : closed;
}

static choir_status one_step(job *j, int64_t number)
{
    choir_scope *step = choir_step_open(j->run, (uint64_t)number);
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < j->count && status == CHOIR_OK; m++)
        status = one_micro(j, step, number, j->first + m);
    if (status == CHOIR_OK)
        status = choir_optim_step(j->optim);
    choir_status closed = choir_scope_close(step);
    return status != CHOIR_OK ? status : closed;
}

static void open_job(job *j)
{
    choir_check(choir_env_init(&j->env));
    j->env.microbatches = j->micro;
    j->run = choir_run_open(&j->env, 5);
    choir_env_micro(&j->env, &j->first, &j->count);
    j->net = branches_new(j->run);
    j->model = &j->net->base;
    if (j->ddp)
        j->model = choir_ddp(j->run, j->model, j->env.group, j->opts);
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 1e-2f;
    j->optim = choir_adamw(j->run, j->model, hp);
    if (j->prepare)
        j->prepare(j);
}

/* Stores the rank's outcome and closes the job. */
static int close_job(job *j, choir_status status)
{
    outcome *o = &j->out[j->env.rank];
    o->failed = status;
    snprintf(o->message, sizeof o->message, "%s", status ? choir_error_message() : "");
    if (status == CHOIR_OK) {
        choir_module_visit(&j->net->base, false, copy_weights, o);
        copy_statistics(j->net, o->statistics);
        choir_optim_visit(j->optim, copy_state, o);
    }
    choir_status closed = choir_scope_close(j->run);
    choir_env_free(&j->env);
    return status == CHOIR_OK && closed != CHOIR_OK;
}

static inline int train(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    open_job(&j);
    choir_status status = choir_scope_status(j.run);
    for (int s = 0; s < j.steps && status == CHOIR_OK; s++)
        status = one_step(&j, s);
    if (status == CHOIR_OK)
        status = choir_device_sync(j.env.device);
    return close_job(&j, status);
}

/* A job whose steps have one input, so that they can be recorded. */
typedef struct recorded_job {
    job j;
    choir_tensor *x, *ids;
} recorded_job;

static inline choir_status recorded_step(choir_scope *step, void *arg)
{
    recorded_job *r = arg;
    choir_tensor *y = choir_forward(r->j.model, choir_in(step, r->x), choir_in(step, r->ids));
    choir_status status = choir_backward(choir_mean(choir_mul(y, y)));
    return status == CHOIR_OK ? choir_optim_step(r->j.optim) : status;
}

/* Runs fn on `ranks` ranks. Returns their outcomes (RANKS); the caller releases them with
 * munmap. */
static outcome *launch(int ranks, choir_spawn_fn *fn, job j)
{
    size_t bytes = RANKS * sizeof(outcome);
    outcome *o = shared_memory(bytes);
    j.out = o;
    choir_status status = choir_spawn(ranks, fn, &j);
    if (status != CHOIR_OK)
        fail_msg("%d ranks: %s", ranks, choir_error_message());
    return o;
}

static void let_go(outcome *o)
{
    munmap(o, RANKS * sizeof *o);
}

/* Asserts that the message, without its "rank 0: ", is this sentence. */
static inline void assert_said(const outcome *o, const char *sentence)
{
    assert_true(o->failed);
    assert_string_equal(
        strncmp(o->message, "rank ", 5) ? o->message : o->message + 8, sentence);
}

static inline void assert_same(const outcome *a, const outcome *b)
{
    if (a->failed || b->failed)
        fail_msg("failed: '%s', '%s'", a->message, b->message);
    assert_int_equal(a->count, b->count);
    assert_true(a->count > 1000);
    assert_int_equal(a->state_count, b->state_count);
    assert_memory_equal(a->weights, b->weights, (size_t)a->count * sizeof(float));
    assert_memory_equal(a->state, b->state, (size_t)a->state_count * sizeof(float));
}

#endif
