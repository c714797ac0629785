/* Tensor parallelism against one device. Initial values are slices, bit for bit; losses,
 * gradients, norms and weights agree within the tolerance in the header. Tensors that are not
 * sharded have the same bits on all ranks, and a run has the bits of the previous run, recorded
 * or not. The test covers every model with a plan, on two and more ranks, with key and value
 * heads shared and not. */
#include <math.h>

#include "job_fixture.h"
#include "nn/module.h"
#include "multi/cuts/place.h"
#include "multi/ranks.h"

enum { STEPS = 4, BATCH = 8, MICRO = 2, MAX_PARAMS = 80 };

typedef struct job {
    choir_model_info info;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_dataset *data;
    choir_loader *loader;
    choir_tensor *losses[MICRO];
    float loss[STEPS], norm[STEPS];
    bool recorded;
    int64_t first, count; /* this rank's micro-batches */
} job;

/* --- a training job --- */

static choir_tensor *loss_of_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    return loss_of_next(j->loader, micro, net, &j->info);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_check(run_micro_batches(
        step, (micro_batches){j->first, j->count, loss_of_batch, j->net, j, j->losses, NULL}));
    return j->optim ? choir_optim_step(j->optim) : choir_scope_status(step);
}

static void open_data(job *j)
{
    j->data = random_data(&j->info, 64, 5);
    j->loader = rank_loader(j->run, j->data, BATCH, MICRO, j->first, j->count);
}

/* group NULL: on one device. recompute: blocks'. */
static void open_job(job *j, const char *model, choir_group *group, bool recompute)
{
    memset(j, 0, sizeof *j);
    j->count = MICRO;
    j->run = choir_scope_open(NULL, 11);
    j->net = build_model(j->run, model, &j->info);
    if (group)
        choir_tensor_parallel(j->run, j->net, group, choir_tensor_parallel_defaults());
    if (recompute)
        choir_module_recompute_blocks(j->net, true);
    open_data(j);
    choir_check(choir_scope_status(j->run));
}

static void close_job(job *j)
{
    choir_check(choir_scope_close(j->run));
    choir_dataset_free(j->data);
}

static void add_optim(job *j, bool lamb)
{
    choir_adamw_opts adam = choir_adamw_defaults();
    choir_lamb_opts other = choir_lamb_defaults();
    adam.lr = other.lr = 1e-3f;
    j->optim = lamb ? choir_lamb(j->run, j->net, other) : choir_adamw(j->run, j->net, adam);
    choir_optim_clip(j->optim, 0.5f);
}

static void train(job *j)
{
    for (int step = 0; step < STEPS; step++) {
        choir_check(run_step(j->run, j->recorded, step, body, j));
        for (int m = 0; m < MICRO; m++)
            j->loss[step] += (float)choir_item(j->losses[m]) / MICRO;
        j->norm[step] = (float)choir_item(choir_optim_grad_norm(j->optim));
    }
}

/* --- parts against the whole --- */

static float *values_of(choir_tensor *t)
{
    float *values = malloc((size_t)(t->count + 1) * sizeof *values);
    choir_check(choir_read(t, values, (size_t)t->count * sizeof *values));
    return values;
}

/* |part - slice of whole|^2 and |slice|^2. */
static void distance(const choir__param *p, choir_tensor *part, choir_tensor *whole,
    double *difference, double *size)
{
    float *a = values_of(part), *b = values_of(whole);
    *difference = *size = 0;
    for (int64_t i = 0; i < part->count; i++) {
        int64_t at = place(p, p->local, i);
        double y = at < 0 ? (double)NAN : (double)b[at], d = (double)a[i] - y;
        *difference += d * d;
        *size += y * y;
    }
    free(a);
    free(b);
}

/* Compares all parameters (or gradients) of tp with the slices of whole's, within tolerance. */
static int compare(job *tp, job *whole, int world, bool gradients, double tolerance)
{
    int count, whole_count, parted = 0;
    choir__param **p = choir__module_params(tp->net, &count),
                 **q = choir__module_params(whole->net, &whole_count);
    CHECK(count == whole_count);
    for (int i = 0; i < count; i++) {
        double difference, size;
        CHECK(!strcmp(p[i]->name, q[i]->name));
        CHECK(choir__same_shape(p[i]->whole, q[i]->tensor->shape));
        distance(p[i], gradients ? choir_grad(p[i]->tensor) : p[i]->tensor,
            gradients ? choir_grad(q[i]->tensor) : q[i]->tensor, &difference, &size);
        parted += p[i]->boxes != NULL;
        if (!(sqrt(difference) <= tolerance * sqrt(size) + (tolerance > 0 ? 1e-7 : 0)))
            fprintf(stderr, "%s of %s: differs by %g of %g\n",
                gradients ? "gradient" : "values", p[i]->name, sqrt(difference), sqrt(size));
        CHECK(sqrt(difference) <= tolerance * sqrt(size) + (tolerance > 0 ? 1e-7 : 0));
    }
    CHECK(parted > 0 || world == 1);
    free(p);
    free(q);
    return 0;
}

/* Tensors that are not sharded have rank 0's bits on all ranks. */
static int same_on_all(job *tp, choir_group *group)
{
    int count;
    choir__param **p = choir__module_params(tp->net, &count);
    for (int i = 0; i < count; i++) {
        if (p[i]->boxes)
            continue;
        size_t bytes = (size_t)p[i]->tensor->count * sizeof(float);
        float *mine = values_of(p[i]->tensor), *first = malloc(bytes);
        memcpy(first, mine, bytes);
        CHECK_OK(choir_group_broadcast(group, first, (int64_t)bytes, CHOIR_U8, 0, NULL));
        CHECK(!memcmp(first, mine, bytes));
        free(mine);
        free(first);
    }
    free(p);
    return 0;
}

static uint64_t hash_of(job *j)
{
    int count;
    uint64_t h = CHOIR__HASH_SEED;
    choir__param **p = choir__module_params(j->net, &count);
    for (int i = 0; i < count; i++)
        hash_values(p[i]->name, p[i]->tensor, &h);
    free(p);
    return h;
}

/* --- a model --- */

struct trial {
    const char *model;
    bool lamb;
};

static int first_gradients(const char *model, choir_group *group)
{
    job whole, tp;
    int world = choir_group_world(group);
    open_job(&whole, model, NULL, false);
    open_job(&tp, model, group, false);
    CHECK(compare(&tp, &whole, world, false, 0) == 0); /* the very slices */
    choir_scope *a = choir_step_open(whole.run, 0), *b = choir_step_open(tp.run, 0);
    CHECK_OK(body(a, &whole));
    CHECK_OK(body(b, &tp));
    CHECK(compare(&tp, &whole, world, true, 1e-5) == 0);
    CHECK_OK(choir_scope_close(a));
    CHECK_OK(choir_scope_close(b));
    close_job(&whole);
    close_job(&tp);
    return 0;
}

static int against_one(int rank, int world, void *arg)
{
    const struct trial *t = arg;
    job whole, tp, again;
    choir_group *group;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK(first_gradients(t->model, group) == 0);
    open_job(&whole, t->model, NULL, false);
    open_job(&tp, t->model, group, false);
    open_job(&again, t->model, group, true);
    again.recorded = true;
    add_optim(&whole, t->lamb);
    add_optim(&tp, t->lamb);
    add_optim(&again, t->lamb);
    train(&whole);
    train(&tp);
    train(&again);
    for (int i = 0; i < STEPS; i++) {
        if (!(fabsf(tp.loss[i] - whole.loss[i]) <= 1e-5f * whole.loss[i]) ||
            !(fabsf(tp.norm[i] - whole.norm[i]) <= 1e-4f * whole.norm[i]))
            fprintf(stderr, "%s, step %d: loss %.8g, not %.8g; norm %.8g, not %.8g\n", t->model,
                i, (double)tp.loss[i], (double)whole.loss[i], (double)tp.norm[i],
                (double)whole.norm[i]);
        CHECK(fabsf(tp.loss[i] - whole.loss[i]) <= 1e-5f * whole.loss[i]);
        CHECK(fabsf(tp.norm[i] - whole.norm[i]) <= 1e-4f * whole.norm[i]);
    }
    CHECK(whole.loss[0] != whole.loss[STEPS - 1]);
    CHECK(compare(&tp, &whole, world, false, 1e-2) == 0);
    CHECK(same_on_all(&tp, group) == 0);
    CHECK(!memcmp(tp.loss, again.loss, sizeof tp.loss)); /* recorded, recomputed */
    CHECK(!memcmp(tp.norm, again.norm, sizeof tp.norm));
    CHECK(hash_of(&tp) == hash_of(&again));
    close_job(&whole);
    close_job(&tp);
    close_job(&again);
    choir_group_free(group);
    return 0;
}

static void check_model(const char *model, bool lamb, const int *worlds, int count)
{
    struct trial t = {model, lamb};
    for (int i = 0; i < count; i++) {
        choir_status status = choir_spawn(worlds[i], against_one, &t);
        if (status != CHOIR_OK)
            print_error("%s on %d ranks: %s\n", model, worlds[i], choir_error_message());
        ok(status);
    }
}

#define MODEL(name, text, lamb, ...)                                                           \
    static void name(void **state)                                                             \
    {                                                                                          \
        (void)state;                                                                           \
        int worlds[] = {__VA_ARGS__};                                                          \
        check_model(text, lamb, worlds, CHOIR_COUNT(worlds));                                  \
    }

MODEL(toy, "toy", false, 1, 2, 5)
MODEL(mlp, "mlp:in=12,hidden=16,layers=3,classes=5", false, 2, 4)
MODEL(gpt2, "gpt2:layers=2,heads=4,width=16,context=8,vocab=23,dropout=0.2", false, 2, 4)
MODEL(gpt2_by_lamb, "gpt2:layers=2,heads=4,width=16,context=8,vocab=23", true, 2)
MODEL(bert, "bert:layers=2,heads=4,width=16,context=8,vocab=23,dropout=0.1", false, 2, 4)
MODEL(roberta, "roberta:layers=1,heads=2,width=8,context=8,vocab=23,dropout=0.1", false, 2)
MODEL(vit, "vit:layers=2,heads=4,width=16,patch=4,image=8,classes=5,dropout=0.1,qkv_bias=0",
    false, 2, 4)
MODEL(
    distilbert, "distilbert:layers=1,heads=2,width=8,context=8,vocab=23,dropout=0.1", false, 2)
MODEL(
    llama, "llama:layers=2,heads=4,kv_heads=2,width=16,hidden=24,context=8,vocab=23", false, 2)
MODEL(llama_shared, "llama:layers=2,heads=8,kv_heads=2,width=32,hidden=24,context=8,vocab=23",
    false, 4, 8)
MODEL(mistral, "mistral:layers=2,heads=4,kv_heads=1,width=16,hidden=24,context=8,vocab=22",
    false, 2, 4)

/* --- on a mesh --- */

/* The ranks of a row shard one model; each row has its own micro-batches. */
static void open_on_mesh(job *j, const char *model, choir_mesh *mesh, bool fsdp)
{
    choir_group *data = choir_mesh_group(mesh, "data");
    memset(j, 0, sizeof *j);
    j->first = choir_group_rank(data);
    j->count = 1;
    j->run = choir_scope_open(NULL, 11);
    j->net = build_model(j->run, model, &j->info);
    choir_module *bare = choir_tensor_parallel(
        j->run, j->net, choir_mesh_group(mesh, "tensor"), choir_tensor_parallel_defaults());
    j->net = fsdp ? choir_fsdp(j->run, bare, data, choir_fsdp_defaults())
                  : choir_ddp(j->run, bare, data, choir_ddp_defaults());
    open_data(j);
    choir_check(choir_scope_status(j->run));
}

/* FSDP or DDP over sharded models gives the bits of those ranks' shards alone, in norms and
 * weights. */
static int mesh_rank(int rank, int world, void *arg)
{
    const struct trial *t = arg;
    choir_group *group;
    choir_mesh *mesh;
    job alone, both;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_mesh_new(
        group, 2, (const char *const[]){"data", "tensor"}, (int[]){MICRO, -1}, &mesh));
    open_job(&alone, t->model, choir_mesh_group(mesh, "tensor"), false);
    add_optim(&alone, t->lamb);
    train(&alone);
    for (int fsdp = 0; fsdp < 2; fsdp++) {
        open_on_mesh(&both, t->model, mesh, fsdp);
        add_optim(&both, t->lamb);
        for (int step = 0; step < STEPS; step++) {
            choir_scope *s = choir_step_open(both.run, (uint64_t)step);
            CHECK_OK(body(s, &both));
            CHECK_OK(choir_scope_close(s));
            both.norm[step] = (float)choir_item(choir_optim_grad_norm(both.optim));
        }
        CHECK(!memcmp(both.norm, alone.norm, sizeof both.norm));
        CHECK_OK(choir_device_sync(both.run->device));
        CHECK_OK(choir_group_barrier(group, NULL));
        CHECK(hash_of(&both) == hash_of(&alone));
        CHECK_OK(choir_group_barrier(group, NULL));
        close_job(&both);
    }
    close_job(&alone);
    choir_mesh_free(mesh);
    choir_group_free(group);
    return 0;
}

static void on_a_mesh(void **state)
{
    static const struct trial trials[] = {
        {"gpt2:layers=2,heads=4,width=16,context=8,vocab=23,dropout=0.2", false},
        {"llama:layers=1,heads=4,kv_heads=1,width=16,hidden=24,context=8,vocab=23", true}};
    for (size_t i = 0; i < CHOIR_COUNT(trials); i++)
        ok(choir_spawn(2 * MICRO, mesh_rank, (void *)&trials[i]));
}

/* --- collectives --- */

/* x of rank r: 100 r + i. */
static choir_tensor *input(choir_scope *scope, int rank, choir_shape shape)
{
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)(100 * rank + i);
    return choir_require_grad(choir_from(scope, CHOIR_F32, shape, x));
}

/* y's values, and the gradient of x for a gradient of y of (rank + 1) (10 + i). */
static int both_ways(
    choir_scope *step, int rank, choir_tensor *x, choir_tensor *y, float *out, float *grad)
{
    float weight[64];
    for (int64_t i = 0; i < choir_tensor_count(y); i++)
        weight[i] = (float)((rank + 1) * (10 + i));
    choir_tensor *w = choir_from(step, CHOIR_F32, choir_tensor_shape(y), weight);
    CHECK_OK(choir_read(y, out, (size_t)choir_tensor_count(y) * sizeof *out));
    CHECK_OK(choir_backward(choir_sum(choir_mul(y, w))));
    CHECK_OK(choir_read(choir_grad(x), grad, (size_t)choir_tensor_count(x) * sizeof *grad));
    return 0;
}

static int collectives(int rank, int world, void *arg)
{
    choir_group *group;
    float y[64], g[64];
    int ranks = world * (world - 1) / 2, weights = world * (world + 1) / 2;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_scope *run = choir_scope_open(NULL, 1), *s = choir_step_open(run, 0);
    choir_shape shape = choir_dims(2, 6); /* 2 and 3 ranks divide it */

    choir_tensor *x = input(s, rank, shape);
    CHECK(both_ways(s, rank, x, choir_tp_copy(x, group), y, g) == 0);
    for (int i = 0; i < 12; i++)
        CHECK(y[i] == (float)(100 * rank + i) && g[i] == (float)(weights * (10 + i)));

    x = input(s, rank, shape);
    CHECK(both_ways(s, rank, x, choir_tp_reduce(x, group), y, g) == 0);
    for (int i = 0; i < 12; i++)
        CHECK(
            y[i] == (float)(100 * ranks + world * i) && g[i] == (float)((rank + 1) * (10 + i)));

    for (int sum = 0; sum < 2; sum++) { /* along the last dimension: (2, 6 world) */
        x = input(s, rank, shape);
        choir_tensor *all =
            sum ? choir_tp_all_gather(x, group, -1) : choir_tp_gather(x, group, 1);
        CHECK(both_ways(s, rank, x, all, y, g) == 0);
        for (int r = 0; r < world; r++)
            for (int i = 0; i < 12; i++)
                CHECK(y[i / 6 * 6 * world + 6 * r + i % 6] == (float)(100 * r + i));
        for (int i = 0; i < 12; i++)
            CHECK(g[i] == (float)((sum ? weights : rank + 1) *
                                  (10 + i / 6 * 6 * world + 6 * rank + i % 6)));
    }

    int own = 6 / world;
    for (int sum = 0; sum < 2; sum++) { /* (2, 6 / world) */
        x = input(s, rank, shape);
        choir_tensor *part =
            sum ? choir_tp_reduce_scatter(x, group, -1) : choir_tp_split(x, group, -1);
        CHECK(both_ways(s, rank, x, part, y, g) == 0);
        for (int i = 0; i < 2 * own; i++) {
            int from = i / own * 6 + rank * own + i % own;
            CHECK(y[i] == (float)(sum ? 100 * ranks + world * from : 100 * rank + from));
        }
        for (int i = 0; i < 12; i++) {
            int r = i % 6 / own, in = i / 6 * own + i % own;
            CHECK(g[i] == (float)((r + 1) * (10 + in)));
        }
    }

    x = input(s, rank, choir_dims(6, 2)); /* along the first */
    CHECK(both_ways(s, rank, x, choir_tp_reduce_scatter(x, group, 0), y, g) == 0);
    for (int i = 0; i < 2 * own; i++)
        CHECK(y[i] == (float)(100 * ranks + world * (2 * own * rank + i)));

    /* Two layers with one input: their gradients are summed once. */
    x = input(s, rank, shape);
    CHECK(choir_tp_copy(x, group) == choir_tp_copy(x, group));
    if (world == 3) {
        CHECK(choir_tp_split(input(s, rank, choir_dims(4)), group, 0)->poisoned);
        CHECK(strstr(choir_error_message(), "tp_split: dimension 0 of (4)"));
        choir_scope_clear(s);
    }
    choir_scope_close(s);
    CHECK_OK(choir_scope_close(run));
    choir_group_free(group);
    return 0;
}

static void collectives_and_their_gradients(void **state)
{
    for (int world = 1; world <= 3; world++)
        ok(choir_spawn(world, collectives, NULL));
}

/* --- scores in parts --- */

static int parts_of_scores(int rank, int world, void *arg)
{
    job tp, whole;
    choir_group *group;
    const char *model = "gpt2:layers=1,heads=2,width=8,context=8,vocab=23";
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    open_job(&whole, model, NULL, false);
    open_job(&tp, model, group, false);
    choir_scope *a = choir_no_grad(whole.run), *b = choir_no_grad(tp.run);
    choir_batch x, y;
    CHECK_OK(choir_loader_next(whole.loader, a, &x));
    CHECK_OK(choir_loader_next(tp.loader, b, &y));
    choir_tensor *all = choir_forward(whole.net, x.x), *part = choir_forward(tp.net, y.x);
    CHECK(choir_tensor_size(part, -1) == 12 - rank); /* of 23 */

    int64_t best[32], best_of_parts[32];
    CHECK_OK(choir_read(choir_argmax(all), best, sizeof best));
    CHECK_OK(choir_read(choir_argmax(part), best_of_parts, sizeof best));
    CHECK(!memcmp(best, best_of_parts, sizeof best));

    choir_tensor *gathered = choir_tp_gather(part, group, -1);
    CHECK(choir__same_shape(choir_tensor_shape(gathered), choir_tensor_shape(all)));
    float *p = values_of(all), *q = values_of(gathered);
    for (int64_t i = 0; i < choir_tensor_count(all); i++)
        CHECK(fabsf(p[i] - q[i]) <= 1e-5f);
    free(p);
    free(q);

    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    int64_t targets[32];
    for (int i = 0; i < 32; i++)
        targets[i] = i % 5 == 2 ? -7 : i % 23;
    opts.ignore_index = -7;
    for (int r = 0; r < 3; r++) {
        float loss[32], of_parts[32];
        opts.reduction = (choir_reduction)(CHOIR_LOSS_MEAN + r);
        size_t bytes = (opts.reduction == CHOIR_LOSS_NONE ? 32 : 1) * sizeof *loss;
        choir_tensor *t = choir_from(a, CHOIR_I64, choir_dims(32), targets);
        CHECK_OK(choir_read(choir_cross_entropy_with(all, t, opts), loss, bytes));
        t = choir_from(b, CHOIR_I64, choir_dims(32), targets);
        CHECK_OK(choir_read(choir_cross_entropy_with(part, t, opts), of_parts, bytes));
        for (size_t i = 0; i < bytes / sizeof *loss; i++)
            CHECK(fabsf(loss[i] - of_parts[i]) <= 1e-5f * fabsf(loss[i]));
    }
    opts.label_smoothing = 0.1f;
    choir_tensor *t = choir_from(b, CHOIR_I64, choir_dims(32), targets);
    CHECK(choir_cross_entropy_with(part, t, opts)->poisoned);
    CHECK(strstr(choir_error_message(), "no class weights and no label smoothing"));
    choir_scope_clear(b);
    CHECK(choir_softmax(part)->poisoned); /* it would be of a part's classes alone */
    CHECK(strstr(choir_error_message(), "this rank's part of the scores"));
    choir_scope_clear(b);
    choir_scope_close(a);
    choir_scope_close(b);
    close_job(&whole);
    close_job(&tp);
    choir_group_free(group);
    return 0;
}

static void scores_in_parts(void **state)
{
    ok(choir_spawn(2, parts_of_scores, NULL));
}

/* --- bad input --- */

struct bad {
    const char *model;
    int world;
    choir_tp_rule rules[2];
    int count;
    const char *says;
};

static const struct bad bads[] = {
    {"gpt2:layers=1,heads=4,width=16,context=8,vocab=23", 3, {{0}}, 0,
        "'transformer.h.0.attn': 4 heads cannot be divided among 3 slices"},
    {"llama:layers=1,heads=6,kv_heads=2,width=12,hidden=24,context=8,vocab=23", 3, {{0}}, 0,
        "2 key and value heads cannot be divided among 3 slices on 3 ranks"},
    {"gpt2:layers=1,heads=2,width=8,context=8,vocab=23,hidden=15", 2, {{0}}, 0,
        "'transformer.h.0.mlp.c_fc': 15 columns cannot be divided among 2 slices"},
    {"gpt2:layers=1,heads=4,width=8,context=8,vocab=3", 4, {{0}}, 0, "3 vocabulary cannot"},
    {"toy", 2, {{.path = "*.nowhere", .style = CHOIR_TP_COLUMN}}, 1,
        "the rule '*.nowhere' matches no module"},
    {"toy", 2, {{.path = "0", .style = CHOIR_TP_HEADS}}, 1, "asks for heads of module '0'"},
    {"toy", 2, {{.path = "1", .style = CHOIR_TP_ROW}}, 1, "asks for rows of module '1'"},
    {"toy", 3, {{0}}, 0, "no two linear layers in a row"},
    {"resnet18:image=32", 2, {{0}}, 0, "no plan for a model of class"},
};

static int fails(int rank, int world, void *arg)
{
    const struct bad *b = arg;
    choir_model_info info = {0};
    choir_group *group;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_module *net = build_model(run, b->model, &info);
    choir_tensor_parallel(run, net, group,
        (choir_tensor_parallel_opts){.rules = b->rules, .rule_count = b->count});
    CHECK(choir_scope_status(run) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), b->says));
    choir_scope_close(run);
    choir_group_free(group);
    return 0;
}

static void wrong_input_is_named(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(bads); i++)
        ok(choir_spawn(bads[i].world, fails, (void *)&bads[i]));
}

/* Rank 1 has another plan, another seed, or a rule that fails: all ranks report it. */
static int disagrees(int rank, int world, void *arg)
{
    int kind = *(int *)arg;
    choir_group *group;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_scope *run = choir_scope_open(NULL, kind == 1 ? (uint64_t)rank : 1);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 4, 6), choir_nn_relu(run), choir_nn_linear(run, 6, 4));
    choir_tp_rule rule = {.path = rank && kind != 1 ? "2" : "0", .style = CHOIR_TP_COLUMN};
    if (kind == 2 && rank)
        rule.path = "7";
    choir_tensor_parallel(
        run, net, group, (choir_tensor_parallel_opts){.rules = &rule, .rule_count = 1});
    choir_status status = choir_scope_status(run);
    CHECK(status == (kind == 2 && rank ? CHOIR_ERR_ARGUMENT : CHOIR_ERR_MISMATCH));
    CHECK(strstr(choir_error_message(), kind == 0   ? "'2.weight'"
                                        : kind == 1 ? "seed 1"
                                                    : "matches no module"));
    choir_scope_close(run);
    choir_group_free(group);
    return 0;
}

static void ranks_that_do_otherwise_are_named(void **state)
{
    for (int kind = 0; kind < 3; kind++)
        ok(choir_spawn(2, disagrees, &kind));
}

/* --- a user's own rules --- */

static choir_tensor *forward_of(choir_scope *run, choir_module *net, float *gradient)
{
    float x[12];
    for (int i = 0; i < 12; i++)
        x[i] = (float)i / 12 - 0.4f;
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *y = choir_forward(net, choir_from(s, CHOIR_F32, choir_dims(3, 4), x));
    choir_tensor *kept = choir_keep(run, y);
    choir_check(choir_backward(choir_mean(choir_square(y))));
    choir_tensor *bias = choir_module_find(net, "2.bias");
    choir_check(choir_read(choir_grad(bias), gradient, 5 * sizeof *gradient));
    choir_check(choir_scope_close(s));
    return kept;
}

/* A row layer alone distributes its input itself; after use, a tree keeps its values. */
static int own_rules(int rank, int world, void *arg)
{
    choir_group *group;
    float expected[15], found[15], g[5], h[5];
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_scope *run = choir_scope_open(NULL, 3);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 4, 6), choir_nn_gelu(run), choir_nn_linear(run, 6, 5));
    CHECK_OK(choir_read(forward_of(run, net, g), expected, sizeof expected));
    CHECK_OK(choir_scope_close(run));

    run = choir_scope_open(NULL, 3);
    net = choir_nn_sequential(
        run, choir_nn_linear(run, 4, 6), choir_nn_gelu(run), choir_nn_linear(run, 6, 5));
    choir_scope *s = choir_no_grad(run); /* used: it has values */
    choir_forward(net, choir_zeros(s, CHOIR_F32, choir_dims(1, 4)));
    choir_scope_close(s);
    choir_tp_rule rule = {.path = "2", .style = CHOIR_TP_ROW};
    choir_tensor_parallel(
        run, net, group, (choir_tensor_parallel_opts){.rules = &rule, .rule_count = 1});
    CHECK_OK(choir_scope_status(run));
    CHECK(choir_module_find(net, "2.weight")->shape.dim[1] == 3);
    CHECK_OK(choir_read(forward_of(run, net, h), found, sizeof found));
    for (int i = 0; i < 15; i++)
        CHECK(fabsf(expected[i] - found[i]) < 1e-6f);
    for (int i = 0; i < 5; i++)
        CHECK(fabsf(g[i] - h[i]) < 1e-6f);

    CHECK(choir_module_init_torch(net, 1) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "comes before choir_tensor_parallel"));
    choir_adamw(run, net, choir_adamw_defaults()); /* too late now */
    choir_tensor_parallel(
        run, net, group, (choir_tensor_parallel_opts){.rules = &rule, .rule_count = 1});
    CHECK(choir_scope_status(run) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "has an optimizer already"));
    choir_scope_close(run);
    choir_group_free(group);
    return 0;
}

static void rules_of_ones_own(void **state)
{
    ok(choir_spawn(2, own_rules, NULL));
}

/* --- a parameter among the columns of a rank --- */

typedef struct normed {
    choir_module base;
    choir_module *up, *norm, *down;
} normed;

/* A norm of each head, whose weight all heads share. */
static choir_tensor *normed_forward(choir_module *self, choir_tensor *const *in, int count)
{
    normed *n = (normed *)self;
    choir_tensor *h = choir_reshape(choir_forward(n->up, in[0]), choir_dims(3, -1, 2));
    return choir_forward(n->down, choir_reshape(choir_forward(n->norm, h), choir_dims(3, -1)));
}

static const choir_module_class normed_class = {"normed", sizeof(normed), normed_forward, 1};

/* Every rank would have the gradient of its own heads, and weights of its own from then on. */
static int norm_among_columns(int rank, int world, void *arg)
{
    choir_group *group;
    float g[5];
    bool alone = *(bool *)arg;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_scope *run = choir_scope_open(NULL, 3);
    normed *n = choir_module_new(run, &normed_class);
    choir_module_child(&n->base, "1", &n->up, choir_nn_linear(run, 4, 8));
    choir_module_child(&n->base, "norm", &n->norm, choir_nn_rms_norm(run, 2, 1e-5f));
    choir_module_child(&n->base, "2", &n->down, choir_nn_linear(run, 8, 5));
    choir_tp_rule rules[] = {
        {.path = "1", .style = CHOIR_TP_COLUMN}, {.path = "2", .style = CHOIR_TP_ROW}};
    choir_tensor_parallel(run, &n->base, alone ? NULL : group,
        (choir_tensor_parallel_opts){.rules = rules, .rule_count = 2, .slices = 2});
    choir_scope *no_grad = choir_no_grad(run); /* without gradients it is right */
    choir_forward(&n->base, choir_zeros(no_grad, CHOIR_F32, choir_dims(3, 4)));
    CHECK_OK(choir_scope_close(no_grad));
    if (alone) {
        forward_of(run, &n->base, g);
        CHECK_OK(choir_scope_status(run));
    } else {
        choir_scope *s = choir_step_open(run, 0);
        choir_forward(&n->base, choir_zeros(s, CHOIR_F32, choir_dims(3, 4)));
        CHECK(choir_scope_status(s) == CHOIR_ERR_ARGUMENT);
        CHECK(strstr(
            choir_error_message(), "rms_norm: every rank has all of the parameter (2), but"));
        (void)!choir_scope_close(s);
    }
    (void)!choir_scope_close(run);
    choir_group_free(group);
    return 0;
}

static void parameters_among_columns(void **state)
{
    for (int alone = 0; alone < 2; alone++)
        ok(choir_spawn(2, norm_among_columns, &(bool){alone}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_and_their_gradients),
        cmocka_unit_test(toy),
        cmocka_unit_test(mlp),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(gpt2_by_lamb),
        cmocka_unit_test(bert),
        cmocka_unit_test(roberta),
        cmocka_unit_test(distilbert),
        cmocka_unit_test(vit),
        cmocka_unit_test(llama),
        cmocka_unit_test(llama_shared),
        cmocka_unit_test(mistral),
        cmocka_unit_test(on_a_mesh),
        cmocka_unit_test(scores_in_parts),
        cmocka_unit_test(rules_of_ones_own),
        cmocka_unit_test(parameters_among_columns),
        cmocka_unit_test(wrong_input_is_named),
        cmocka_unit_test(ranks_that_do_otherwise_are_named),
    };
    return cmocka_run_group_tests_name("tensor parallel", tests, NULL, NULL);
}
