/* No gathering by another name: each of N ranks of tensor parallelism has 1/N of the weights in
 * slices, of their gradients and state, of the activations and of the FLOPs, plus 5 % at most,
 * by the counters of its device, and no less than 0.9 of that. Memory comes in blocks of sizes
 * that are exact to 1/16 from 1 MiB on, so the models have that much on each of 4 ranks.
 * Activations between the layers are shared by sequence parallelism alone, so without it they
 * are measured where layers are wide. context_parallel.c measures the ranks of one sequence. */
#include <choir/tensor_parallel.h>
#include <choir/trace.h>

#include "job_fixture.h"
#include "nn/module.h"
#include "multi/ranks.h"

enum { SLICES = 4, SAMPLES = 2 };

typedef struct plan {
    const char *model;
    bool sequence;
    int ranks;
} plan;

/* A rank's bytes, beside the replicated ones, and its work in a step. */
typedef struct share {
    double weights, gradients, state, activations, flops;
} share;

typedef struct job {
    const plan *plan;
    choir_model_info info;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
} job;

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    int64_t n = SAMPLES * j->info.input.dim[0], *ids = calloc((size_t)n, sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = i * 7 % j->info.classes;
    choir_scope *micro = choir_micro_open(step, 0);
    choir_tensor *x =
        choir_from(micro, CHOIR_I64, choir_dims(SAMPLES, j->info.input.dim[0]), ids);
    free(ids);
    choir_check(choir_backward(choir_cross_entropy(choir_forward(j->net, x), x)));
    choir_check(choir_scope_close(micro));
    return choir_optim_step(j->optim);
}

/* Returns the number of weights that are not in slices. */
static double replicated(choir_module *net)
{
    int count;
    double sum = 0;
    choir__param **all = choir__module_params(net, &count);
    for (int i = 0; i < count; i++)
        if (!all[i]->tensor->split)
            sum += (double)all[i]->tensor->count;
    free(all);
    return sum;
}

/* Measures the second step. */
static int measure(int rank, int world, void *arg)
{
    void **args = arg;
    job j = {.plan = args[0]};
    share *out = (share *)args[1] + rank;
    choir_device_stats before, after;
    choir_group *group = NULL;
    choir_device *device = cpu_device(0);
    choir_tensor_parallel_opts opts = choir_tensor_parallel_defaults();
    opts.slices = SLICES;
    opts.sequence_parallel = j.plan->sequence;
    if (world > 1)
        CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    j.run = choir_scope_open(device, 3);
    j.net = build_model(j.run, j.plan->model, &j.info);
    choir_tensor_parallel(j.run, j.net, group, opts);
    j.optim = clipped_adamw(j.run, j.net);
    CHECK_OK(run_step(j.run, false, 0, body, &j));
    choir_check(choir_device_sync(device));
    choir_device_get_stats(device, &before);
    choir_device_reset_peak(device);
    choir_trace *trace = choir_trace_new(0);
    choir_trace_device(trace, device);
    CHECK_OK(run_step(j.run, false, 1, body, &j));
    out->flops = traced_flops(trace);
    choir_device_get_stats(device, &after);
    double all = 4 * replicated(j.net);
    out->weights = (double)after.bytes_weights - all;
    out->gradients = (double)after.bytes_gradients - all;
    out->state = (double)after.bytes_optimizer - 2 * all;
    out->activations = (double)(after.bytes_peak - before.bytes_now);
    choir_trace_free(trace);
    choir_check(choir_scope_close(j.run));
    if (group)
        choir_group_free(group);
    return 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static share shares_of(plan p)
{
    share *shared = shared_memory(SLICES * sizeof *shared), most = {0};
    void *args[] = {&p, shared};
    ok(choir_spawn(p.ranks, measure, args));
    for (int r = 0; r < p.ranks; r++)
        most = (share){larger(most.weights, shared[r].weights),
            larger(most.gradients, shared[r].gradients), larger(most.state, shared[r].state),
            larger(most.activations, shared[r].activations),
            larger(most.flops, shared[r].flops)};
    munmap(shared, SLICES * sizeof *shared);
    return most;
}

static void assert_shares(plan p)
{
    p.ranks = 1;
    share one = shares_of(p);
    assert_true(one.weights > 0 && one.gradients > 0 && one.state > 0 && one.flops > 0);
    for (p.ranks = 2; p.ranks <= SLICES; p.ranks *= 2) {
        share own = shares_of(p);
        double parts[] = {own.weights / one.weights, own.gradients / one.gradients,
            own.state / one.state, own.activations / one.activations, own.flops / one.flops};
        static const char *const names[] = {
            "weights", "gradients", "state", "activations", "FLOPs"};
        for (int i = 0; i < 5; i++)
            if (parts[i] * p.ranks > 1.05 || parts[i] * p.ranks < 0.9)
                fail_msg("%s, %d ranks: %.3f of 1/N of the %s", p.model, p.ranks,
                    parts[i] * p.ranks, names[i]);
    }
}

static void slices(void **state)
{
    assert_shares((plan){
        .model = "llama:layers=6,heads=4,kv_heads=4,width=8,hidden=1024,context=64,vocab=24"});
}

static void tokens(void **state)
{
    static const char *const models[] = {
        "gpt2:layers=20,heads=4,width=64,context=64,vocab=64,dropout=0.1",
        "llama:layers=20,heads=4,kv_heads=4,width=64,hidden=192,context=64,vocab=64"};
    for (size_t m = 0; m < CHOIR_COUNT(models); m++)
        assert_shares((plan){.model = models[m], .sequence = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices), cmocka_unit_test(tokens)};
    return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
