/* T slices: at equal T, one device and tensor parallelism on every number of ranks that divides
 * T, alone or beside DDP or FSDP, give the same bits in every loss, every norm of gradients,
 * and every element of weights and optimizer state. So a checkpoint of one layout continues in
 * any other as if nothing had happened.
 *
 * The parts of all ranks are written to their places in one memory. A rank then finds its own
 * values there, so replicas are equal, too. */
#include <stdlib.h>

#include "folder_fixture.h"
#include "job_fixture.h"
#include "nn/module.h"
#include "optim/optim.h"
#include "multi/cuts/place.h"
#include "multi/ranks.h"

enum { STEPS = 3, BATCH = 8, MICRO = 2, ROOM = 1 << 22 };

/* A task trains its model by name; or layers that rules name, with dropout between them; or a
 * module: its rules name heads, and matrices side by side, or it marks its contraction. */
typedef enum kind { BY_NAME, RULES, HEADS, MARKS } kind;
typedef enum rule { ADAMW, ADAMW_8_BITS, LAMB, MUON, ADAFACTOR } rule;

/* A training: all layouts of a task have the same bits. */
typedef struct task {
    const char *model;
    int64_t slices;
    rule rule;
    bool bf16;
    kind own; /* BY_NAME: the model */
} task;

/* The ranks that do it: `data` rows of `tensor` ranks. */
typedef struct layout {
    int data, tensor;
    int fsdp; /* stage; 0: DDP, or nothing if data is 1 */
    bool recorded, recompute;
} layout;

typedef struct outcome {
    uint32_t loss[STEPS][MICRO], norm[STEPS], brief; /* brief: see loss_of_few */
    int64_t used;                                    /* bytes */
    unsigned char values[ROOM];
    bool failed;
} outcome;

typedef struct job {
    const task *task;
    layout layout;
    bool sequence; /* ranks share the tokens between layers */
    choir_model_info info;
    choir_group *group;
    choir_mesh *mesh;
    choir_scope *run;
    choir_module *bare, *net;
    choir_optim *optim;
    choir_loader *loader;
    choir_dataset *data;
    int64_t first, count;
    choir_tensor *losses[MICRO];
    outcome *out; /* in memory that all ranks share */
    int64_t used;
    bool comparing;
    int wrong;
} job;

/* --- a training --- */

static choir_tensor *loss_of_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    if (j->task->bf16)
        choir_autocast(micro, CHOIR_BF16);
    return loss_of_next(j->loader, micro, net, &j->info);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    return train_micro_batches(step,
        (micro_batches){j->first, j->count, loss_of_batch, j->net, j, j->losses, NULL},
        j->optim);
}

static choir_optim *make_optimizer(job *j)
{
    choir_adamw_opts adamw = choir_adamw_defaults();
    choir_lamb_opts lamb = choir_lamb_defaults();
    choir_muon_opts muon = choir_muon_defaults();
    adamw.lr = lamb.lr = muon.lr = 1e-2f;
    adamw.eight_bits = j->task->rule == ADAMW_8_BITS;
    switch (j->task->rule) {
    case LAMB: return choir_lamb(j->run, j->net, lamb);
    case MUON: return choir_muon(j->run, j->net, muon);
    case ADAFACTOR: return choir_adafactor(j->run, j->net, choir_adafactor_defaults());
    default: return choir_adamw(j->run, j->net, adamw);
    }
}

/* The group of the ranks that share a model, or NULL. */
static choir_group *along(const job *j, const char *dimension, int size)
{
    return size == 1 ? NULL : j->mesh ? choir_mesh_group(j->mesh, dimension) : j->group;
}

/* --- a user's module --- */

typedef struct attend {
    choir_module base;
    choir_module *q, *k, *v, *out, *drop;
} attend;

static choir_tensor *by_heads(choir_tensor *x) /* (B, L, H D) -> (B, H, L, D) */
{
    int64_t b = choir_tensor_size(x, 0), l = choir_tensor_size(x, 1);
    return choir_transpose(
        choir_reshape(x, choir_dims(b, l, choir_tensor_size(x, 2) / 4, 4)), 1, 2);
}

static choir_tensor *attend_forward(choir_module *self, choir_tensor *const *in, int count)
{
    attend *a = (attend *)self;
    (void)count; /* (B, L, 16) -> (B, L, 16) */
    choir_tensor *k = choir_forward(a->drop, choir_forward(a->k, in[0])),
                 *v = choir_forward(a->drop, choir_tanh(choir_forward(a->v, in[0])));
    choir_tensor *y = choir_transpose(
        choir_attention(by_heads(choir_forward(a->q, in[0])), by_heads(k), by_heads(v), true),
        1, 2);
    int64_t b = choir_tensor_size(y, 0), l = choir_tensor_size(y, 1);
    return choir_forward(
        a->out, choir_reshape(y, choir_dims(b, l, choir_tensor_size(y, 2) * 4)));
}

static const choir_module_class attend_class = {"attend", sizeof(attend), attend_forward, 1};

typedef struct gated {
    choir_module base;
    choir_module *first, *attend, *up, *drop, *down, *last;
} gated;

static choir_tensor *gated_forward(choir_module *self, choir_tensor *const *in, int count)
{
    gated *g = (gated *)self;
    int64_t b = choir_tensor_size(in[0], 0);
    (void)count; /* (B, 12) -> (B, 5) */
    choir_tensor *x = choir_forward(
        g->attend, choir_reshape(choir_forward(g->first, in[0]), choir_dims(b, 3, 16)));
    choir_tensor *up = choir_forward(g->drop, choir_forward(g->up, x));
    int64_t width = choir_tensor_size(up, 2) / 2;
    choir_tensor *h =
        choir_mul(choir_narrow(up, 2, 0, width), choir_gelu(choir_narrow(up, 2, width, width)));
    return choir_forward(g->last, choir_reshape(choir_forward(g->down, h), choir_dims(b, 48)));
}

static const choir_module_class gated_class = {"gated", sizeof(gated), gated_forward, 1};

static choir_module *new_gated(choir_scope *run, bool marks)
{
    attend *a = choir_module_new(run, &attend_class);
    gated *g = choir_module_new(run, &gated_class);
    choir_module_child(&a->base, "q", &a->q, choir_nn_linear(run, 16, 16));
    choir_module_child(&a->base, "k", &a->k, choir_nn_linear(run, 16, 8));
    choir_module_child(&a->base, "v", &a->v, choir_nn_linear(run, 16, 8));
    choir_module_child(&a->base, "out", &a->out, choir_nn_linear(run, 16, 16));
    choir_module_child(&a->base, "drop", &a->drop, choir_nn_dropout(run, 0.4f));
    choir__module_heads(
        &a->base, (choir__heads_of){
                      .q = "q", .k = "k", .v = "v", .out = "out", .heads = 4, .kv_heads = 2});
    choir_module_child(&g->base, "first", &g->first, choir_nn_linear(run, 12, 48));
    choir_module_child(&g->base, "attend", &g->attend, &a->base);
    choir_module_child(&g->base, "up", &g->up, choir_nn_linear(run, 16, 48));
    choir_module_child(&g->base, "drop", &g->drop, choir_nn_dropout(run, 0.4f));
    choir_module_child(&g->base, "down", &g->down, choir_nn_linear(run, 24, 16));
    choir_module_child(&g->base, "last", &g->last, choir_nn_linear(run, 48, 5));
    if (marks)
        choir_module_contraction(&g->base, g->up, 2, g->down);
    return &g->base;
}

static choir_module *build_own(job *j)
{
    if (j->task->own != RULES)
        return new_gated(j->run, j->task->own == MARKS);
    return choir_nn_sequential(j->run, choir_nn_linear(j->run, 12, 28), choir_nn_gelu(j->run),
        choir_nn_dropout(j->run, 0.4f), choir_nn_linear(j->run, 28, 5));
}

/* --- strategies --- */

static choir_tensor_parallel_opts slices_of(const task *t)
{
    static const choir_tp_rule layers[] = {{.path = "0", .style = CHOIR_TP_COLUMN},
        {.path = "3", .style = CHOIR_TP_ROW}},
                               heads[] = {{.path = "attend", .style = CHOIR_TP_HEADS},
                                   {.path = "up", .style = CHOIR_TP_COLUMN, .packed = 2},
                                   {.path = "down", .style = CHOIR_TP_ROW}};
    choir_tensor_parallel_opts opts = choir_tensor_parallel_defaults();
    opts.slices = t->slices;
    if (t->own == RULES)
        opts.rules = layers, opts.rule_count = 2;
    if (t->own == HEADS)
        opts.rules = heads, opts.rule_count = 3;
    return opts;
}

static void wrap(job *j)
{
    choir_tensor_parallel_opts opts = slices_of(j->task);
    opts.sequence_parallel = j->sequence;
    j->net = choir_tensor_parallel(j->run, j->bare, along(j, "tensor", j->layout.tensor), opts);
    choir_group *data = along(j, "data", j->layout.data);
    if (!data)
        return;
    choir_fsdp_opts fsdp = choir_fsdp_defaults();
    fsdp.stage = j->layout.fsdp;
    j->net = fsdp.stage ? choir_fsdp(j->run, j->net, data, fsdp)
                        : choir_ddp(j->run, j->net, data, choir_ddp_defaults());
    j->count = MICRO / j->layout.data;
    j->first = choir_group_rank(data) * j->count;
}

static void open_job(job *j)
{
    const layout *l = &j->layout;
    choir_check(choir_group_init(NULL, choir_group_defaults(), &j->group));
    if (l->data > 1 && l->tensor > 1)
        choir_check(choir_mesh_new(j->group, 2, (const char *const[]){"data", "tensor"},
            (int[]){l->data, l->tensor}, &j->mesh));
    j->count = MICRO;
    j->run = choir_scope_open(NULL, 11);
    j->bare = build_model(j->run, j->task->model, &j->info);
    if (j->task->own)
        j->bare = build_own(j);
    wrap(j);
    if (l->recompute)
        choir_module_recompute_blocks(j->bare, true);
    j->optim = make_optimizer(j);
    choir_optim_clip(j->optim, 0.5f);
    j->data = random_data(&j->info, 64, 5);
    j->loader = rank_loader(j->run, j->data, BATCH, MICRO, j->first, j->count);
    choir_check(choir_scope_status(j->run));
}

static void close_job(job *j)
{
    choir_check(choir_scope_close(j->run));
    choir_dataset_free(j->data);
    if (j->mesh)
        choir_mesh_free(j->mesh);
    choir_group_free(j->group);
}

static void steps(job *j, int from, int until)
{
    for (int step = from; step < until; step++) {
        choir_check(run_step(j->run, j->layout.recorded, step, body, j));
        for (int64_t m = 0; m < j->count; m++)
            j->out->loss[step][j->first + m] = item_bits(j->losses[m]);
        j->out->norm[step] = item_bits(choir_optim_grad_norm(j->optim));
    }
}

/* Returns the loss of texts of fewer tokens than slices, without gradients. */
static uint32_t loss_of_few(job *j)
{
    static const int64_t ids[] = {1, 2, 3, 4};
    choir_scope *s = choir_no_grad(j->run);
    choir_module_train(j->net, false);
    choir_tensor *x = choir_from(s, CHOIR_I64, choir_dims(2, 2), ids);
    uint32_t bits = item_bits(choir_cross_entropy(choir_forward(j->net, x), x));
    choir_check(choir_scope_close(s));
    return bits;
}

/* --- values of all ranks, in their places --- */

static void visit(const char *name, choir_tensor *t, const choir__param *p, void *arg)
{
    job *j = arg;
    size_t size = choir_dtype_size(t->dtype);
    int64_t whole = p ? choir__shape_count(p->whole) : t->count;
    choir_check(j->used + whole * (int64_t)size <= ROOM ? CHOIR_OK : CHOIR_ERR_RANGE);
    unsigned char *own = malloc((size_t)t->count * size + 1), *all = j->out->values + j->used;
    choir_check(choir_read(t, own, (size_t)t->count * size));
    for (int64_t i = 0; i < t->count; i++) {
        int64_t at = place(p, t, i);
        if (at < 0)
            continue;
        if (!j->comparing)
            memcpy(all + (size_t)at * size, own + (size_t)i * size, size);
        else if (memcmp(all + (size_t)at * size, own + (size_t)i * size, size) && !j->wrong++)
            fprintf(stderr, "%s: a replica of element %lld differs\n", name, (long long)at);
    }
    free(own);
    j->used += whole * (int64_t)size;
}

/* Visits weights and state. Every rank visits the same names, with the same sizes. */
static void visit_all(job *j, bool comparing)
{
    j->used = 0;
    j->comparing = comparing;
    for (int i = 0; i < j->optim->count; i++) {
        choir__optim_state *s = &j->optim->states[i];
        visit(s->param->name, s->param->local, s->param, j);
        choir__optim_visit_state(j->optim, s, visit, j);
    }
}

static int collect(job *j)
{
    visit_all(j, false);
    CHECK_OK(choir_group_barrier(j->group, NULL));
    visit_all(j, true);
    CHECK(!j->wrong);
    j->out->used = j->used;
    return 0;
}

/* --- layouts against each other --- */

typedef struct plan {
    const task *task;
    layout layout;
    outcome *out;
    const char *saved; /* a checkpoint's folder; NULL: none */
    int from, until;
    bool sequence;
} plan;

static int train(int rank, int world, void *arg)
{
    const plan *p = arg;
    job j = {.task = p->task, .layout = p->layout, .out = p->out, .sequence = p->sequence};
    open_job(&j);
    choir_checkpoint *c = NULL;
    if (p->saved) {
        choir_checkpoint_opts opts = choir_checkpoint_defaults();
        opts.group = j.group;
        CHECK_OK(choir_checkpoint_open(p->saved, opts, &c));
    }
    int64_t step = 0;
    if (p->from)
        CHECK_OK(choir_checkpoint_load(c, j.net, j.optim, &step));
    CHECK(step == p->from);
    choir_loader_seek_step(j.loader, p->from);
    steps(&j, p->from, p->until);
    if (c && p->until < STEPS)
        CHECK_OK(choir_checkpoint_save(c, j.net, j.optim, p->until));
    if (c)
        CHECK_OK(choir_checkpoint_close(c));
    CHECK(collect(&j) == 0);
    if (j.info.task == CHOIR_LANGUAGE)
        j.out->brief = loss_of_few(&j);
    close_job(&j);
    return 0;
}

static outcome *start(plan p)
{
    layout l = p.layout;
    p.out = shared_memory(sizeof *p.out);
    choir_status status = choir_spawn(l.data * l.tensor, train, &p);
    if (status != CHOIR_OK)
        print_error(
            "%s, %d x %d: %s\n", p.task->model, l.data, l.tensor, choir_error_message());
    p.out->failed = status != CHOIR_OK;
    return p.out;
}

static outcome *run_from(const task *t, layout l, const char *saved, int from, int until)
{
    return start((plan){.task = t, .layout = l, .saved = saved, .from = from, .until = until});
}

static outcome *run(const task *t, layout l)
{
    return run_from(t, l, NULL, 0, STEPS);
}

static void assert_same(const task *t, layout l, const outcome *a, const outcome *b, int from)
{
    assert_false(a->failed || b->failed);
    for (int i = from; i < STEPS; i++) {
        if (a->loss[i][0] != b->loss[i][0] || a->norm[i] != b->norm[i])
            print_error("%s, T %lld, %d x %d ranks (stage %d), step %d: loss %08x, not %08x; "
                        "norm %08x, not %08x\n",
                t->model, (long long)t->slices, l.data, l.tensor, l.fsdp, i, b->loss[i][0],
                a->loss[i][0], b->norm[i], a->norm[i]);
        assert_memory_equal(a->loss[i], b->loss[i], sizeof a->loss[i]);
        assert_int_equal(a->norm[i], b->norm[i]);
    }
    assert_int_equal(a->brief, b->brief);
    assert_int_equal(a->used, b->used);
    assert_memory_equal(a->values, b->values, (size_t)a->used);
}

static void compare(task t, bool sequence, const layout *layouts, size_t count)
{
    outcome *single = run(&t, (layout){1, 1, 0, false, false});
    assert_true(single->loss[0][0] != single->loss[STEPS - 1][0]);
    for (size_t i = 0; i < count; i++) {
        outcome *other = start(
            (plan){.task = &t, .layout = layouts[i], .until = STEPS, .sequence = sequence});
        assert_same(&t, layouts[i], single, other, 0);
        munmap(other, sizeof *other);
    }
    munmap(single, sizeof *single);
}

#define LAYOUTS(...)                                                                           \
    (const layout[]){__VA_ARGS__}, sizeof((layout[]){__VA_ARGS__}) / sizeof(layout)
#define COMPARE(t, ...)          compare((task)t, false, LAYOUTS(__VA_ARGS__))
#define COMPARE_SEQUENCE(t, ...) compare((task)t, true, LAYOUTS(__VA_ARGS__))
#define TASK(...)                                                                              \
    {                                                                                          \
        __VA_ARGS__                                                                            \
    }

#define GPT2  "gpt2:layers=2,heads=4,width=16,context=8,vocab=22,dropout=0.2"
#define LLAMA "llama:layers=2,heads=4,kv_heads=2,width=16,hidden=24,context=8,vocab=23"
#define TIED  "llama:layers=1,heads=8,kv_heads=2,width=32,hidden=24,context=8,vocab=24,tied=1"
#define GEMMA                                                                                  \
    "gemma3:layers=2,heads=4,kv_heads=2,head_dim=4,width=16,hidden=24,context=8,vocab=23,"     \
    "window=3,pattern=sf,softcap=2,final_softcap=3"
#define PHI    "phi3:layers=1,heads=4,kv_heads=4,width=32,hidden=24,context=8,vocab=24,partial=0.5"
#define FEW    "phi3:layers=2,heads=8,kv_heads=4,width=32,hidden=24,context=8,vocab=24"
#define BERT   "bert:layers=2,heads=4,width=16,context=8,vocab=23,dropout=0.1"
#define UNEVEN "llama:layers=2,heads=4,kv_heads=1,width=16,hidden=20,context=7,vocab=21,tied=1"
#define SIX    "gpt2:layers=1,heads=6,width=24,context=8,vocab=25,dropout=0.1"
#define MLP    "mlp:in=12,hidden=24,layers=3,classes=5"

static void gpt2(void **state)
{
    COMPARE(TASK(GPT2, 4, ADAMW, false, BY_NAME), {1, 2, 0, true, false},
        {1, 4, 0, false, true}, {2, 2, 0, false, false}, {2, 1, 3, true, false},
        {2, 2, 3, false, true});
    COMPARE(
        TASK(GPT2, 4, ADAMW, true, BY_NAME), {1, 2, 0, false, true}, {1, 4, 0, true, false});
}

static void llama(void **state)
{
    COMPARE(TASK(LLAMA, 4, ADAMW, false, BY_NAME), {1, 2, 0, false, false},
        {1, 4, 0, true, false}, {2, 2, 1, false, true}, {2, 1, 0, false, false});
    COMPARE(
        TASK(LLAMA, 4, ADAMW, true, BY_NAME), {1, 2, 0, true, true}, {1, 4, 0, false, false});
    COMPARE(TASK(LLAMA, 2, ADAMW, true, BY_NAME), {1, 2, 0, true, true});
    COMPARE(TASK(TIED, 8, ADAMW, false, BY_NAME), {1, 2, 0, false, false},
        {1, 4, 0, false, true}, {1, 8, 0, false, false});
    COMPARE(TASK(TIED, 8, ADAMW, true, BY_NAME), {1, 4, 0, false, false});
}

/* Heads of all slices share the weights of their norms, scores in slices are bent, and matrices
 * lie side by side. */
static void relatives(void **state)
{
    COMPARE(TASK(GEMMA, 4, ADAMW, false, BY_NAME), {1, 2, 0, false, true},
        {1, 4, 0, true, false}, {2, 2, 1, false, false});
    COMPARE(TASK(GEMMA, 4, ADAMW, true, BY_NAME), {1, 2, 0, true, true});
    COMPARE(TASK(PHI, 2, ADAMW, false, BY_NAME), {1, 2, 0, true, true});
}

/* Fewer heads of keys than of queries in one matrix: parts of unequal width. */
static void few_keys(void **state)
{
    COMPARE(TASK(FEW, 4, ADAMW, false, BY_NAME), {1, 2, 0, true, true}, {1, 4, 0, false, false},
        {2, 2, 0, false, false}, {2, 2, 3, true, false});
    COMPARE(TASK(FEW, 2, ADAMW, true, BY_NAME), {1, 2, 0, true, true});
    COMPARE_SEQUENCE(
        TASK(FEW, 4, ADAMW, false, BY_NAME), {1, 2, 0, true, false}, {1, 4, 0, false, true});
    for (rule r = ADAMW_8_BITS; r <= ADAFACTOR; r++)
        COMPARE(TASK(FEW, 2, r, false, BY_NAME), {1, 2, 0, false, false});
}

static void bert(void **state)
{
    COMPARE(
        TASK(BERT, 4, ADAMW, false, BY_NAME), {1, 2, 0, true, false}, {1, 4, 0, false, true});
    COMPARE(TASK(BERT, 2, ADAMW, true, BY_NAME), {1, 2, 0, false, false});
}

/* Six slices on two ranks: a rank's slices complete two nodes of the tree. */
static void nodes(void **state)
{
    COMPARE(TASK(MLP, 6, ADAMW, false, BY_NAME), {1, 2, 0, false, false},
        {1, 3, 0, true, false}, {1, 6, 0, false, false});
    COMPARE(TASK("gpt2:layers=1,heads=6,width=24,context=8,vocab=25", 6, ADAMW, false, BY_NAME),
        {1, 2, 0, false, false}, {1, 3, 0, false, true});
    COMPARE(TASK("llama:layers=1,heads=6,kv_heads=2,width=24,hidden=12,context=8,vocab=25", 6,
                ADAMW, true, BY_NAME),
        {1, 2, 0, true, false}, {1, 6, 0, false, false});
}

/* Sequence parallelism: the ranks share the tokens between layers, also of sequences that T
 * does not divide. In the first model norms come after residuals, and its first block has whole
 * tokens; in the last a rank has several nodes of the tree. */
static void sequences(void **state)
{
    COMPARE_SEQUENCE(TASK(GPT2, 4, ADAMW, false, false), {1, 2, 0, true, false},
        {1, 4, 0, false, true}, {2, 2, 3, false, true});
    COMPARE_SEQUENCE(TASK(LLAMA, 4, ADAMW, true, false), {1, 2, 0, true, true},
        {1, 4, 0, false, false}, {2, 2, 0, false, false});
    COMPARE_SEQUENCE(
        TASK(UNEVEN, 4, ADAMW, false, false), {1, 2, 0, false, false}, {1, 4, 0, true, true});
    COMPARE_SEQUENCE(TASK(BERT, 2, ADAMW, true, false), {1, 2, 0, false, true});
    COMPARE_SEQUENCE(TASK(SIX, 6, ADAMW, false, false), {1, 2, 0, false, false},
        {1, 3, 0, true, false}, {1, 6, 0, false, true});
}

/* An element between a column layer and its row layer is dropped by its place in the whole. */
static void dropout(void **state)
{
    COMPARE(TASK(MLP, 4, ADAMW, false, RULES), {1, 2, 0, true, false}, {1, 4, 0, false, false});
    COMPARE(TASK(MLP, 4, ADAMW, true, RULES), {1, 2, 0, false, false});
    COMPARE(TASK(MLP, 4, ADAMW, false, HEADS), {1, 2, 0, true, false}, {1, 4, 0, false, true});
    COMPARE(TASK(MLP, 4, ADAMW, true, HEADS), {1, 4, 0, false, false});
}

/* A user's module takes part by marking its contraction. */
static void own_module(void **state)
{
    COMPARE(TASK(MLP, 4, ADAMW, false, MARKS), {1, 2, 0, true, false}, {1, 4, 0, false, true},
        {2, 2, 0, false, false}, {2, 2, 3, false, false});
    COMPARE(TASK(MLP, 3, MUON, true, MARKS), {1, 3, 0, false, false});
}

static void optimizers(void **state)
{
    for (rule r = ADAMW_8_BITS; r <= ADAFACTOR; r++)
        COMPARE(
            TASK(GPT2, 4, r, false, BY_NAME), {1, 2, 0, r % 2, false}, {2, 2, 0, false, false});
    COMPARE(TASK("mlp:in=300,hidden=520,layers=2,classes=3", 2, ADAMW_8_BITS, false, BY_NAME),
        {1, 2, 0, false, false});
}

/* The number of slices is part of the numbers: they are other ones with another T. */
static void other_cuts_differ(void **state)
{
    static const char *const models[] = {GPT2, LLAMA, BERT, MLP};
    for (size_t m = 0; m < CHOIR_COUNT(models); m++) {
        task one = {models[m], 1, ADAMW, false, BY_NAME}, two = one;
        two.slices = 2;
        layout alone = {1, 1, 0, false, false};
        outcome *a = run(&one, alone), *b = run(&two, alone);
        assert_memory_not_equal(a->values, b->values, (size_t)a->used);
        munmap(a, sizeof *a);
        munmap(b, sizeof *b);
    }
}

/* A checkpoint of each layout continues in another. */
static void checkpoints(void **state)
{
    static const layout all[] = {{1, 1, 0, false, false}, {1, 2, 0, false, false},
        {1, 4, 0, false, false}, {2, 2, 3, false, false}};
    task t = {LLAMA, 4, ADAMW, false, BY_NAME};
    outcome *single = run(&t, all[0]);
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        layout next = all[(i + 1) % CHOIR_COUNT(all)];
        const char *saved = at("moved%zu", i);
        outcome *before = run_from(&t, all[i], saved, 0, 1);
        assert_false(before->failed);
        outcome *after = run_from(&t, next, saved, 1, STEPS);
        assert_same(&t, next, single, after, 1);
        munmap(before, sizeof *before);
        munmap(after, sizeof *after);
    }
    munmap(single, sizeof *single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2), cmocka_unit_test(llama),
        cmocka_unit_test(relatives), cmocka_unit_test(few_keys), cmocka_unit_test(bert),
        cmocka_unit_test(nodes), cmocka_unit_test(sequences), cmocka_unit_test(dropout),
        cmocka_unit_test(own_module), cmocka_unit_test(optimizers),
        cmocka_unit_test(other_cuts_differ),
        cmocka_unit_test_setup_teardown(checkpoints, make_folder, remove_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
