/* Corner cases of DDP and FSDP: an op with weights of two units, one of them tied, tables that
 * some micro-batches look up more often than others, and a backward that fails on one rank. */
#include <stdatomic.h>
#include <sys/mman.h>

#include <choir/choir.h>

#include "helpers.h"
#include "tensor/tensor.h"

enum { N = 64, STEPS = 3 };

typedef struct plan {
    bool sharded, gathered;
    float *losses; /* (STEPS) of the last micro-batch of rank 0, shared */
    int64_t vocab; /* rows of the table */
} plan;

/* A linear layer whose weight may belong to another layer, after one with a weight of its
 * own. */
typedef struct layer {
    choir_module base;
    choir_tensor *weight, *bias, *before;
} layer;

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    layer *l = (layer *)self;
    choir_tensor *x = l->before ? choir_linear(in[0], l->before, NULL) : in[0];
    return choir_linear(x, l->weight, l->bias);
}

static const choir_module_class layer_class = {"layer", sizeof(layer), forward, 0};

static layer *new_layer(choir_scope *run, const layer *of)
{
    choir_init init = choir_init_normal(0, 0.1);
    layer *l = choir_module_new(run, &layer_class);
    if (of) {
        choir_module_tie(&l->base, "weight", &l->weight, of->weight);
        choir_module_param(&l->base, "before", &l->before, choir_dims(N, N), init);
    } else {
        choir_module_param(&l->base, "weight", &l->weight, choir_dims(N, N), init);
    }
    choir_module_param(&l->base, "bias", &l->bias, choir_dims(N), init);
    choir_fsdp_unit(&l->base);
    return l;
}

static choir_module *wrap(choir_scope *run, choir_module *net, choir_env *env, const plan *p)
{
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.gather = p->gathered;
    return p->sharded ? choir_fsdp(run, net, env->group, opts)
                      : choir_ddp(run, net, env->group, choir_ddp_defaults());
}

static int tied(int rank, int world, void *arg)
{
    const plan *p = arg;
    choir_env env;
    int64_t first, count;
    choir_check(choir_env_init(&env));
    env.microbatches = 2;
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 7);
    layer *a = new_layer(run, NULL), *b = new_layer(run, NULL), *c = new_layer(run, a);
    choir_module *net = choir_nn_sequential(run, &a->base, &b->base, &c->base);
    net = wrap(run, net, &env, p);
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    choir_tensor *x = choir_randn(run, choir_dims(8, N), "x");
    for (int s = 0; s < STEPS; s++) {
        choir_scope *step = choir_step_open(run, (uint64_t)s);
        for (int64_t m = first; m < first + count; m++) {
            choir_scope *micro = choir_micro_open(step, m);
            choir_tensor *y = choir_forward(net, choir_in(micro, x));
            choir_tensor *loss = choir_mean(choir_mul(y, y));
            if (m == 0 && rank == 0)
                p->losses[s] = (float)choir_item(loss);
            choir_check(choir_backward(loss));
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(optim));
        choir_check(choir_scope_close(step));
    }
    choir_check(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void weights_of_two_units(void **state)
{
    size_t bytes = STEPS * sizeof(float);
    float single[STEPS];
    plan plans[] = {{0}, {.sharded = true}, {.sharded = true, .gathered = true}};
    for (size_t i = 0; i < CHOIR_COUNT(plans); i++) {
        plan *p = &plans[i];
        p->losses = shared_memory(bytes);
        ok(choir_spawn(i ? 2 : 1, tied, p));
        if (i == 0)
            memcpy(single, p->losses, bytes);
        assert_memory_equal(p->losses, single, bytes);
        munmap(p->losses, bytes);
    }
    assert_true(single[0] != single[STEPS - 1]);
}

/* Each rank has two micro-batches, the second with more ids. Ranks that gather rows refuse it;
 * where the table is smaller than its rows, they sum tables. */
static int uneven(int rank, int world, void *arg)
{
    static const int64_t ids[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const plan *p = arg;
    choir_env env;
    int64_t first, count;
    choir_check(choir_env_init(&env));
    env.microbatches = 4;
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 7);
    choir_module *net =
        wrap(run, choir_nn_embedding(run, p->vocab, 4, choir_init_normal(0, 1)), &env, arg);
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    choir_scope *step = choir_step_open(run, 0);
    for (int64_t m = first; m < first + count; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        int64_t n = m == first ? 2 : 9;
        choir_tensor *x = choir_from(micro, CHOIR_I64, choir_dims(n), ids);
        choir_check(choir_backward(choir_mean(choir_forward(net, x))));
        choir_check(choir_scope_close(micro));
    }
    choir_status status = choir_optim_step(optim);
    bool told = p->vocab > 10 ? status == CHOIR_ERR_SHAPE &&
                                    strstr(choir_error_message(), "9 times in micro-batch")
                              : status == CHOIR_OK;
    choir_scope_close(step);
    choir_scope_close(run);
    choir_env_free(&env);
    return told ? 0 : 1;
}

static void tables_looked_up_unevenly(void **state)
{
    for (int sharded = 0; sharded < 2; sharded++)
        for (int vocab = 10; vocab <= 30; vocab += 20)
            ok(choir_spawn(2, uneven, &(plan){.sharded = sharded, .vocab = vocab}));
}

static void fail_here(choir_tensor *t, choir_tensor *grad, void *arg)
{
    choir_reshape(grad, choir_dims(7));
}

/* Lets the backward fail between the layers if *arg. */
static choir_tensor *watch(
    choir_module *m, choir_tensor *const *in, int count, choir_tensor *out, void *arg)
{
    const bool *fails = arg;
    if (*fails)
        choir_on_grad(out, fail_here, NULL);
    return choir_scale(out, 2);
}

static choir_status train(
    choir_scope *run, choir_env *env, choir_module *net, choir_optim *optim, bool *fails)
{
    int64_t first, count;
    choir_status status = CHOIR_OK, closed;
    choir_env_micro(env, &first, &count);
    choir_scope *step = choir_step_open(run, 0);
    for (int64_t m = first, last = first + count - 1; m <= last && status == CHOIR_OK; m++) {
        bool any = *fails;
        *fails = any && m == last;
        choir_scope *micro = choir_micro_open(step, m);
        choir_tensor *y = choir_forward(net, choir_randn(micro, choir_dims(8, N), "x"));
        status = choir_backward(choir_mean(y));
        closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
        *fails = any;
    }
    status = status == CHOIR_OK ? choir_optim_step(optim) : status;
    closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

typedef struct failure {
    bool sharded;
    int microbatches;
    atomic_int *told; /* (2), shared: each rank's next step has failed, too */
} failure;

/* The last backward of rank 1's step fails, which then begins the next one as rank 0 does. */
static int failing(int rank, int world, void *arg)
{
    const failure *f = arg;
    choir_env env;
    choir_check(choir_env_init(&env));
    env.microbatches = f->microbatches;
    choir_scope *run = choir_run_open(&env, 7);
    choir_module *front = choir_nn_linear(run, N, N), *net;
    bool fails = rank == 1;
    choir_module_hook(front, (choir_module_hooks){.change_output = watch}, &fails);
    net = wrap(run, choir_nn_sequential(run, front, choir_nn_linear(run, N, N)), &env,
        &(plan){.sharded = f->sharded});
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    choir_status first = train(run, &env, net, optim, &fails), status = first;
    fails = false;
    if (first == (rank == 1 ? CHOIR_ERR_SHAPE : CHOIR_OK))
        status = train(run, &env, net, optim, &fails);
    if (rank == 1)
        f->told[1] = status == CHOIR_ERR_STATE &&
                     strstr(choir_error_message(), "a step failed on this rank");
    choir_status closed = choir_scope_close(run);
    if (rank == 0)
        f->told[0] = (status == CHOIR_OK ? closed : status) == CHOIR_ERR_PEER_LOST;
    choir_env_free(&env);
    return status != CHOIR_OK;
}

static void backward_failed_on_one_rank(void **state)
{
    failure f = {.told = shared_memory(2 * sizeof *f.told)};
    for (int sharded = 0; sharded < 2; sharded++)
        for (f.microbatches = 2; f.microbatches <= 4; f.microbatches += 2) {
            f.sharded = sharded;
            f.told[0] = f.told[1] = 0;
            assert_int_equal(choir_spawn(2, failing, &f), CHOIR_ERR_PEER_LOST);
            assert_int_equal(f.told[0], 1);
            assert_int_equal(f.told[1], 1);
        }
    munmap(f.told, 2 * sizeof *f.told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_of_two_units),
        cmocka_unit_test(tables_looked_up_unevenly),
        cmocka_unit_test(backward_failed_on_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
