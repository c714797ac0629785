/* FSDP of a large gradient: a head tied to its table, whose gradient comes in parts. On any
 * number of ranks, in every stage, gathered, off-loaded, in copies and with a hook that sees it
 * whole, the bits are those of one device; and no rank has memory for all of it. */
#include "job_fixture.h"
#include "nn/module.h"
#include "parallel/fsdp/fsdp.h"
#include "tensor/scope.h"

/* VOCAB x WIDTH f32: 26 MB in two parts, or 77 MB in four */
enum { VOCAB = 50257, WIDTH = 128, WIDE = 384, TOKENS = 4, STEPS = 2, M = 4 };

typedef struct plan {
    choir_fsdp_opts opts;
    bool fsdp, recorded, hook, head_alone;
    int64_t width, microbatches;
    uint32_t loss[STEPS];
    uint64_t weights, peak; /* peak: bytes of rank 0's pool */
    int parts, hooked;      /* hooked: calls of rank 0's hook, each with the whole gradient */
} plan;

typedef struct net {
    choir_module base;
    choir_module *table;
    choir_tensor *head;
} net;

typedef struct job {
    plan *plan;
    rank_job r;
} job;

static choir_tensor *net_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = n->table ? choir_forward(n->table, in[0]) : choir_cast(in[0], CHOIR_F32);
    return choir_linear(x, n->head, NULL); /* (TOKENS, VOCAB) */
}

static const choir_module_class net_class = {"net", sizeof(net), net_forward, 1};

/* Returns a table with the head tied to it, or the head alone, whose input are floats. */
static choir_module *new_net(choir_scope *run, const plan *p)
{
    net *n = choir_module_new(run, &net_class);
    choir_init init = choir_init_normal(0, 0.02);
    if (p->head_alone) {
        choir_module_param(&n->base, "head", &n->head, choir_dims(VOCAB, p->width), init);
        return &n->base;
    }
    choir_module_child(
        &n->base, "table", &n->table, choir_nn_embedding(run, VOCAB, p->width, init));
    choir_module_tie(&n->base, "head", &n->head, choir__embedding_table(n->table));
    return &n->base;
}

static choir_tensor *input(const job *j, choir_scope *micro)
{
    const int64_t m = micro->micro;
    float x[TOKENS * WIDE];
    int64_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (m * 12345 + i * 17001) % VOCAB;
    for (int i = 0; i < TOKENS * WIDE; i++)
        x[i] = (float)((m + 3 * i) % 7) - 3;
    return j->plan->head_alone
               ? choir_from(micro, CHOIR_F32, choir_dims(TOKENS, j->plan->width), x)
               : choir_from(micro, CHOIR_I64, choir_dims(TOKENS), ids);
}

static choir_tensor *loss_of_input(choir_scope *micro, choir_module *model, void *arg)
{
    choir_tensor *y = choir_forward(model, input(arg, micro));
    return choir_mean(choir_mul(y, y));
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    return train_rank(&j->r, step, loss_of_input, j);
}

static void watch(choir_tensor *t, choir_tensor *grad, void *arg)
{
    plan *p = arg;
    p->hooked += grad && grad->count == t->count;
}

static void open_job(job *j, plan *p)
{
    int count;
    *j = (job){.plan = p};
    j->r = open_rank_job(p->microbatches, 7);
    j->r.net = new_net(j->r.run, p);
    choir__param **params = choir__module_params(j->r.net, &count);
    if (p->hook && j->r.env.rank == 0)
        choir_on_grad(params[0]->tensor, watch, p);
    free(params);
    if (p->fsdp)
        j->r.net = choir_fsdp(j->r.run, j->r.net, j->r.env.group, p->opts);
    j->r.optim = choir_adamw(j->r.run, j->r.net, choir_adamw_defaults());
    choir_optim_clip(j->r.optim, 0.05f);
    choir_check(choir_scope_status(j->r.run));
}

static void look(const char *name, choir_tensor *t, void *arg)
{
    plan *p = arg;
    hash_values(name, t, &p->weights);
    for (int u = 0; u < t->param->slot_count; u++)
        p->parts = choir__max(p->parts, (int)t->param->slots[u].parts);
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg, others = *p;
    job j;
    choir_device_stats stats;
    open_job(&j, p);
    for (int s = 0; s < STEPS; s++) {
        const uint32_t loss = step_of_rank(&j.r, p->recorded, s, body, &j);
        if (rank == 0)
            p->loss[s] = loss;
    }
    choir_device_get_stats(j.r.env.device, &stats);
    choir_module_visit(j.r.net, false, look, rank == 0 ? p : &others); /* may be collective */
    if (rank == 0)
        p->peak = stats.bytes_peak;
    return close_rank_job(&j.r);
}

static plan run(int ranks, plan p)
{
    train_on_ranks(ranks, train, &p, sizeof p);
    return p;
}

static void same(const plan *p, const plan *single)
{
    assert_memory_equal(p->loss, single->loss, sizeof p->loss);
    assert_true(p->weights == single->weights);
}

static void bits(void **state)
{
    choir_fsdp_opts full = {.stage = 3};
    const struct {
        int ranks;
        plan plan;
    } cases[] = {
        {2, {.opts = {.stage = 1}, .recorded = true}},
        {3, {.opts = {.stage = 2}}},
        {4, {.opts = full}},
        {2, {.opts = {.stage = 3, .gather = true}}},
        {2, {.opts = {.stage = 3, .offload = true}}},
        {4, {.opts = {.stage = 2, .shard_ranks = 2}}},
        {2, {.opts = full, .hook = true}},
    };
    plan single = run(1, (plan){.width = WIDTH, .microbatches = M});
    assert_true(single.loss[0] != single.loss[STEPS - 1]);
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        plan p = cases[i].plan;
        p.fsdp = true;
        p.width = WIDTH;
        p.microbatches = M;
        p = run(cases[i].ranks, p);
        same(&p, &single);
        assert_int_equal(p.parts, 2);
        if (p.hook) /* a table's rows are no gradient of the whole */
            assert_int_equal(p.hooked, STEPS * M / cases[i].ranks);
    }
}

/* 77 MB of weights: a quarter of them, of their sums and two moments are 77 MB, and two parts
 * are 39. */
static void memory(void **state)
{
    const uint64_t whole = (uint64_t)4 * VOCAB * WIDE;
    plan of = {.width = WIDE, .microbatches = M, .head_alone = true};
    plan single = run(1, of);
    of.fsdp = true;
    of.opts = (choir_fsdp_opts){.stage = 3};
    plan p = run(4, of);
    same(&p, &single);
    assert_int_equal(p.parts, 4);
    if (p.peak >= whole + whole * 3 / 4)
        print_error("%llu bytes\n", (unsigned long long)p.peak);
    assert_true(p.peak < whole + whole * 3 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
