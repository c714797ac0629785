/* Evaluation of sequences that ranks share: choir_evaluate with `chunks` cuts them as training
 * does. One device and any ranks then give the same score, and the same outputs to `scored`,
 * bit by bit, and each of N ranks needs 1/N of the memory. Without it a rank evaluates whole
 * sequences. */
#include <choir/context_parallel.h>
#include <choir/evaluate.h>
#include <choir/loop.h>

#include "job_fixture.h"
#include "multi/cuts/towers.h"
#include "multi/ranks.h"
#include "tensor/op.h"

enum { SAMPLES = 7, MOST = 4 };

#define GPT2  "gpt2:layers=2,heads=4,width=32,context=48,vocab=61"
#define LLAMA "llama:layers=2,heads=4,kv_heads=2,width=32,hidden=48,context=48,vocab=61"
#define WIDE  "gpt2:layers=2,heads=4,width=64,context=256,vocab=128"

typedef struct plan {
    const char *model;
    int64_t chunks;  /* 0: the model is not wrapped */
    bool cut;        /* the evaluation's option */
    int data, ranks; /* ranks that share batches; ranks that share sequences */
    choir_cp_exchange exchange;
    bool towers; /* two models, and each cuts sequences */
} plan;

typedef struct outcome {
    choir_score score;
    uint64_t outputs; /* sum of the batches' hashes, which has no order */
    int64_t batches;  /* with outputs */
    double bytes;     /* taken by the evaluation, at most */
} outcome;

static choir_status add_outputs(
    void *arg, int64_t first, int64_t n, choir_tensor *outputs, choir_tensor *targets)
{
    outcome *out = arg;
    size_t bytes = (size_t)choir_tensor_count(outputs) * sizeof(float);
    float *values = malloc(bytes);
    choir_status status = choir_read(outputs, values, bytes);
    CHECK(choir_tensor_size(outputs, 0) == n);
    CHECK(choir_tensor_size(outputs, 1) == choir_tensor_size(targets, 1));
    out->outputs += choir__hash_bytes((uint64_t)first, values, bytes);
    out->batches++;
    free(values);
    return status;
}

static choir_module *wrap(
    choir_scope *run, choir_module *net, const plan *p, const choir_mesh *mesh)
{
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    opts.chunks = p->chunks;
    opts.exchange = p->exchange;
    return p->chunks ? choir_context_parallel(run, net,
                           p->ranks > 1 ? choir_mesh_group(mesh, "context") : NULL, opts)
                     : net;
}

static int evaluate(int rank, int world, void *arg)
{
    void **args = arg;
    const plan *p = args[0];
    outcome *out = (outcome *)args[1] + rank;
    const char *names[] = {"data", "context"};
    int sizes[] = {p->data, p->ranks};
    choir_device_stats before, after;
    choir_model_info info = {0};
    choir_mesh *mesh;
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_check(choir_mesh_new(env.group, 2, names, sizes, &mesh));
    choir_scope *run = choir_scope_open(env.device, 7);
    choir_module *net = wrap(run, build_model(run, p->model, &info), p, mesh);
    if (p->towers)
        net = towers_new(run, net, wrap(run, build_model(run, p->model, &info), p, mesh));
    choir_dataset *data = random_data(&info, SAMPLES, 5);
    choir_eval_opts opts = choir_eval_defaults();
    opts.batch_size = 2;
    opts.group = p->data > 1 ? choir_mesh_group(mesh, "data") : NULL;
    opts.chunks = p->cut;
    CHECK_OK(choir_evaluate(run, net, &info, data, opts, &out->score));
    choir_check(choir_device_sync(env.device));
    choir_device_get_stats(env.device, &before);
    choir_device_reset_peak(env.device);
    CHECK_OK(choir_evaluate(run, net, &info, data, opts, &out->score));
    choir_device_get_stats(env.device, &after);
    out->bytes = (double)(after.bytes_peak - before.bytes_now);
    opts.scored = add_outputs;
    opts.scored_arg = out;
    CHECK_OK(choir_evaluate(run, net, &info, data, opts, &out->score));
    choir_dataset_free(data);
    choir_check(choir_scope_close(run));
    choir_mesh_free(mesh);
    choir_env_free(&env);
    return 0;
}

/* Returns the score of rank 0, the sum of what the ranks that share batches have had of the
 * outputs, and the most bytes of all ranks. Each rank has the same score. */
static outcome run(plan p)
{
    outcome *all = shared_memory(MOST * sizeof *all);
    void *args[] = {&p, all};
    ok(choir_spawn(p.data * p.ranks, evaluate, args));
    outcome o = {.score = all[0].score};
    for (int r = 0; r < p.data * p.ranks; r++) {
        assert_memory_equal(&all[r].score.loss, &o.score.loss, sizeof o.score.loss);
        o.bytes = all[r].bytes > o.bytes ? all[r].bytes : o.bytes;
        if (r % p.ranks)
            assert_true(all[r].outputs == all[r - 1].outputs);
        else
            o.outputs += all[r].outputs, o.batches += all[r].batches;
    }
    munmap(all, MOST * sizeof *all);
    return o;
}

static bool equal(const outcome *a, const outcome *b)
{
    return !memcmp(&a->score.loss, &b->score.loss, sizeof a->score.loss) &&
           !memcmp(&a->score.accuracy, &b->score.accuracy, sizeof a->score.accuracy) &&
           a->score.targets == b->score.targets && a->outputs == b->outputs &&
           a->batches == b->batches;
}

static void assert_same(const plan *p, const outcome *one, const outcome *o)
{
    if (!equal(one, o))
        fail_msg(
            "%s, %lld chunks on %d x %d ranks, exchange %d: loss %.17g, not %.17g; accuracy "
            "%.9g, not %.9g; the outputs are %s",
            p->model, (long long)p->chunks, p->data, p->ranks, (int)p->exchange, o->score.loss,
            one->score.loss, o->score.accuracy, one->score.accuracy,
            o->outputs == one->outputs ? "equal" : "others");
}

static void same_score(void **state)
{
    static const char *const models[] = {GPT2, LLAMA};
    for (size_t m = 0; m < CHOIR_COUNT(models); m++)
        for (int64_t chunks = 4; chunks <= 12; chunks += 8) {
            plan p = {.model = models[m], .chunks = chunks, .cut = true, .data = 1, .ranks = 1};
            outcome one = run(p);
            assert_int_equal(one.score.targets, SAMPLES * 48);
            for (p.ranks = 2; p.ranks <= MOST; p.ranks += 2)
                for (p.exchange = CHOIR_CP_HEADS + (p.ranks == 4 && m == 1);
                     p.exchange <= CHOIR_CP_KEYS; p.exchange++) {
                    outcome o = run(p);
                    assert_same(&p, &one, &o);
                }
            p.data = p.ranks = 2;
            p.exchange = CHOIR_CP_AUTO;
            outcome o = run(p);
            assert_same(&p, &one, &o);
        }
}

static void same_score_of_towers(void **state)
{
    plan p = {.model = GPT2, .chunks = 4, .cut = true, .data = 1, .ranks = 1, .towers = true};
    outcome one = run(p);
    p.ranks = 2;
    outcome two = run(p);
    assert_same(&p, &one, &two);
}

/* Ranks share the batches, not the sequences, and give the bits of a model without chunks. */
static void whole_sequences(void **state)
{
    plan p = {.model = GPT2, .data = 1, .ranks = 1};
    outcome plain = run(p);
    p.chunks = 4;
    for (p.ranks = 1; p.ranks <= 2; p.ranks++) {
        outcome o = run(p);
        assert_same(&p, &plain, &o);
    }
    p.cut = true;
    p.ranks = 2;
    outcome cut = run(p);
    assert_false(equal(&plain, &cut)); /* the chunks are another order of sums */
    assert_true(
        cut.score.loss > plain.score.loss * 0.999 && cut.score.loss < plain.score.loss * 1.001);
}

static void shares_of_memory(void **state)
{
    plan p = {.model = WIDE, .chunks = 8, .cut = true, .data = 1, .ranks = 1};
    outcome one = run(p);
    for (p.ranks = 2; p.ranks <= MOST; p.ranks *= 2)
        for (p.exchange = CHOIR_CP_HEADS; p.exchange <= CHOIR_CP_KEYS; p.exchange++) {
            outcome o = run(p);
            double part = o.bytes / one.bytes * p.ranks;
            if (part > 1.05)
                fail_msg("%d ranks, exchange %d: %.3f of 1/N of %.0f bytes", p.ranks,
                    (int)p.exchange, part, one.bytes);
        }
}

/* --- a forward that fails on one rank --- */

typedef struct faulty {
    choir_module base;
    choir_module *inner;
    bool fails; /* in evaluation */
} faulty;

static choir_tensor *faulty_forward(choir_module *self, choir_tensor *const *in, int count)
{
    faulty *f = (faulty *)self;
    if (!self->training && f->fails)
        return choir__poison(in[0]->scope, CHOIR_ERR_MEMORY, "no memory for this forward");
    return choir_forward_n(f->inner, in, count);
}

static const choir_module_class faulty_class = {"faulty", sizeof(faulty), faulty_forward, 0};

typedef struct ending {
    choir_status status;
    int saved;
} ending;

static choir_status count_saves(choir_loop *l, void *arg)
{
    ((ending *)arg)->saved++;
    return CHOIR_OK;
}

/* One of 2 x 2 ranks fails; args: a folder, the ranks' ends. */
static int fail_alone(int rank, int world, void *arg)
{
    void **args = arg;
    ending *out = (ending *)args[1] + rank;
    const char *names[] = {"data", "context"};
    plan p = {.model = GPT2, .chunks = 4, .data = 2, .ranks = 2};
    choir_model_info info = {0};
    choir_mesh *mesh;
    choir_env all, env;
    char dir[200];
    choir_check(choir_env_init(&all));
    choir_check(choir_mesh_new(all.group, 2, names, (int[]){2, 2}, &mesh));
    env = all;
    env.group = choir_mesh_group(mesh, "data");
    env.rank = choir_mesh_coordinate(mesh, "data");
    env.world = env.microbatches = 2;
    choir_scope *run = choir_run_open(&env, 7);
    faulty *f = choir_module_new(run, &faulty_class);
    choir_module_child(
        &f->base, "", &f->inner, wrap(run, build_model(run, p.model, &info), &p, mesh));
    f->fails = rank == world - 1;
    choir_module *net = choir_ddp(run, &f->base, env.group, choir_ddp_defaults());
    choir_dataset *data = random_data(&info, 64, 5);
    choir_training t = {.module = net,
        .optim = clipped_adamw(run, net),
        .loader = choir_env_loader(run, &env, data, 4),
        .info = &info};
    choir_loop_opts opts = choir_loop_defaults();
    snprintf(dir, sizeof dir, "%s/%d", (const char *)args[0],
        choir_mesh_coordinate(mesh, "context"));
    opts.steps = 2;
    opts.eval_every = 1;
    opts.validation = data;
    opts.save = dir;
    choir_loop *loop = choir_loop_new(&env, t, opts);
    choir_loop_add(loop, (choir_callbacks){.saved = count_saves}, out);
    out->status = choir_loop_run(loop);
    (void)!choir_scope_close(run);
    choir_dataset_free(data);
    choir_mesh_free(mesh);
    choir_env_free(&all);
    return 0;
}

/* A rank whose forward fails begins no save. Its peers wait in the forward or for its sums, and
 * learn that it has gone. */
static void no_save_alone(void **state)
{
    char folder[] = "/tmp/choir-evaluation-XXXXXX", command[100];
    assert_non_null(mkdtemp(folder));
    ending *ends = shared_memory(4 * sizeof *ends);
    void *args[] = {folder, ends};
    ok(choir_spawn(4, fail_alone, args));
    assert_int_equal(ends[3].status, CHOIR_ERR_MEMORY);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ends[r].saved, 0);
        if (r < 3)
            assert_int_equal(ends[r].status, CHOIR_ERR_PEER_LOST);
    }
    munmap(ends, 4 * sizeof *ends);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_score),
        cmocka_unit_test(same_score_of_towers), cmocka_unit_test(whole_sequences),
        cmocka_unit_test(shares_of_memory), cmocka_unit_test(no_save_alone)};
    return cmocka_run_group_tests_name("evaluation", tests, NULL, NULL);
}
