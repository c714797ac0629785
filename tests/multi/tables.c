/* Lookup tables over ranks. While all micro-batches look up fewer rows than the table has,
 * ranks gather the rows; else the gradient is a table, summed like any other. Either way the
 * bits equal one device's, and no rank holds more as the ranks become more. */
#include "job_fixture.h"
#include "nn/module.h"
#include "parallel/fsdp/fsdp.h"
#include "tensor/scope.h"

enum { STEPS = 2, MOST = 8 };

typedef enum wrapping { SINGLE, DDP, FSDP } wrapping;

typedef struct plan {
    wrapping wrapping;
    choir_ddp_opts ddp;
    choir_fsdp_opts fsdp;
    int64_t vocab, width, tokens, microbatches;
    int lookups; /* the number of lookups in a micro-batch */
    bool tied;   /* scores by the same table follow */
    bool zeros;  /* in place of the scores, a use of the table whose gradient is -0 */
    bool recorded;
    /* --- output --- */
    uint32_t loss[STEPS];
    uint64_t weights, gradient; /* hashes; gradient: rank 0's part in the first step */
    uint64_t peak;              /* bytes of rank 0's pool */
    bool by_rows;
    int parts;
} plan;

typedef struct net {
    choir_module base;
    choir_module *table;
    choir_tensor *head;
    bool zeros;
} net;

typedef struct job {
    plan *plan;
    rank_job r;
    choir_module *bare;
    bool notes; /* the step's gradient is hashed */
} job;

static choir_tensor *net_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = choir_forward(n->table, in[0]);
    for (int i = 1; i < count; i++) /* each lookup weighs otherwise, so that order shows */
        x = choir_add(x, choir_scale(choir_forward(n->table, in[i]), 1.0f / (float)(i + 2)));
    if (n->zeros) {
        choir_tensor *head = choir_in(choir_tensor_scope(in[0]), n->head);
        return choir_add(choir_sum(x), choir_sum(choir_scale(head, -0.0)));
    }
    return n->head ? choir_linear(x, n->head, NULL) : x;
}

static const choir_module_class net_class = {"net", sizeof(net), net_forward, 0};

static choir_module *new_net(choir_scope *run, const plan *p)
{
    net *n = choir_module_new(run, &net_class);
    choir_init init = choir_init_normal(0, 0.1);
    n->zeros = p->zeros;
    choir_module_child(
        &n->base, "table", &n->table, choir_nn_embedding(run, p->vocab, p->width, init));
    if (p->tied)
        choir_module_tie(&n->base, "head", &n->head, choir__embedding_table(n->table));
    return &n->base;
}

/* Ids of a micro-batch; the last tenth of the vocabulary is never named. */
static choir_tensor *ids_of(const plan *p, choir_scope *micro, int lookup)
{
    int64_t *ids = malloc((size_t)p->tokens * sizeof *ids), named = p->vocab - p->vocab / 10;
    for (int64_t i = 0; i < p->tokens; i++)
        ids[i] = (micro->micro * 131 + i * (17 + lookup) + i * i % 7) % named;
    choir_tensor *t = choir_from(micro, CHOIR_I64, choir_dims(p->tokens), ids);
    free(ids);
    return t;
}

static choir_tensor *loss_of(choir_scope *micro, choir_module *model, void *arg)
{
    const plan *p = ((const job *)arg)->plan;
    choir_tensor *in[3];
    for (int i = 0; i < p->lookups; i++)
        in[i] = ids_of(p, micro, i);
    choir_tensor *y = choir_forward_n(model, in, p->lookups);
    return p->zeros ? y : choir_mean(choir_mul(y, y));
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_check(run_micro_batches(step,
        (micro_batches){j->r.first, j->r.count, loss_of, j->r.net, j, j->r.losses, NULL}));
    if (j->notes) {
        int count;
        choir__param **params = choir__module_params(j->bare, &count);
        hash_values("", choir_grad(params[0]->tensor), &j->plan->gradient);
        free(params);
    }
    return choir_optim_step(j->r.optim);
}

static choir_module *wrap(const job *j, const plan *p)
{
    switch (p->wrapping) {
    case DDP: return choir_ddp(j->r.run, j->bare, j->r.env.group, p->ddp);
    case FSDP: return choir_fsdp(j->r.run, j->bare, j->r.env.group, p->fsdp);
    default: return j->bare;
    }
}

static void open_job(job *j, plan *p)
{
    *j = (job){.plan = p};
    j->r = open_rank_job(p->microbatches, 7);
    j->bare = new_net(j->r.run, p);
    j->r.net = wrap(j, p);
    j->r.optim = clipped_adamw(j->r.run, j->r.net);
    choir_check(choir_scope_status(j->r.run));
}

static void look(const char *name, choir_tensor *t, void *arg)
{
    plan *p = arg;
    hash_values(name, t, &p->weights);
    p->by_rows = t->param->slots[0].by_rows;
    p->parts = (int)t->param->slots[0].parts;
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg, others = *p;
    job j;
    choir_device_stats stats;
    open_job(&j, rank == 0 ? p : &others);
    for (int s = 0; s < STEPS; s++) {
        j.notes = s == 0 && !p->recorded && p->wrapping != FSDP;
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
    if (p->gradient)
        assert_true(p->gradient == single->gradient);
}

/* Trains `of` in many ways, on up to four ranks, and compares with one device. */
static void compare(plan of, bool by_rows)
{
    const choir_fsdp_opts stages[] = {{.stage = 1}, {.stage = 2}, {.stage = 3},
        {.stage = 3, .gather = true}, {.stage = 2, .shard_ranks = 2},
        {.stage = 3, .offload = true}};
    of.microbatches = 4;
    const plan single = run(1, of);
    assert_true(single.loss[0] != single.loss[STEPS - 1]);
    for (int ranks = 1; ranks <= 4; ranks++) {
        plan p = of;
        p.wrapping = DDP;
        p.ddp = choir_ddp_defaults();
        p.ddp.find_unused_parameters = ranks == 3;
        p = run(ranks, p);
        same(&p, &single);
        assert_int_equal(p.by_rows, by_rows);
    }
    for (size_t s = 0; s < CHOIR_COUNT(stages); s++) {
        plan p = of;
        p.wrapping = FSDP;
        p.fsdp = stages[s];
        p.recorded = s % 2;
        const int ranks = stages[s].shard_ranks ? 4 : 2 + (int)s % 3;
        p = run(ranks, p);
        same(&p, &single);
        assert_int_equal(p.by_rows, by_rows);
    }
}

static void few_rows(void **state)
{
    compare((plan){.vocab = 400, .width = 12, .tokens = 20, .lookups = 1}, true);
    compare((plan){.vocab = 400, .width = 12, .tokens = 20, .lookups = 2, .tied = true}, true);
}

static void many_rows(void **state)
{
    compare((plan){.vocab = 37, .width = 12, .tokens = 40, .lookups = 1}, false);
    compare((plan){.vocab = 37, .width = 12, .tokens = 40, .lookups = 3}, false);
    compare((plan){.vocab = 37, .width = 12, .tokens = 40, .lookups = 2, .tied = true}, false);
}

/* Signs of zeros show whether rows without a lookup are added. */
static void zeros(void **state)
{
    plan of = {
        .vocab = 37, .width = 12, .tokens = 7, .lookups = 2, .tied = true, .zeros = true};
    compare(of, true);
    of.tokens = 40;
    compare(of, false);
}

/* The choice is by bytes: 8 of an id and 4 * 12 of a row, against 4 * 12 for each of 40 rows.
 */
static void the_choice(void **state)
{
    plan of = {.wrapping = DDP, .ddp = choir_ddp_defaults(), .vocab = 42, .width = 12};
    of.lookups = 1;
    of.microbatches = 4;
    of.tokens = 9; /* 4 * 9 * 56 = 42 * 48 */
    assert_true(run(2, of).by_rows);
    assert_true(run(4, of).by_rows);
    of.tokens = 10;
    assert_false(run(2, of).by_rows);
    assert_false(run(4, of).by_rows);
}

/* A rank of eight holds no more than one of two, where each has one micro-batch. */
static void memory(void **state)
{
    for (int w = DDP; w <= FSDP; w++) {
        plan of = {.wrapping = w, .ddp = choir_ddp_defaults(), .fsdp = choir_fsdp_defaults()};
        of.vocab = 300, of.width = 64, of.tokens = 2000, of.lookups = 1;
        of.microbatches = 2;
        const plan two = run(2, of);
        of.microbatches = 8;
        const plan eight = run(8, of);
        if (eight.peak > two.peak + 4096)
            fail_msg("strategy %d: %llu bytes on 2 ranks, %llu on 8", w,
                (unsigned long long)two.peak, (unsigned long long)eight.peak);
    }
}

/* 26 MB in two parts: a rank that shards has neither the whole gradient nor its rows. */
static void a_large_table_in_parts(void **state)
{
    plan of = {.vocab = 50257, .width = 128, .tokens = 16384, .lookups = 1, .microbatches = 4};
    const plan single = run(1, of);
    of.wrapping = FSDP;
    for (int stage = 2; stage <= 3; stage++) {
        of.fsdp = (choir_fsdp_opts){.stage = stage, .gather = stage == 3};
        const plan p = run(5 - stage, of);
        same(&p, &single);
        assert_false(p.by_rows);
        assert_int_equal(p.parts, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_rows), cmocka_unit_test(many_rows),
        cmocka_unit_test(zeros), cmocka_unit_test(the_choice), cmocka_unit_test(memory),
        cmocka_unit_test(a_large_table_in_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
