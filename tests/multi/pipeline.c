/* Pipelines over ranks. Every schedule on any number of ranks gives the bits of one device on
 * every rank, in each loss, each norm and the gathered weights, recorded or not. Ranks that
 * differ get an error, and a rank holds only its own stages. */
#include <signal.h>

#include <choir/context_parallel.h>

#include "job_fixture.h"
#include "sample.h"
#include "tensor/scope.h"

enum { STEPS = 7, BATCH = 24, MOST = 8, MICROS = 32 };

/* Results of one rank. */
typedef struct outcome {
    uint32_t loss_bits[STEPS][MICROS], norm_bits[STEPS];
    uint64_t weights, moments; /* hashes */
    int64_t bytes;             /* held after the last step */
    int64_t peak, expected;    /* the most held, from the first step on; by the plan */
    int64_t of_stage;          /* expected of the stage with this rank's number */
    char message[512];         /* of the expected error; of reading an absent value */
} outcome;

typedef struct plan {
    const char *model, *schedule, *cuts; /* schedule NULL: one device without a pipeline */
    int64_t microbatches;
    size_t limit;          /* of each rank's device; 0: none */
    bool recorded, to_one; /* the weights are gathered on rank 0 alone */
    int context;           /* ranks that share the sequences of a stage; 0: one */
    int odd;               /* a rank that differs: see differ() */
    const char *how;
    outcome *out; /* (MOST) in shared memory */
} plan;

typedef struct job {
    const plan *plan;
    choir_env env;
    choir_mesh *mesh; /* with ranks that share sequences; else NULL */
    choir_model_info info;
    choir_scope *run;
    choir_module *net, *pipe;
    choir_optim *optim;
    choir_loader *loader;
    choir_tensor *losses[MICROS];
} job;

static bool differs(const job *j, const char *how)
{
    const plan *p = j->plan;
    return p->how && j->env.rank == p->odd && !strcmp(p->how, how);
}

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    choir_batch b;
    if (choir_loader_next(j->loader, micro, &b) != CHOIR_OK)
        return NULL;
    choir_tensor *y = choir_forward(net, b.x);
    if (differs(j, "ops"))
        y = choir_relu(y);
    return choir_model_loss(&j->info, y, b.y);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    const plan *p = j->plan;
    choir_module *pipe = p->schedule ? j->pipe : NULL;
    micro_batches all = {0, p->microbatches, micro_batch, j->net, j, j->losses, pipe};
    return train_micro_batches(step, all, j->optim);
}

static void ignore(const char *name, choir_tensor *t, void *arg)
{
}

/* Returns the data, which the caller frees. */
static choir_dataset *open_loader(job *j)
{
    choir_dataset *data = random_data(&j->info, 200, differs(j, "data") ? 6 : 5);
    const int64_t all = j->plan->microbatches;
    j->loader = rank_loader(j->run, data, BATCH, all, 0, all);
    return data;
}

/* Opens the run of ranks that compute every micro-batch together. */
static choir_scope *open_run(const job *j)
{
    choir_env env = j->env;
    env.rank = 0;
    env.world = 1;
    env.microbatches = j->plan->microbatches;
    return choir_run_open(&env, differs(j, "seed") ? 12 : 11);
}

/* Lets ranks share the sequences of each stage; returns the group of the stages. */
static choir_group *share_sequences(job *j)
{
    static const char *const names[] = {"context", "pipeline"};
    const int context = j->plan->context;
    choir_check(choir_mesh_new(
        j->env.group, 2, names, (int[]){context, j->env.world / context}, &j->mesh));
    j->net = j->pipe = choir_context_parallel(j->run, j->net,
        choir_mesh_group(j->mesh, "context"), choir_context_parallel_defaults());
    return choir_mesh_group(j->mesh, "pipeline");
}

static void open_job(job *j)
{
    const plan *p = j->plan;
    choir_check(choir_env_init(&j->env));
    choir_device_set_limit(j->env.device, p->limit);
    j->run = open_run(j);
    j->net = j->pipe = build_model(j->run, p->model, &j->info);
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.group = p->context ? share_sequences(j) : j->env.group;
    opts.schedule = differs(j, "schedule") ? "gpipe" : p->schedule;
    opts.cuts = p->cuts;
    if (p->schedule)
        j->pipe = choir_pipeline(j->run, j->net, opts);
    j->optim = clipped_adamw(j->run, j->pipe);
}

static choir_status one_step(job *j, int number)
{
    return run_step(j->run, j->plan->recorded, number, body, j);
}

static void train(job *j, outcome *out)
{
    const plan *p = j->plan;
    for (int step = 0; step < STEPS; step++) {
        if (step == 4 && p->schedule && !p->recorded)
            choir_check(choir_pipeline_gather(j->pipe, -1)); /* and goes on */
        choir_check(one_step(j, step));
        for (int64_t m = 0; m < p->microbatches; m++)
            out->loss_bits[step][m] = item_bits(j->losses[m]);
        out->norm_bits[step] = item_bits(choir_optim_grad_norm(j->optim));
    }
    choir_device_stats stats;
    choir_device_get_stats(j->env.device, &stats);
    out->bytes = (int64_t)stats.bytes_now;
    out->peak = (int64_t)stats.bytes_peak;
    for (int s = 0; s < choir_pipeline_stages(j->pipe); s++)
        if (choir_pipeline_bytes(j->pipe, s) > out->expected)
            out->expected = choir_pipeline_bytes(j->pipe, s);
    if (j->mesh)
        out->of_stage =
            choir_pipeline_bytes(j->pipe, choir_mesh_coordinate(j->mesh, "pipeline"));
}

/* A parameter in another process cannot be read; a local one can. */
static void read_away(const char *name, choir_tensor *t, void *arg)
{
    char *message = arg;
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    void *data = malloc(bytes);
    if (choir_read(t, data, bytes) != CHOIR_OK)
        snprintf(message, 512, "%s", choir_error_message());
    free(data);
}

static int rank_main(int rank, int world, void *arg)
{
    job j = {.plan = arg};
    outcome *out = &j.plan->out[rank];
    open_job(&j);
    choir_check(choir_scope_status(j.run));
    choir_dataset *data = open_loader(&j);
    train(&j, out);
    if (j.plan->schedule)
        choir_module_visit(j.net, true, read_away, out->message);
    if (j.plan->schedule)
        choir_check(choir_pipeline_gather(j.pipe, j.plan->to_one ? 0 : -1));
    if (!j.plan->to_one || rank == 0) {
        out->weights = hash_of_module(j.net);
        out->moments = hash_of_state(j.optim);
    } else {
        choir_optim_visit(j.optim, ignore, NULL); /* state follows the parameters there */
    }
    choir_check(choir_scope_close(j.run));
    choir_dataset_free(data);
    choir_mesh_free(j.mesh);
    choir_env_free(&j.env);
    return 0;
}

static outcome *run(plan p, int ranks)
{
    p.out = shared_memory(MOST * sizeof(outcome));
    if (choir_spawn(ranks, rank_main, &p) != CHOIR_OK)
        fail_msg("%s, %s on %d ranks: %s", p.model, p.schedule, ranks, choir_error_message());
    return p.out;
}

static void assert_same(const outcome *want, const outcome *got, const plan *p, int rank)
{
    for (int s = 0; s < STEPS; s++) {
        for (int m = 0; m < MICROS; m++)
            if (want->loss_bits[s][m] != got->loss_bits[s][m])
                fail_msg("%s, %s, %lld micro-batches%s: loss %d of step %d differs on rank %d",
                    p->model, p->schedule, (long long)p->microbatches,
                    p->recorded ? ", recorded" : "", m, s, rank);
        if (want->norm_bits[s] != got->norm_bits[s])
            fail_msg(
                "%s, %s: norm of step %d differs on rank %d", p->model, p->schedule, s, rank);
    }
    if (p->to_one && rank)
        return;
    assert_true(want->weights == got->weights);
    assert_true(want->moments == got->moments);
}

static const char *const schedules[] = {
    "sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"};

/* Compares on 1 to `ranks` ranks, with up to `most` stages; a sample, a third of the schedules.
 */
static void check_model(const char *model, int ranks, int most, int64_t microbatches)
{
    outcome *want = run((plan){.model = model, .microbatches = microbatches}, 1);
    for (int n = 1; n <= ranks; n++)
        for (size_t s = 0; s < 5; s++) {
            plan p = {.model = model,
                .schedule = schedules[s],
                .microbatches = microbatches,
                .recorded = (s + (size_t)n) % 2,
                .to_one = (s + (size_t)n) % 3 == 0};
            if (n * (s == 3 ? 2 : 1) > most || !sample_combination(3))
                continue;
            outcome *got = run(p, n);
            for (int r = 0; r < n; r++)
                assert_same(want, &got[r], &p, r);
            munmap(got, MOST * sizeof *got);
        }
    munmap(want, MOST * sizeof *want);
}

static void toy(void **state)
{
    check_model("toy", 2, 2, 4);
    check_model("toy", 2, 2, 3);
}

static void mlp(void **state)
{
    check_model("mlp", 3, 3, 6);
}

static void gpt2(void **state)
{
    check_model("gpt2:layers=2,heads=2,width=16,context=8,vocab=40,dropout=0.1", 3, 8, 4);
}

static void resnet(void **state)
{
    check_model("resnet18:image=32,width=8,classes=4", 2, 8, 3);
}

/* Each of 3 ranks holds only the parameters, gradients and moments of its stages. Asking for
 * others gives an error that says so. */
static void parts(void **state)
{
    plan p = {.model = "mlp:in=64,hidden=256,classes=10,layers=6",
        .microbatches = 6,
        .schedule = "1f1b",
        .recorded = true};
    plan whole = p;
    whole.schedule = NULL;
    outcome *want = run(whole, 1), *got = run(p, 3);
    for (int r = 0; r < 3; r++) {
        assert_same(want, &got[r], &p, r);
        if (got[r].bytes > want->bytes * 6 / 10)
            fail_msg("rank %d of 3 holds %lld bytes, one device %lld", r,
                (long long)got[r].bytes, (long long)want->bytes);
        assert_non_null(strstr(got[r].message, "another process; choir_pipeline_gather"));
    }
    munmap(want, MOST * sizeof *want);
    munmap(got, MOST * sizeof *got);
}

/* A model that does not fit in one device trains on two ranks and on four, with cuts by hand
 * and without. No rank ever holds more than the plan expects of a stage. */
static void larger(void **state)
{
    static const struct {
        int ranks;
        const char *cuts;
    } all[] = {{2, "transformer.h.4"}, {2, NULL},
        {4, "transformer.h.2,transformer.h.4,transformer.h.6"}, {4, NULL}};
    plan whole = {.model = "gpt2:layers=8,heads=4,width=64,context=32,vocab=500",
        .microbatches = 4,
        .recorded = true};
    outcome *want = run(whole, 1);
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        plan p = whole;
        p.schedule = "1f1b";
        p.cuts = all[i].cuts;
        p.limit = (size_t)want->peak * 8 / 10;
        p.to_one = true;
        outcome *got = run(p, all[i].ranks);
        for (int r = 0; r < all[i].ranks; r++) {
            assert_same(want, &got[r], &p, r);
            if ((double)got[r].peak > 1.1 * (double)got[r].expected)
                fail_msg("rank %d of %d held %lld bytes, expected were %lld", r, all[i].ranks,
                    (long long)got[r].peak, (long long)got[r].expected);
        }
        munmap(got, MOST * sizeof *got);
    }
    munmap(want, MOST * sizeof *want);
}

/* Where ranks share the sequences, each has the rows that the lookups of all of them give, of
 * all micro-batches, or the table of their sums if that is less, as the plan expects. */
static void rows_of_sequences(void **state)
{
    static const char *const models[] = {
        "gpt2:layers=2,heads=4,width=64,context=64,vocab=1450", /* 24 * 64 rows are more */
        "gpt2:layers=2,heads=4,width=64,context=64,vocab=1700"};
    for (size_t i = 0; i < CHOIR_COUNT(models); i++) {
        plan p = {.model = models[i],
            .schedule = "1f1b",
            .microbatches = 4,
            .context = 2,
            .recorded = true,
            .to_one = true};
        outcome *got = run(p, 4);
        for (int r = 0; r < 4; r++)
            if ((double)got[r].peak > 1.1 * (double)got[r].of_stage)
                fail_msg("%s: rank %d of 4 held %lld bytes, expected were %lld", p.model, r,
                    (long long)got[r].peak, (long long)got[r].of_stage);
        munmap(got, MOST * sizeof *got);
    }
}

/* --- ranks that differ --- */

static int odd_main(int rank, int world, void *arg)
{
    job j = {.plan = arg};
    outcome *out = &j.plan->out[rank];
    signal(SIGTERM, SIG_IGN);
    open_job(&j);
    choir_status status = choir_scope_status(j.run);
    choir_dataset *data = open_loader(&j);
    for (int step = 0; step < STEPS && status == CHOIR_OK; step++)
        status = one_step(&j, step);
    snprintf(out->message, sizeof out->message, "%s",
        status == CHOIR_OK ? "" : choir_error_message());
    choir_scope_close(j.run);
    choir_dataset_free(data);
    choir_env_free(&j.env);
    return 0;
}

static void differ(void **state)
{
    static const char *const told[][2] = {{"schedule", "schedules, chunks or cuts"},
        {"seed", "seeds"}, {"data", "data in the first step"},
        {"ops", "ops in their micro-batches"}};
    for (size_t i = 0; i < CHOIR_COUNT(told); i++) {
        plan p = {
            .model = "mlp", .schedule = "1f1b", .microbatches = 2, .odd = 1, .how = told[i][0]};
        p.out = shared_memory(MOST * sizeof(outcome));
        ok(choir_spawn(2, odd_main, &p));
        for (int r = 0; r < 2; r++)
            if (!strstr(p.out[r].message, told[i][1]) ||
                !strstr(p.out[r].message, "ranks 0 and 1 have different"))
                fail_msg("another %s: rank %d was told '%s'", told[i][0], r, p.out[r].message);
        munmap(p.out, MOST * sizeof *p.out);
    }
}

/* --- one run after another --- */

static int twice_main(int rank, int world, void *arg)
{
    plan p = *(plan *)arg;
    for (int i = 0; i < 2; i++) {
        rank_main(rank, world, &p);
        p.out += MOST;
    }
    return 0;
}

/* A run leaves nothing on the device that affects the next run. */
static void twice(void **state)
{
    plan p = {.model = "mlp", .schedule = "zero-bubble", .microbatches = 4};
    p.out = shared_memory(2 * MOST * sizeof(outcome));
    ok(choir_spawn(2, twice_main, &p));
    for (int r = 0; r < 2; r++)
        assert_same(&p.out[0], &p.out[r + MOST], &p, r);
    munmap(p.out, 2 * MOST * sizeof *p.out);
}

/* --- another engine --- */

static void ucx(void **state)
{
    use_ucx();
    check_model("mlp", 3, 3, 4);
    check_model("gpt2:layers=3,heads=2,width=16,context=8,vocab=40,dropout=0.1", 3, 8, 3);
    unsetenv("CHOIR_BACKEND");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    setenv("CHOIR_CPU_DEVICES", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toy),
        cmocka_unit_test(mlp),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(resnet),
        cmocka_unit_test(parts),
        cmocka_unit_test(larger),
        cmocka_unit_test(rows_of_sequences),
        cmocka_unit_test(differ),
        cmocka_unit_test(twice),
        cmocka_unit_test(ucx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
