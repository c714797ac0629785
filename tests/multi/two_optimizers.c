/* A GAN whose networks are wrapped each by itself: with choir_optim_zero, and with the
 * discriminator frozen, it has the bits of one device without a wrapper, under DDP and every
 * stage of FSDP, on one to three ranks, recorded or not. */
#include "job_fixture.h"
#include "multi/ranks.h"

enum { M = 3, ROWS = 4, WIDTH = 6, STEPS = 5 };

typedef enum wrapping { PLAIN, DDP, FSDP_1, FSDP_2, FSDP_3, GATHERED, DEVICES } wrapping;
typedef enum cure { ZERO, ZERO_FIRST, FREEZE, NONE, TOO_EARLY, TWICE } cure;

typedef struct outcome {
    uint64_t weights; /* a hash */
    int failed;
    char message[512]; /* of rank 0 */
} outcome;

typedef struct job {
    wrapping wrapping;
    cure cure;
    bool recorded;
    outcome *out;
    choir_env env;
    choir_scope *run;
    choir_module *g, *d;
    choir_optim *opt_g, *opt_d;
    choir_tensor *noise, *real; /* (M ROWS, 2) */
    int64_t first, count;
} job;

static choir_module *network(job *j, int64_t out)
{
    choir_module *net = choir_nn_sequential(j->run, choir_nn_linear(j->run, 2, WIDTH),
        choir_nn_tanh(j->run), choir_nn_linear(j->run, WIDTH, out));
    choir_fsdp_opts sharded = choir_fsdp_defaults();
    sharded.stage = j->wrapping >= FSDP_3 ? 3 : j->wrapping - FSDP_1 + 1;
    sharded.gather = j->wrapping == GATHERED;
    choir_data_parallel_opts devices = choir_data_parallel_defaults();
    devices.device_count = 2;
    switch (j->wrapping) {
    case PLAIN: return net;
    case DDP: return choir_ddp(j->run, net, j->env.group, choir_ddp_defaults());
    case DEVICES: return choir_data_parallel(j->run, net, devices);
    default: return choir_fsdp(j->run, net, j->env.group, sharded);
    }
}

static choir_tensor *judged(job *j, choir_scope *s, choir_tensor *x, double as)
{
    choir_tensor *y = choir_forward(j->d, x);
    choir_tensor *label = choir_full(s, CHOIR_F32, choir_dims(choir_tensor_size(y, 0), 1), as);
    return choir_bce_with_logits_loss(y, label, NULL, CHOIR_LOSS_MEAN);
}

/* The losses of one micro-batch: the discriminator's on real and fake samples together, or, if
 * it is to be used TWICE, one after the other. */
static choir_status one_micro(job *j, choir_scope *s, int64_t m, bool generator)
{
    choir_tensor *part[2] = {choir_narrow(choir_in(s, j->real), 0, ROWS * m, ROWS),
        choir_forward(j->g, choir_narrow(choir_in(s, j->noise), 0, ROWS * m, ROWS))};
    if (generator)
        return choir_backward(judged(j, s, part[1], 1));
    part[1] = choir_keep(s, part[1]);
    if (j->cure == TWICE)
        return choir_backward(choir_add(judged(j, s, part[0], 1), judged(j, s, part[1], 0)));
    return choir_backward(judged(j, s, choir_cat(part, 2, 0), 0.25));
}

static choir_status backwards(job *j, choir_scope *step, bool generator)
{
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < j->count && status == CHOIR_OK; m++) {
        choir_scope *s = choir_micro_open(step, j->first + m);
        status = one_micro(j, s, j->first + m, generator);
        choir_status closed = choir_scope_close(s);
        status = status == CHOIR_OK ? closed : status;
        if (status == CHOIR_OK && j->cure == TOO_EARLY && !generator)
            status = choir_optim_zero(j->opt_d);
    }
    return status;
}

static choir_status one_step(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_status status = j->cure == ZERO_FIRST ? choir_optim_zero(j->opt_d) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = backwards(j, step, false);
    if (status == CHOIR_OK)
        status = choir_optim_step(j->opt_d);
    choir_module_freeze(j->d, j->cure == FREEZE);
    if (status == CHOIR_OK)
        status = backwards(j, step, true);
    choir_module_freeze(j->d, false);
    if (status == CHOIR_OK)
        status = choir_optim_step(j->opt_g);
    if (status == CHOIR_OK && (j->cure == ZERO || j->cure == TWICE))
        status = choir_optim_zero(j->opt_d);
    return status;
}

static choir_status all_steps(job *j)
{
    choir_status status = choir_scope_status(j->run);
    for (int i = 0; i < STEPS && status == CHOIR_OK; i++)
        status = run_step(j->run, j->recorded, i, one_step, j);
    return status == CHOIR_OK ? choir_device_sync(j->env.device) : status;
}

static int train(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    CHECK_OK(choir_env_init(&j.env));
    j.env.microbatches = M;
    j.run = choir_run_open(&j.env, 5);
    choir_env_micro(&j.env, &j.first, &j.count);
    j.count = j.wrapping == DEVICES ? 1 : j.count;
    j.real = choir_randn(j.run, choir_dims(M * ROWS, 2), "real");
    j.noise = choir_randn(j.run, choir_dims(M * ROWS, 2), "noise");
    j.g = network(&j, 2);
    j.d = network(&j, 1);
    j.opt_g = choir_adam(j.run, j.g, choir_adam_defaults());
    j.opt_d = choir_adam(j.run, j.d, choir_adam_defaults());
    choir_status status = all_steps(&j);
    if (rank == 0) {
        j.out->failed = status;
        snprintf(j.out->message, sizeof j.out->message, "%s", choir_error_message());
    }
    if (status == CHOIR_OK) {
        uint64_t weights = CHOIR__HASH_SEED;
        choir_module_visit(j.g, false, hash_values, &weights);
        choir_module_visit(j.d, false, hash_values, &weights);
        if (rank == 0)
            j.out->weights = weights;
    }
    choir_scope_clear(j.run);
    (void)!choir_scope_close(j.run);
    choir_env_free(&j.env);
    return 0;
}

static outcome launch(int ranks, wrapping w, cure c, bool recorded)
{
    outcome *o = shared_memory(sizeof *o);
    job j = {.wrapping = w, .cure = c, .recorded = recorded, .out = o};
    choir_status status = choir_spawn(ranks, train, &j);
    outcome result = *o;
    munmap(o, sizeof *o);
    if (status != CHOIR_OK)
        fail_msg("%d ranks: %s", ranks, choir_error_message());
    return result;
}

static void test_same_bits(void **state)
{
    uint64_t want = launch(1, PLAIN, FREEZE, false).weights;
    for (wrapping w = PLAIN; w <= GATHERED; w++)
        for (cure c = ZERO; c <= FREEZE; c++)
            for (int ranks = 1; ranks <= (w == PLAIN ? 1 : M); ranks++) {
                if (w == GATHERED && M % ranks)
                    continue; /* weights are gathered by all ranks, equally often */
                bool recorded = (w + c + ranks) % 2;
                outcome o = launch(ranks, w, c, recorded);
                if (o.failed || o.weights != want)
                    fail_msg("%d ranks, wrapping %d, cure %d, recorded %d: %s", ranks, w, c,
                        recorded, o.failed ? o.message : "other bits");
            }
}

static void test_devices(void **state)
{
    outcome a = launch(1, DEVICES, ZERO, false), b = launch(1, DEVICES, FREEZE, true);
    if (a.failed || b.failed)
        fail_msg("%s; %s", a.message, b.message);
    assert_int_equal(a.weights, b.weights);
}

static void test_errors(void **state)
{
    outcome o = launch(2, DDP, NONE, false);
    assert_int_equal(o.failed, CHOIR_ERR_STATE);
    if (!strstr(o.message, "the optimizer steps next; another optimizer has stepped since: if"))
        fail_msg("%s", o.message);
    o = launch(1, DDP, TWICE, false);
    if (!strstr(o.message, "of module 'sequential' is used 2 times in this step, 1 in the one"))
        fail_msg("%s", o.message);
    o = launch(1, FSDP_2, TOO_EARLY, false);
    if (!strstr(
            o.message, "choir_optim_zero after 1 of this rank's 3 micro-batches: the ranks"))
        fail_msg("%s", o.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_devices), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
