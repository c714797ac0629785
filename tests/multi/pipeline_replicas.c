/* Replicas of a pipeline on a mesh of data x pipeline. With either wrapper outside, any
 * schedule, stages in ranks or on the devices of one process, recorded or not, the losses of
 * each replica, all norms, weights and moments equal those of one device bit for bit. Wrong
 * meshes get an error. */
#include <signal.h>

#include "base/tree.h"
#include "job_fixture.h"
#include "sample.h"
#include "tensor/scope.h"

enum { STEPS = 6, BATCH = 60, MOST = 8, MICROS = 12 };

typedef struct outcome {
    uint32_t loss_bits[STEPS][MICROS], norm_bits[STEPS];
    uint64_t weights, moments; /* hashes */
    int64_t peak, expected;    /* the most a device of this rank held; by the plan */
    char message[512];
} outcome;

typedef struct plan {
    const char *model, *schedule; /* schedule NULL: one device, no replicas */
    int replicas, stages;
    int64_t microbatches;
    bool inside;              /* stages are a process's devices */
    bool within;              /* the pipeline wraps DDP, not the other way round */
    bool sharded;             /* FSDP replaces DDP: a rank keeps its rows, never gathered */
    bool gathered, offloaded; /* FSDP's stage 3: weights come in units; rows are host memory */
    bool recorded;
    const char *odd; /* how rank 1 differs */
    outcome *out;    /* (MOST) in shared memory */
} plan;

typedef struct job {
    const plan *plan;
    choir_env env;
    choir_mesh *mesh;
    choir_model_info info;
    choir_scope *run;
    choir_module *net, *model;
    choir_optim *optim;
    choir_dataset *data;
    choir_loader *loader;
    int64_t first, count; /* this replica's micro-batches */
    choir_tensor *losses[MICROS];
} job;

static bool differs(const job *j, const char *how)
{
    return j->plan->odd && j->env.rank == 1 && !strcmp(j->plan->odd, how);
}

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    return loss_of_next(j->loader, micro, net, &j->info);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    int64_t count = j->count + differs(j, "count");
    choir_module *pipe = j->plan->schedule ? j->model : NULL;
    micro_batches all = {0, count, micro_batch, j->net, j, j->losses, pipe};
    return train_micro_batches(step, all, j->optim);
}

/* --- the job --- */

/* Returns the device of a stage that is one of this rank's. */
static choir_device *inside_device(const job *j, int stage)
{
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", (j->env.rank * j->plan->stages + stage) % MOST);
    return choir_device_find(name);
}

static void wrap(job *j)
{
    static const char *const names[] = {"data", "pipeline"};
    const plan *p = j->plan;
    const int sizes[] = {p->replicas, p->stages};
    choir_group *data = j->env.group;
    choir_device *devices[MOST];
    choir_pipeline_opts opts = choir_pipeline_defaults();
    choir_ddp_opts ddp = choir_ddp_defaults();
    opts.schedule = differs(j, "schedule") ? "gpipe" : p->schedule;
    ddp.microbatches = p->microbatches;
    ddp.first_bucket_mb = ddp.bucket_cap_mb = 0.001;
    if (p->inside) {
        opts.devices = devices;
        opts.device_count = p->stages;
        for (int s = 0; s < p->stages; s++)
            devices[s] = inside_device(j, s);
    } else {
        choir_check(choir_mesh_new(j->env.group, 2, names, sizes, &j->mesh));
        data = choir_mesh_group(j->mesh, differs(j, "place") ? "pipeline" : "data");
        opts.group = choir_mesh_group(j->mesh, differs(j, "place") ? "data" : "pipeline");
    }
    j->model = p->within ? choir_ddp(j->run, j->net, data, ddp) : j->net;
    j->model = choir_pipeline(j->run, j->model, opts);
    if (p->sharded) {
        choir_fsdp_opts fsdp = choir_fsdp_defaults();
        fsdp.microbatches = p->microbatches;
        fsdp.stage = 1 + p->stages % 3; /* 2x2: 3; 2x3: 1; 2x4: 2 */
        fsdp.gather = p->gathered;
        fsdp.offload = p->offloaded;
        fsdp.stage = p->gathered || p->offloaded ? 3 : fsdp.stage;
        j->model = choir_fsdp(j->run, j->model, data, fsdp);
    } else if (!p->within) {
        j->model = choir_ddp(j->run, j->model, data, ddp);
    }
    int64_t end;
    choir__tree_run(p->microbatches, choir_group_rank(data), p->replicas, &j->first, &end);
    j->count = end - j->first;
}

static void open_job(job *j)
{
    const plan *p = j->plan;
    choir_check(choir_env_init(&j->env));
    j->env.device = cpu_device(p->inside ? j->env.rank * p->stages : j->env.rank);
    j->run = choir_scope_open(j->env.device, 11);
    j->net = j->model = build_model(j->run, p->model, &j->info);
    j->count = p->microbatches;
    if (p->schedule)
        wrap(j);
    j->optim = clipped_adamw(j->run, j->model);
    j->data = random_data(&j->info, 200, 5);
    j->loader = rank_loader(j->run, j->data, BATCH, p->microbatches, j->first, j->count);
}

static void close_job(job *j)
{
    choir_scope_close(j->run);
    choir_dataset_free(j->data);
    choir_mesh_free(j->mesh);
    choir_env_free(&j->env);
}

static choir_status one_step(job *j, int number)
{
    return run_step(j->run, j->plan->recorded, number, body, j);
}

/* Notes the most bytes that a device of this rank held, from the first step on, and the most
 * that the plan expects of a stage. */
static void note_bytes(const job *j, outcome *out)
{
    for (int s = 0; s < choir_pipeline_stages(j->model); s++) {
        choir_device_stats stats;
        choir_device_get_stats(j->plan->inside ? inside_device(j, s) : j->env.device, &stats);
        out->peak = choir__max(out->peak, (int64_t)stats.bytes_peak);
        out->expected = choir__max(out->expected, choir_pipeline_bytes(j->model, s));
    }
}

static int rank_main(int rank, int world, void *arg)
{
    job j = {.plan = arg};
    outcome *out = &j.plan->out[rank];
    open_job(&j);
    choir_check(choir_scope_status(j.run));
    for (int step = 0; step < STEPS; step++) {
        if (step == 4 && j.plan->schedule && !j.plan->recorded && !j.plan->sharded)
            choir_check(choir_pipeline_gather(j.model, -1)); /* and goes on */
        choir_check(one_step(&j, step));
        for (int64_t m = 0; m < j.count; m++)
            out->loss_bits[step][j.first + m] = item_bits(j.losses[m]);
        out->norm_bits[step] = item_bits(choir_optim_grad_norm(j.optim));
    }
    note_bytes(&j, out);
    if (j.plan->sharded) {
        assert_int_equal(choir_pipeline_gather(j.model, -1), CHOIR_ERR_UNSUPPORTED);
        close_job(&j);
        return 0;
    }
    if (j.plan->schedule)
        choir_check(choir_pipeline_gather(j.model, -1));
    out->weights = CHOIR__HASH_SEED;
    /* running statistics are micro-batch 0's, and so replica 0's */
    choir_module_visit(j.net, j.first == 0, hash_tensor, &out->weights);
    out->moments = hash_of_state(j.optim);
    close_job(&j);
    return 0;
}

static outcome *run(plan p, int ranks)
{
    p.out = shared_memory(MOST * sizeof(outcome));
    if (choir_spawn(ranks, rank_main, &p) != CHOIR_OK)
        fail_msg("%s, %s on %dx%d: %s", p.model, p.schedule, p.replicas, p.stages,
            choir_error_message());
    return p.out;
}

static void assert_same(const outcome *want, const plan *p, const outcome *got, int rank)
{
    int64_t first, end;
    choir__tree_run(
        p->microbatches, p->inside ? rank : rank / p->stages, p->replicas, &first, &end);
    for (int s = 0; s < STEPS; s++) {
        for (int64_t m = first; m < end; m++)
            if (want->loss_bits[s][m] != got->loss_bits[s][m])
                fail_msg("%s, %s on %dx%d%s%s%s: loss %d of step %d differs on rank %d",
                    p->model, p->schedule, p->replicas, p->stages, p->inside ? " inside" : "",
                    p->within ? " within" : "", p->recorded ? " recorded" : "", (int)m, s,
                    rank);
        if (want->norm_bits[s] != got->norm_bits[s])
            fail_msg("%s, %s on %dx%d: norm of step %d differs on rank %d", p->model,
                p->schedule, p->replicas, p->stages, s, rank);
    }
    if (p->sharded) /* those are the command's tests: see cli/mesh.sh */
        return;
    if (first == 0 && want->weights != got->weights)
        fail_msg("%s, %s on %dx%d: weights differ on rank %d", p->model, p->schedule,
            p->replicas, p->stages, rank);
    assert_true(want->moments == got->moments);
}

typedef struct mesh {
    int replicas, stages;
    const char *schedule;
    int64_t microbatches;
    /* bits */
    enum { PLAIN, INSIDE, WITHIN, SHARDED = 4, GATHERED = 8, OFFLOADED = 16 } how;
} mesh;

/* Compares the meshes with a single device; a sample, the first and half of the others. */
static void check(const char *model, const mesh *meshes, int count)
{
    outcome *wants[MICROS + 1] = {NULL};
    for (int i = 0; i < count; i++) {
        const mesh *m = &meshes[i];
        if (i && !sample_combination(2))
            continue;
        plan p = {.model = model,
            .schedule = m->schedule,
            .replicas = m->replicas,
            .stages = m->stages,
            .microbatches = m->microbatches,
            .inside = m->how & INSIDE,
            .within = m->how & WITHIN,
            .sharded = m->how & SHARDED,
            .gathered = m->how & GATHERED,
            .offloaded = m->how & OFFLOADED,
            .recorded = i % 2};
        outcome **want = &wants[m->microbatches];
        if (!*want)
            *want = run((plan){.model = model, .microbatches = m->microbatches}, 1);
        int ranks = m->replicas * (m->how & INSIDE ? 1 : m->stages);
        outcome *got = run(p, ranks);
        for (int r = 0; r < ranks; r++)
            assert_same(*want, &p, &got[r], r);
        munmap(got, MOST * sizeof *got);
    }
    for (int m = 0; m <= MICROS; m++)
        if (wants[m])
            munmap(wants[m], MOST * sizeof(outcome));
}

static void mlp(void **state)
{
    static const mesh meshes[] = {{2, 2, "zero-bubble", 4, PLAIN}, {2, 2, "gpipe", 5, PLAIN},
        {1, 2, "1f1b", 4, PLAIN}, {2, 1, "1f1b", 4, PLAIN}, {2, 3, "1f1b", 6, PLAIN},
        {4, 2, "zero-bubble", 6, PLAIN}, {2, 2, "sequential", 4, PLAIN},
        {2, 2, "zero-bubble", 5, WITHIN}, {2, 2, "zero-bubble", 5, INSIDE},
        {3, 2, "1f1b", 4, INSIDE | WITHIN}};
    check("mlp:in=20,hidden=33,classes=7,layers=4", meshes, CHOIR_COUNT(meshes));
}

/* Tied embeddings: rows on the first stage, dense on the last; dropout; four stages. */
static void gpt2(void **state)
{
    static const mesh meshes[] = {{2, 2, "zero-bubble", 4, PLAIN},
        {2, 2, "interleaved", 6, PLAIN}, {3, 2, "1f1b", 4, PLAIN}, {2, 3, "gpipe", 5, PLAIN},
        {2, 2, "1f1b", 4, WITHIN}, {2, 2, "zero-bubble", 5, INSIDE}};
    check("gpt2:layers=3,heads=2,width=16,context=8,vocab=40,dropout=0.1", meshes,
        CHOIR_COUNT(meshes));
}

/* Running statistics: those of micro-batch 0, which one replica has. */
static void resnet(void **state)
{
    static const mesh meshes[] = {{2, 2, "zero-bubble", 4, PLAIN},
        {2, 2, "1f1b", 4, INSIDE | WITHIN}, {3, 2, "interleaved", 4, PLAIN}};
    check("resnet18:image=16,width=4,classes=4,small=1", meshes, CHOIR_COUNT(meshes));
}

/* FSDP around a pipeline: ZeRO stages by the number of pipeline stages. */
static void fsdp(void **state)
{
    static const mesh meshes[] = {{2, 2, "zero-bubble", 4, SHARDED},
        {2, 2, "1f1b", 5, SHARDED | INSIDE}, {2, 3, "gpipe", 6, SHARDED},
        {2, 4, "1f1b", 4, SHARDED}, {3, 2, "interleaved", 4, SHARDED},
        {4, 2, "zero-bubble", 6, SHARDED}, {2, 2, "1f1b", 4, SHARDED | GATHERED},
        {2, 2, "zero-bubble", 4, SHARDED | OFFLOADED},
        {2, 3, "interleaved", 4, SHARDED | OFFLOADED | INSIDE}};
    check("gpt2:layers=3,heads=2,width=16,context=8,vocab=40,dropout=0.1", meshes,
        CHOIR_COUNT(meshes));
    check("resnet18:image=16,width=4,classes=4,small=1", meshes, 2);
}

/* No rank ever holds more than the plan expects of its stage, from the first step on, whether
 * replicas hold a stage whole or its rows, in each ZeRO stage, or units of it at a time. */
static void held(void **state)
{
    static const mesh meshes[] = {{2, 2, "1f1b", 4, PLAIN}, {2, 2, "zero-bubble", 10, INSIDE},
        {2, 2, "1f1b", 4, SHARDED}, {2, 2, "zero-bubble", 10, SHARDED | INSIDE},
        {2, 3, "1f1b", 6, SHARDED}, {2, 4, "zero-bubble", 10, SHARDED},
        {2, 2, "1f1b", 4, SHARDED | OFFLOADED}, {2, 2, "zero-bubble", 4, SHARDED | GATHERED},
        {2, 2, "zero-bubble", 10, SHARDED | OFFLOADED | INSIDE}};
    for (size_t i = 0; i < CHOIR_COUNT(meshes); i++) {
        const mesh *m = &meshes[i];
        plan p = {.model = "gpt2:layers=8,heads=4,width=128,context=4,vocab=500",
            .schedule = m->schedule,
            .replicas = m->replicas,
            .stages = m->stages,
            .microbatches = m->microbatches,
            .inside = m->how & INSIDE,
            .sharded = m->how & SHARDED,
            .gathered = m->how & GATHERED,
            .offloaded = m->how & OFFLOADED,
            .recorded = true};
        outcome *got = run(p, m->replicas * (p.inside ? 1 : m->stages));
        for (int r = 0; r < m->replicas * (p.inside ? 1 : m->stages); r++) {
            double ratio = (double)got[r].peak / (double)got[r].expected;
            if (ratio > 1.1)
                fail_msg(
                    "%s on %dx%d, options %d: rank %d held %.2f of the %lld bytes expected",
                    m->schedule, m->replicas, m->stages, m->how, r, ratio,
                    (long long)got[r].expected);
        }
        munmap(got, MOST * sizeof *got);
    }
}

static void ucx(void **state)
{
    static const mesh meshes[] = {{2, 2, "zero-bubble", 4, PLAIN}, {2, 2, "1f1b", 5, INSIDE}};
    use_ucx();
    check("gpt2:layers=2,heads=2,width=16,context=8,vocab=40", meshes, CHOIR_COUNT(meshes));
    unsetenv("CHOIR_BACKEND");
}

/* --- what goes wrong --- */

static int odd_main(int rank, int world, void *arg)
{
    job j = {.plan = arg};
    outcome *out = &j.plan->out[rank];
    signal(SIGTERM, SIG_IGN);
    open_job(&j);
    choir_status status = choir_scope_status(j.run);
    for (int step = 0; step < STEPS && status == CHOIR_OK; step++)
        status = one_step(&j, step);
    snprintf(out->message, sizeof out->message, "%s",
        status == CHOIR_OK ? "" : choir_error_message());
    close_job(&j);
    return 0;
}

static void differ(void **state)
{
    static const struct {
        const char *odd, *told;
        bool inside;
    } all[] = {{"schedule", "replicas 0 and 1 have different schedules, chunks or cuts", true},
        {"count", "a step of 3 micro-batches; of the 4 of 2 replicas, this one has 2", true}};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        plan p = {.model = "mlp",
            .schedule = "1f1b",
            .replicas = 2,
            .stages = 2,
            .microbatches = 4,
            .inside = all[i].inside,
            .odd = all[i].odd};
        p.out = shared_memory(MOST * sizeof(outcome));
        ok(choir_spawn(2, odd_main, &p));
        for (int r = 0; r < 2; r++)
            if (!strstr(p.out[r].message, all[i].told))
                fail_msg("another %s: rank %d was told '%s'", all[i].odd, r, p.out[r].message);
        munmap(p.out, MOST * sizeof *p.out);
    }
}

static int few_main(int rank, int world, void *arg)
{
    job j = {.plan = arg};
    open_job(&j);
    snprintf(j.plan->out[rank].message, 512, "%s",
        choir_scope_status(j.run) == CHOIR_OK ? "" : choir_error_message());
    close_job(&j);
    return 0;
}

static void too_few(void **state)
{
    plan p = {.model = "mlp",
        .schedule = "1f1b",
        .replicas = 2,
        .stages = 2,
        .microbatches = 1,
        .inside = true};
    p.out = shared_memory(MOST * sizeof(outcome));
    ok(choir_spawn(2, few_main, &p));
    for (int r = 0; r < 2; r++)
        assert_non_null(
            strstr(p.out[r].message, "1 micro-batches for 2 replicas; each needs one"));
    munmap(p.out, MOST * sizeof *p.out);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    setenv("CHOIR_CPU_DEVICES", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(resnet),
        cmocka_unit_test(fsdp),
        cmocka_unit_test(held),
        cmocka_unit_test(ucx),
        cmocka_unit_test(differ),
        cmocka_unit_test(too_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
