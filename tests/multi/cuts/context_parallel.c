/* The promise of context parallelism: at an equal number of chunks, one device and any number
 * of ranks give the same bits, in every loss and every weight, without tolerance: by heads and
 * by chunks of keys, with grouped heads, windows, packed documents, ignored targets, dropout,
 * recomputation, bf16 and clipping, also below ddp and fsdp. And one chunk is training without
 * chunks. Ranks' chunks may be any number. A rank has its share of activations and FLOPs. */
#include <choir/context_parallel.h>

#include "base/rng.h"
#include "job_fixture.h"
#include "multi/cuts/own_weights.h"
#include "multi/cuts/towers.h"
#include "multi/ranks.h"
#include "nn/module.h"

enum { STEPS = 4, SAMPLES = 2, MICROS = 4, MOST = 4 };

typedef enum outside { NOTHING, DDP, FSDP } outside;

typedef struct plan {
    const char *model;
    int64_t chunks;  /* 0: the model is not wrapped */
    int data, ranks; /* ranks that share micro-batches; ranks that share sequences */
    outside outside;
    choir_cp_exchange exchange;
    /* packed: documents and places as inputs; padded: token types, and a mask by length */
    bool recompute, bf16, packed, padded, ignored, recorded;
    bool own;    /* own_weights.h in place of the model, whose data it takes */
    bool towers; /* two such models side by side, and each cuts sequences */
    /* the shape of a table that replaces the model, whose data it takes; 0: none does */
    int64_t rows, columns;
} plan;

typedef struct outcome {
    uint32_t loss[STEPS], norm[STEPS];
    uint64_t weights;
    int in_rows; /* parameters whose gradient stays in rows */
    bool failed;
} outcome;

typedef struct job {
    const plan *plan;
    choir_env env;
    choir_model_info info;
    choir_mesh *mesh;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    int64_t first, count;
    choir_tensor *losses[MICROS];
    choir_tensor
        *kept[MICROS][4]; /* recorded steps: inputs and targets, the same for all steps */
    int step;
} job;

/* --- data: numbers by step, micro-batch and place --- */

static int64_t number(const job *j, int64_t micro, int64_t i, int64_t below)
{
    uint32_t word[4];
    choir__philox(77, (uint64_t)(j->step * MICROS + micro), (uint64_t)i, word);
    return (int64_t)(word[0] % (uint64_t)below);
}

static choir_tensor *whole_numbers(choir_scope *scope, const job *j, const int64_t *values)
{
    return choir_from(scope, CHOIR_I64, choir_dims(SAMPLES, j->info.input.dim[0]), values);
}

/* The targets of a micro-batch; if some are ignored, a different number in each. */
static choir_tensor *targets_of(choir_scope *scope, const job *j, int64_t micro)
{
    int64_t n = SAMPLES * j->info.input.dim[0], *y = malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        y[i] = number(j, micro, 1000 + i, j->info.classes);
        if (j->plan->ignored && number(j, micro, 5000 + i, 8) < 1 + micro)
            y[i] = -100;
    }
    choir_tensor *t = whole_numbers(scope, j, y);
    free(y);
    return t;
}

/* Returns the number of inputs: ids; for packed texts their documents and places in them; for
 * padded ones token types, and which tokens are there. */
static int inputs_of(choir_scope *scope, const job *j, int64_t micro, choir_tensor **in)
{
    int64_t l = j->info.input.dim[0], n = SAMPLES * l;
    int64_t *ids = malloc(3 * (size_t)n * sizeof *ids), *documents = ids + n,
            *places = documents + n;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = number(j, micro, i, j->info.classes);
        bool begins = i % l == 0 || number(j, micro, 9000 + i, 9) == 0;
        documents[i] = i % l ? documents[i - 1] + begins : 0;
        places[i] = begins ? 0 : places[i - 1] + 1;
        if (j->plan->padded) {
            documents[i] = number(j, micro, 7000 + i / 5, 2);
            places[i] = i % l < l / 4 + number(j, micro, 8000 + i / l, l / 2);
        }
    }
    in[0] = whole_numbers(scope, j, ids);
    in[1] = whole_numbers(scope, j, documents);
    in[2] = whole_numbers(scope, j, places);
    free(ids);
    return j->plan->packed || j->plan->padded ? 3 : 1;
}

/* --- training --- */

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    choir_tensor *y[MICROS], *divisor = NULL;
    for (int64_t m = 0; m < j->count; m++)
        y[m] = j->plan->recorded ? choir_in(step, j->kept[m][3])
                                 : targets_of(step, j, j->first + m);
    if (j->plan->ignored) {
        divisor = choir_loss_divisor(y, (int)j->count, opts);
        opts.reduction = CHOIR_LOSS_SUM;
    }
    for (int64_t m = 0; m < j->count; m++) {
        choir_scope *micro = choir_micro_open(step, j->first + m);
        choir_tensor *in[3] = {j->kept[m][0] ? choir_in(micro, j->kept[m][0]) : NULL};
        int count = in[0] ? 1 : inputs_of(micro, j, j->first + m, in);
        choir_tensor *loss =
            choir_cross_entropy_with(choir_forward_n(j->net, in, count), y[m], opts);
        if (divisor)
            loss = choir_div(loss, divisor);
        choir_check(choir_backward(loss));
        j->losses[m] = choir_keep(j->run, loss);
        choir_check(choir_scope_close(micro));
    }
    return choir_optim_step(j->optim);
}

static choir_module *cut(const job *j, choir_module *net)
{
    const plan *p = j->plan;
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    opts.chunks = p->chunks;
    opts.exchange = p->exchange;
    return choir_context_parallel(
        j->run, net, p->ranks > 1 ? choir_mesh_group(j->mesh, "context") : NULL, opts);
}

static choir_module *wrap(job *j)
{
    const plan *p = j->plan;
    choir_module *net = p->chunks ? cut(j, j->net) : j->net;
    choir_model_info info = {0};
    if (p->towers)
        net = towers_new(j->run, net, cut(j, build_model(j->run, p->model, &info)));
    choir_group *data = choir_mesh_group(j->mesh, "data");
    if (p->outside == DDP)
        net = choir_ddp(j->run, net, data, choir_ddp_defaults());
    if (p->outside == FSDP)
        net = choir_fsdp(j->run, net, data, choir_fsdp_defaults());
    return net;
}

/* Opens the run as one of the ranks that share micro-batches. */
static void open_run(job *j)
{
    const char *names[] = {"data", "context"};
    int sizes[] = {j->plan->data, j->plan->ranks};
    choir_check(choir_mesh_new(j->env.group, 2, names, sizes, &j->mesh));
    choir_env env = j->env;
    env.rank = choir_mesh_coordinate(j->mesh, "data");
    env.world = j->plan->data;
    env.microbatches = MICROS;
    j->run = choir_run_open(&env, 11);
    choir_env_micro(&env, &j->first, &j->count);
}

static float loss_of_step(job *j)
{
    choir_env env = j->env;
    env.rank = choir_mesh_coordinate(j->mesh, "data");
    env.world = j->plan->data;
    env.group = choir_mesh_group(j->mesh, "data");
    env.microbatches = MICROS;
    return mean_loss(&env, j->losses, j->count);
}

static int count_in_rows(choir_module *net)
{
    int count, in_rows = 0;
    choir__param **params = choir__module_params(net, &count);
    for (int i = 0; i < count; i++)
        in_rows += params[i]->slots[0].by_rows;
    free(params);
    return in_rows;
}

static int train(int rank, int world, void *arg)
{
    void **args = arg;
    job j = {.plan = args[0]};
    outcome *out = args[1];
    choir_check(choir_env_init(&j.env));
    open_run(&j);
    choir_module *bare = j.net = build_model(j.run, j.plan->model, &j.info);
    if (j.plan->own)
        bare = j.net = own_weights_new(j.run, j.info.classes);
    if (j.plan->recompute)
        choir_module_recompute_blocks(bare, true);
    if (j.plan->bf16)
        choir_autocast(j.run, CHOIR_BF16);
    j.net = wrap(&j);
    bare = j.plan->towers ? j.net : bare;
    j.optim = clipped_adamw(j.run, j.net);
    for (int64_t m = 0; m < j.count && j.plan->recorded; m++) {
        inputs_of(j.run, &j, j.first + m, j.kept[m]);
        j.kept[m][3] = targets_of(j.run, &j, j.first + m);
    }
    choir_check(choir_scope_status(j.run));
    for (j.step = 0; j.step < STEPS; j.step++) {
        CHECK_OK(run_step(j.run, j.plan->recorded, j.step, body, &j));
        float loss = loss_of_step(&j);
        uint32_t norm = item_bits(choir_optim_grad_norm(j.optim));
        if (rank == 0)
            out->loss[j.step] = bits_of(loss), out->norm[j.step] = norm;
    }
    uint64_t weights = hash_of_module(bare);
    if (rank == 0)
        out->weights = weights, out->in_rows = count_in_rows(bare);
    choir_check(choir_scope_close(j.run));
    choir_mesh_free(j.mesh);
    choir_env_free(&j.env);
    return 0;
}

static outcome run(plan p)
{
    outcome *shared = shared_memory(sizeof *shared);
    void *args[] = {&p, shared};
    choir_status status = choir_spawn(p.data * p.ranks, train, args);
    if (status != CHOIR_OK)
        print_error(
            "%s on %d x %d ranks: %s\n", p.model, p.data, p.ranks, choir_error_message());
    outcome o = *shared;
    o.failed = status != CHOIR_OK;
    munmap(shared, sizeof *shared);
    return o;
}

static void assert_same(const plan *p, const outcome *a, const outcome *b)
{
    assert_false(a->failed || b->failed);
    for (int i = 0; i < STEPS; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
            fail_msg(
                "%s, %lld chunks on %d x %d ranks, exchange %d, step %d: loss %08x, not %08x; "
                "norm %08x, not %08x",
                p->model, (long long)p->chunks, p->data, p->ranks, (int)p->exchange, i,
                b->loss[i], a->loss[i], b->norm[i], a->norm[i]);
    assert_true(a->loss[0] != a->loss[STEPS - 1]); /* it did learn */
    assert_true(a->weights == b->weights);
}

/* Compares one device with up to `most` ranks that exchange heads, and keys. */
static void compare(plan p, int most)
{
    p.data = p.ranks = 1;
    outcome one = run(p);
    for (p.ranks = 2; p.ranks <= most; p.ranks += 1 + (p.chunks % (p.ranks + 1) != 0))
        for (p.exchange = CHOIR_CP_HEADS; p.exchange <= CHOIR_CP_KEYS; p.exchange++) {
            outcome o = run(p);
            assert_same(&p, &one, &o);
        }
}

#define GPT2  "gpt2:layers=2,heads=4,width=32,context=48,vocab=61"
#define LLAMA "llama:layers=2,heads=4,kv_heads=2,width=32,hidden=48,context=48,vocab=61"

#define SIX    "gpt2:layers=1,heads=6,width=24,context=48,vocab=61"
#define TWELVE "llama:layers=1,heads=12,kv_heads=12,width=48,hidden=48,context=48,vocab=61"

#define ROBERTA "roberta:layers=1,heads=2,width=16,context=48,vocab=61,dropout=0.1"
#define BERT    "bert:layers=2,heads=4,width=32,hidden=48,context=48,vocab=61"

static void gpt2(void **state)
{
    compare((plan){.model = GPT2 ",dropout=0.1", .chunks = 4}, 4);
    compare(
        (plan){.model = GPT2 ",dropout=0.1", .chunks = 8, .recompute = true, .bf16 = true}, 2);
    compare((plan){.model = GPT2, .chunks = 2, .packed = true, .ignored = true}, 2);
    compare((plan){.model = GPT2, .chunks = 2, .recorded = true}, 2);
}

static void llama(void **state)
{
    compare((plan){.model = LLAMA, .chunks = 4}, 2);
    compare((plan){.model = LLAMA ",window=14", .chunks = 8, .ignored = true}, 2);
    compare(
        (plan){.model = LLAMA, .chunks = 4, .bf16 = true, .packed = true, .recompute = true},
        2);
}

static void gemma(void **state)
{
    compare((plan){.model = "gemma3:layers=2,heads=4,kv_heads=2,head_dim=8,width=32,hidden=48,"
                            "context=48,vocab=61,window=14,pattern=sf,softcap=2",
                .chunks = 4},
        2);
}

/* Every token sees all others, or all of its text, which may be shorter than the sequence. */
static void bert(void **state)
{
    compare((plan){.model = BERT ",dropout=0.1", .chunks = 4, .ignored = true}, 4);
    compare((plan){.model = ROBERTA, .chunks = 4, .ignored = true}, 2);
    compare(
        (plan){.model = BERT ",classes=5,words=1", .chunks = 8, .padded = true, .bf16 = true},
        2);
    compare((plan){.model = BERT ",classes=5,words=1,dropout=0.1",
                .chunks = 2,
                .padded = true,
                .ignored = true,
                .recompute = true},
        2);
}

/* Weights that a user's module computes, or spreads over tokens. */
static void own_weights_of_users(void **state)
{
    compare((plan){.model = GPT2, .chunks = 4, .own = true}, 4);
    compare((plan){.model = GPT2, .chunks = 8, .own = true, .bf16 = true, .ignored = true}, 2);
    plan p = {.model = GPT2, .chunks = 4, .own = true, .data = 1, .ranks = 1};
    outcome one = run(p);
    p.data = p.ranks = 2;
    for (p.outside = DDP; p.outside <= FSDP; p.outside++) {
        outcome o = run(p);
        assert_same(&p, &one, &o);
    }
}

/* Two modules of a model cut the same sequences, whose gradients are summed once. */
static void towers_of_two(void **state)
{
    compare((plan){.model = GPT2, .chunks = 4, .towers = true}, 2);
    compare((plan){.model = GPT2, .chunks = 6, .towers = true}, 2);
}

/* Leaves of a rank that are several nodes of the tree: 6 on 2 and 3 ranks, 12 on 2 and 4. */
static void several_nodes(void **state)
{
    compare((plan){.model = SIX ",dropout=0.1", .chunks = 6}, 3);
    compare((plan){.model = TWELVE,
                .chunks = 12,
                .bf16 = true,
                .ignored = true,
                .packed = true,
                .recompute = true},
        4);
    compare((plan){.model = GPT2, .chunks = 12, .own = true}, 4);
    compare((plan){.model = GPT2, .chunks = 6, .own = true, .bf16 = true, .ignored = true}, 2);
}

static void meshes(void **state)
{
    for (int64_t chunks = 4; chunks <= 6; chunks += 2) {
        plan p = {.model = LLAMA ",tied=1", .chunks = chunks, .data = 1, .ranks = 1};
        outcome one = run(p);
        p.data = p.ranks = 2;
        for (p.outside = DDP; p.outside <= FSDP; p.outside++) {
            outcome o = run(p);
            assert_same(&p, &one, &o);
        }
    }
}

/* A rank has the rows of all tokens of all micro-batches when a step ends, so the choice is by
 * their bytes: 8 of an id and 4 * 32 of a row for 2 * 48 tokens each, against 4 * 32 for each
 * of 408 words. */
static void rows_of_all_micro_batches(void **state)
{
    static const char *const models[] = {"gpt2:layers=1,heads=4,width=32,context=48,vocab=407",
        "gpt2:layers=1,heads=4,width=32,context=48,vocab=408"};
    for (int i = 0; i < 2; i++) {
        plan p = {.model = models[i], .chunks = 2, .data = 1, .ranks = 1};
        outcome one = run(p);
        assert_int_equal(one.in_rows, 2); /* words and places; no other rank has them */
        p.ranks = 2;
        outcome two = run(p);
        assert_same(&p, &one, &two);
        assert_int_equal(two.in_rows, i);
    }
}

/* One chunk is no chunk. */
static void one_chunk(void **state)
{
    plan p = {.model = GPT2, .data = 1, .ranks = 1};
    outcome plain = run(p);
    p.chunks = 1;
    outcome one = run(p);
    assert_same(&p, &plain, &one);
    p.chunks = 2;
    outcome two = run(p);
    assert_true(two.weights != one.weights); /* and two are a cut */
}

/* --- a rank's share of memory and work --- */

typedef struct share {
    double bytes, flops; /* largest of all ranks */
    int64_t gathers;     /* over the ranks that share sequences */
} share;

static int64_t traced_gathers(choir_trace *trace)
{
    int count;
    int64_t calls = 0;
    const choir_trace_line *lines = choir_trace_profile(trace, &count);
    for (int i = 0; i < count; i++)
        calls += strcmp(lines[i].name, "all_gather") ? 0 : lines[i].calls;
    return calls;
}

static choir_module *lookups_new(const job *j)
{
    const plan *p = j->plan;
    return choir_nn_sequential(j->run,
        choir_nn_embedding(j->run, p->rows, p->columns, choir_init_normal(0, 0.02)),
        choir_nn_linear(j->run, p->columns, j->info.classes));
}

/* Measures the second step: its FLOPs and gathers, and its memory beside weights, gradients
 * and state; what a step leaves to the next one counts. */
static int measure(int rank, int world, void *arg)
{
    void **args = arg;
    job j = {.plan = args[0]};
    share *out = (share *)args[1] + rank;
    choir_device_stats after;
    choir_check(choir_env_init(&j.env));
    open_run(&j);
    j.net = build_model(j.run, j.plan->model, &j.info);
    if (j.plan->recompute)
        choir_module_recompute_blocks(j.net, true);
    if (j.plan->rows)
        j.net = lookups_new(&j);
    j.net = wrap(&j);
    j.optim = clipped_adamw(j.run, j.net);
    if (j.plan->outside == NOTHING)
        j.count = 1; /* with more, a bucket of gradients would be there until it is added */
    CHECK_OK(run_step(j.run, false, 0, body, &j));
    choir_check(choir_device_sync(j.env.device));
    choir_device_reset_peak(j.env.device);
    choir_trace *trace = choir_trace_new(0);
    choir_trace_device(trace, j.env.device);
    if (j.plan->ranks > 1)
        choir_trace_group(trace, choir_mesh_group(j.mesh, "context"));
    CHECK_OK(run_step(j.run, false, 1, body, &j));
    out->flops = traced_flops(trace);
    out->gathers = traced_gathers(trace);
    choir_device_get_stats(j.env.device, &after);
    out->bytes = (double)(after.bytes_peak - after.bytes_weights - after.bytes_gradients -
                          after.bytes_optimizer);
    choir_trace_free(trace);
    choir_check(choir_scope_close(j.run));
    choir_mesh_free(j.mesh);
    choir_env_free(&j.env);
    return 0;
}

static share shares_of(plan p)
{
    share *shared = shared_memory(MOST * sizeof *shared), most = {0};
    void *args[] = {&p, shared};
    ok(choir_spawn(p.data * p.ranks, measure, args));
    for (int r = 0; r < p.data * p.ranks; r++) {
        most.bytes = shared[r].bytes > most.bytes ? shared[r].bytes : most.bytes;
        most.flops = shared[r].flops > most.flops ? shared[r].flops : most.flops;
        most.gathers = choir__max(most.gathers, shared[r].gathers);
    }
    munmap(shared, MOST * sizeof *shared);
    return most;
}

/* Compares up to `most` ranks with one: each of N has 1/N of the activations and of the FLOPs,
 * plus 5 % at most. */
static void assert_shares(plan p, int most)
{
    p.data = p.ranks = 1;
    share one = shares_of(p);
    for (p.ranks = 2; p.ranks <= most; p.ranks *= 2)
        for (p.exchange = CHOIR_CP_HEADS; p.exchange <= CHOIR_CP_KEYS; p.exchange++) {
            share own = shares_of(p);
            double bytes = own.bytes / one.bytes * p.ranks,
                   flops = own.flops / one.flops * p.ranks;
            if (bytes > 1.05 || flops > 1.05)
                fail_msg("%s, %lld chunks on %d ranks, exchange %d: %.3f of 1/N of the "
                         "activations, %.3f of the FLOPs",
                    p.model, (long long)p.chunks, p.ranks, (int)p.exchange, bytes, flops);
        }
}

static void equal_shares(void **state)
{
    assert_shares(
        (plan){.model = "gpt2:layers=4,heads=4,width=48,context=1024,vocab=61", .chunks = 8},
        4);
    assert_shares((plan){.model = "llama:layers=8,heads=4,kv_heads=2,width=48,hidden=128,"
                                  "context=264,vocab=61",
                      .chunks = 12}, /* several nodes of the tree on each rank */
        2);
    /* Lookups have a large part in one layer, whose results are recomputed or not. */
    plan one = {.model = "gpt2:layers=1,heads=4,width=64,context=1024,vocab=512", .chunks = 8};
    assert_shares(one, MOST);
    one.recompute = true;
    assert_shares(one, MOST);
}

/* A table's columns are cut, also where the ranks do not divide them. */
static void columns_of_tables(void **state)
{
    plan p = {.model = "gpt2:layers=1,heads=4,width=64,context=1024,vocab=61",
        .chunks = 4,
        .data = 1,
        .ranks = 4,
        .rows = 61,
        .columns = 1024};
    const double even = shares_of(p).bytes;
    p.columns = 1022;
    const double odd = shares_of(p).bytes;
    if (odd > 1.05 * even)
        fail_msg("%.0f bytes with 1022 columns, %.0f with 1024", odd, even);
}

/* Parts of a table's gradient, which a table of more than 24 MiB has, share the rows of tokens:
 * the ids and the rows of each of a rank's two micro-batches are gathered once. */
static void gathers_of_parts(void **state)
{
    (void)state;
    plan p = {.model = "gpt2:layers=1,heads=2,width=8,context=16,vocab=32",
        .chunks = 2,
        .data = 2,
        .ranks = 2,
        .outside = FSDP,
        .rows = 32,
        .columns = 200000};
    assert_int_equal(shares_of(p).gathers, 2 * 2);
}

/* --- refusals --- */

/* Returns the status of a micro-batch with a forward of ids (1, tokens) on one device, and one
 * of (1, then) unless that is 0. The message stays. */
static choir_status forward_of(const char *model, int64_t chunks, int64_t tokens, int64_t then)
{
    choir_model_info info = {0};
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    choir_scope *run = choir_scope_open(cpu_device(0), 1);
    opts.chunks = chunks;
    choir_module *net = choir_context_parallel(run, build_model(run, model, &info), NULL, opts);
    choir_scope *step = choir_step_open(run, 0), *micro = choir_micro_open(step, 0);
    choir_forward(net, choir_zeros(micro, CHOIR_I64, choir_dims(1, tokens)));
    if (then)
        choir_forward(net, choir_zeros(micro, CHOIR_I64, choir_dims(1, then)));
    choir_status status = choir_scope_status(micro);
    (void)!choir_scope_close(micro);
    (void)!choir_scope_close(step);
    (void)!choir_scope_close(run);
    return status;
}

/* Tokens that are cut twice would be in another order than the model believes. */
static choir_status wrapped_twice(void)
{
    choir_model_info info = {0};
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    choir_scope *run = choir_scope_open(cpu_device(0), 1);
    opts.chunks = 4;
    choir_module *net = build_model(run, GPT2, &info);
    net = choir_nn_sequential(run, choir_context_parallel(run, net, NULL, opts));
    choir_context_parallel(run, net, NULL, opts);
    choir_status status = choir_scope_status(run);
    (void)!choir_scope_close(run);
    return status;
}

/* Two modules of one tree cut the same sequences, into 4 chunks and into `chunks`. */
static choir_status two_cuts(int64_t chunks)
{
    choir_model_info info = {0};
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    choir_scope *run = choir_scope_open(cpu_device(0), 1);
    choir_module *two[2];
    for (int i = 0; i < 2; i++) {
        opts.chunks = i ? chunks : 4;
        two[i] = choir_context_parallel(run, build_model(run, GPT2, &info), NULL, opts);
    }
    choir_module *net = towers_new(run, two[0], two[1]);
    choir_scope *step = choir_step_open(run, 0);
    choir_forward(net, choir_zeros(step, CHOIR_I64, choir_dims(1, 48)));
    choir_status status = choir_scope_status(step);
    (void)!choir_scope_close(step);
    (void)!choir_scope_close(run);
    return status;
}

static void refusals(void **state)
{
    ok(forward_of(GPT2, 4, 48, 0));
    assert_fails(wrapped_twice(), CHOIR_ERR_STATE, "wrap it once");
    ok(two_cuts(4));
    assert_fails(two_cuts(2), CHOIR_ERR_ARGUMENT, "into 4 chunks and into 2, or in different");
    assert_fails(forward_of(GPT2, 4, 46, 0), CHOIR_ERR_SHAPE, "4 chunks do not divide");
    assert_fails(forward_of(GPT2, 4, 48, 24), CHOIR_ERR_SHAPE, "a micro-batch for each length");
    assert_fails(forward_of("lstm:layers=1,hidden=8,context=8,vocab=9", 2, 8, 0),
        CHOIR_ERR_ARGUMENT, "recurrent: it works across the tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(equal_shares),
        cmocka_unit_test(columns_of_tables),
        cmocka_unit_test(gathers_of_parts),
        cmocka_unit_test(one_chunk),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(llama),
        cmocka_unit_test(gemma),
        cmocka_unit_test(bert),
        cmocka_unit_test(own_weights_of_users),
        cmocka_unit_test(towers_of_two),
        cmocka_unit_test(several_nodes),
        cmocka_unit_test(rows_of_all_micro_batches),
        cmocka_unit_test(meshes),
    };
    return cmocka_run_group_tests_name("context_parallel", tests, NULL, NULL);
}
