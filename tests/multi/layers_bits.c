/* Same bits of what no model by name has: attention layers, the ops that are made of others,
 * and modules in f64, on one device, under DDP and under FSDP, at equal M. Modules in f64 are
 * also saved, loaded, and refused by name where they cannot be trained. */
#include <math.h>

#include "folder_fixture.h"
#include "job_fixture.h"
#include "nn/module.h"

enum { M = 3, STEPS = 3, ROWS = 4, TOKENS = 6, WIDTH = 8 };

typedef enum wrapping { SINGLE, DDP, FSDP, FSDP_GATHERED } wrapping;
typedef enum body_kind { LAYERS, OPS, TABLE } body_kind;

typedef struct outcome {
    uint64_t loss[STEPS], norm[STEPS]; /* f64's bits */
    uint64_t weights;
} outcome;

typedef struct plan {
    body_kind kind;
    wrapping how;
    bool wide, recorded;
    const char *save; /* file of the weights; NULL: they are not saved */
    outcome out;
} plan;

/* --- the modules --- */

typedef struct body_net {
    choir_module base;
    choir_module *first, *encoder, *decoder, *last;
    body_kind kind;
} body_net;

static choir_tensor *through_ops(choir_tensor *x)
{
    choir_tensor *y = choir_softplus(choir_leaky_relu(x, 0.1), 1, 20);
    y = choir_add(choir_elu(y, 1), choir_roll(choir_flip(x, 1), 2, 2));
    y = choir_add(y, choir_log1p(choir_square(choir_erf(x))));
    y = choir_sub(y, choir_logsumexp_dim(x, 2, true));
    return choir_add(choir_tril(y, 1), choir_std_dim(x, 2, 1, true));
}

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    body_net *n = (body_net *)self;
    choir_tensor *x = choir_forward(n->first, in[0]);
    if (n->kind == LAYERS) {
        choir_tensor *memory = choir_forward(n->encoder, x);
        x = choir_forward(n->decoder, x, memory);
    } else if (n->kind == OPS) {
        x = through_ops(x);
    }
    return choir_forward(n->last, x);
}

static const choir_module_class net_class = {"net", sizeof(body_net), forward, 1};

static choir_module *new_net(choir_scope *run, body_kind kind)
{
    body_net *n = choir_module_new(run, &net_class);
    choir_transformer_opts opts = choir_transformer_defaults();
    opts.hidden = 12;
    opts.norm_first = true;
    n->kind = kind;
    choir_module_child(&n->base, "first", &n->first,
        kind == TABLE ? choir_nn_embedding(run, 11, WIDTH, choir_init_normal(0, 1))
                      : choir_nn_linear(run, 5, WIDTH));
    if (kind == LAYERS) {
        choir_module_child(&n->base, "encoder", &n->encoder,
            choir_nn_transformer_encoder_layer(run, WIDTH, 2, opts));
        choir_module_child(&n->base, "decoder", &n->decoder,
            choir_nn_transformer_decoder_layer(run, WIDTH, 2, opts));
    }
    choir_module_child(&n->base, "last", &n->last, choir_nn_linear(run, WIDTH, 3));
    return &n->base;
}

/* --- training --- */

typedef struct job {
    const plan *plan;
    rank_job r;
    choir_tensor *x;
} job;

static choir_tensor *loss_of(choir_scope *micro, choir_module *module, void *arg)
{
    job *j = arg;
    choir_tensor *x = choir_narrow(choir_in(micro, j->x), 0, ROWS * micro->micro, ROWS);
    return choir_mean(choir_square(choir_forward(module, x)));
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    return train_rank(&j->r, step, loss_of, j);
}

static choir_module *wrap(const job *j, wrapping how)
{
    choir_fsdp_opts fsdp = choir_fsdp_defaults();
    fsdp.gather = how == FSDP_GATHERED;
    return how == SINGLE ? j->r.net
           : how == DDP  ? choir_ddp(j->r.run, j->r.net, j->r.env.group, choir_ddp_defaults())
                         : choir_fsdp(j->r.run, j->r.net, j->r.env.group, fsdp);
}

static choir_tensor *inputs(choir_scope *run, const plan *p)
{
    if (p->kind == TABLE)
        return choir_randint(run, choir_dims(M * ROWS, TOKENS), "x", 0, 11);
    choir_tensor *x = choir_randn(run, choir_dims(M * ROWS, TOKENS, 5), "x");
    return p->wide ? choir_cast(x, CHOIR_F64) : x;
}

static uint64_t bits(double x)
{
    uint64_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg;
    job j = {.plan = p};
    j.r = open_rank_job(M, 3);
    choir_module *bare = j.r.net = new_net(j.r.run, p->kind);
    if (p->wide)
        choir_check(choir_module_cast(j.r.net, CHOIR_F64));
    j.r.net = wrap(&j, p->how);
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 1e-2f;
    j.r.optim = choir_adamw(j.r.run, j.r.net, hp);
    choir_optim_clip(j.r.optim, 0.5f);
    j.x = inputs(j.r.run, p);
    choir_check(choir_scope_status(j.r.run));
    for (int s = 0; s < STEPS; s++) {
        choir_check(run_step(j.r.run, p->recorded, s, body, &j));
        p->out.norm[s] = bits(choir_item(choir_optim_grad_norm(j.r.optim)));
        if (rank == 0) /* micro-batch 0 */
            p->out.loss[s] = bits(choir_item(j.r.losses[0]));
    }
    if (p->save)
        choir_check(choir_save_whole(j.r.net, j.r.env.group, p->save));
    uint64_t weights = hash_of_module(bare);
    if (rank == 0)
        p->out.weights = weights;
    return close_rank_job(&j.r);
}

static outcome run(int ranks, plan p)
{
    train_on_ranks(ranks, train, &p, sizeof p);
    return p.out;
}

static void compare(body_kind kind, bool wide)
{
    outcome one = run(1, (plan){.kind = kind, .wide = wide});
    assert_true(one.loss[0] != one.loss[STEPS - 1]);
    for (wrapping how = DDP; how <= FSDP_GATHERED; how++)
        for (int ranks = how == FSDP_GATHERED ? 2 : 1; ranks <= M;
             ranks += how == DDP ? 1 : 2) {
            outcome o = run(
                ranks, (plan){.kind = kind, .how = how, .wide = wide, .recorded = ranks % 2});
            if (memcmp(&one, &o, sizeof one))
                print_error("kind %d in f%d: strategy %d on %d ranks differs\n", kind,
                    wide ? 64 : 32, how, ranks);
            assert_memory_equal(&one, &o, sizeof one);
        }
}

static void layers(void **state)
{
    compare(LAYERS, false);
}

static void ops(void **state)
{
    compare(OPS, false);
}

static void layers_in_f64(void **state)
{
    compare(LAYERS, true);
}

static void ops_in_f64(void **state)
{
    compare(OPS, true);
}

/* Rows of a table are gathered, and added where they belong. */
static void tables_in_f64(void **state)
{
    compare(TABLE, true);
}

/* A file of shards has all bits; a module in f32 takes them rounded. */
static void saved_in_f64(void **state)
{
    const char *path = at("wide.safetensors");
    outcome wrote = run(2, (plan){.kind = OPS, .how = FSDP, .wide = true, .save = path});
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 4);
    choir_module *wide = new_net(run, OPS), *narrow = new_net(run, OPS);
    choir_check(choir_module_cast(wide, CHOIR_F64));
    choir_check(choir_load(wide, path));
    choir_check(choir_load(narrow, path));
    assert_true(hash_of_module(wide) == wrote.weights);
    choir_tensor *a = choir_module_find(wide, "last.weight"),
                 *b = choir_module_find(narrow, "last.weight");
    double x[3 * WIDTH];
    float y[3 * WIDTH];
    choir_check(choir_read(a, x, sizeof x));
    choir_check(choir_read(b, y, sizeof y));
    bool more = false; /* digits than f32 has */
    for (int i = 0; i < 3 * WIDTH; i++) {
        assert_true((float)x[i] == y[i]);
        more |= x[i] != (double)(float)x[i];
    }
    assert_true(more);
    choir_check(choir_scope_close(run));
    choir_env_free(&env);
}

/* f64 has the steps of f32 to f32's digits, and of a formula to its own. */
static void one_step_by_hand(void **state)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 4);
    choir_module *net = choir_nn_linear_with(run, 1, 1, false, choir_init_constant(0.7));
    choir_check(choir_module_cast(net, CHOIR_F64));
    choir_adamw_opts hp = choir_adamw_defaults();
    choir_optim *optim = choir_adamw(run, net, hp);
    double w = (double)0.7f, m = 0, v = 0, b1 = (double)hp.beta1, b2 = (double)hp.beta2;
    for (int t = 1; t <= 5; t++) {
        choir_scope *s = choir_step_open(run, (uint64_t)t);
        double three = 3, got;
        choir_tensor *x = choir_from(s, CHOIR_F64, choir_dims(1, 1), &three);
        choir_check(choir_backward(choir_sum(choir_square(choir_forward(net, x)))));
        choir_check(choir_optim_step(optim));
        double g = 2 * 9 * w;
        w -= (double)hp.lr * (double)hp.weight_decay * w;
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        w -= (double)hp.lr / (1 - pow(b1, t)) * m /
             (sqrt(v) / sqrt(1 - pow(b2, t)) + (double)hp.eps);
        choir_check(choir_read(choir_module_find(net, "weight"), &got, sizeof got));
        assert_true(fabs(got - w) <= 1e-14);
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
    choir_env_free(&env);
}

static void assert_refuses_f64(
    choir_module *(*make)(choir_scope *run, choir_module *net), const char *who)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 4);
    choir_module *net = new_net(run, OPS);
    choir_check(choir_module_cast(net, CHOIR_F64));
    make(run, net);
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_DTYPE);
    assert_non_null(strstr(choir_error_message(), who));
    assert_non_null(strstr(choir_error_message(), "f64"));
    (void)!choir_scope_close(run);
    choir_env_free(&env);
}

static choir_module *in_parallel(choir_scope *run, choir_module *net)
{
    return choir_data_parallel(run, net, choir_data_parallel_defaults());
}

static choir_module *by_slices(choir_scope *run, choir_module *net)
{
    choir_tensor_parallel_opts opts = choir_tensor_parallel_defaults();
    opts.slices = 2;
    return choir_tensor_parallel(run, net, NULL, opts);
}

static choir_module *in_stages(choir_scope *run, choir_module *net)
{
    return choir_pipeline(run, net, choir_pipeline_defaults());
}

static choir_module *in_chunks(choir_scope *run, choir_module *net)
{
    return choir_context_parallel(run, net, NULL, (choir_context_parallel_opts){.chunks = 2});
}

static void refused_by_name(void **state)
{
    assert_refuses_f64(in_stages, "pipeline");
    assert_refuses_f64(in_chunks, "context_parallel");
    assert_refuses_f64(in_parallel, "data_parallel");
    assert_refuses_f64(by_slices, "tensor_parallel");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),
        cmocka_unit_test(ops),
        cmocka_unit_test(layers_in_f64),
        cmocka_unit_test(ops_in_f64),
        cmocka_unit_test(tables_in_f64),
        cmocka_unit_test_setup_teardown(saved_in_f64, make_folder, remove_all),
        cmocka_unit_test(one_step_by_hand),
        cmocka_unit_test(refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
