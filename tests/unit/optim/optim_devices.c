/* Parameters on several devices: every optimizer gives the bits of one device, whatever the
 * placement, clipped or not, recorded or not. Files do not depend on the placement, and errors
 * of any device are reported. */
#include "checkpoint_fixture.h"

#include "nn/module.h"

enum { BATCH = 6, MICRO = 3, STEPS = 6, IDS = 20 };

static int devices(void **state)
{
    setenv("CHOIR_CPU_DEVICES", "3", 1);
    return set_up(state);
}

static choir_device *cpu(char digit)
{
    char name[] = "cpu:_";
    name[4] = digit;
    choir_device *device = choir_device_find(name);
    assert_non_null(device);
    return device;
}

/* --- a net whose layers go where a string of digits says --- */

typedef struct net {
    choir_module base;
    choir_module *layer[5];
} net;

/* A net with a table, whose gradient is rows; statistics that each step changes; dropout. */
static choir_tensor *net_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = in[0];
    for (int i = 0; i < 5; i++) {
        choir_device *here = choir_tensor_device(n->layer[i]->inside->entries->tensor);
        x = choir_forward(n->layer[i], choir_to(x, here));
        if (i == 1)
            x = choir_relu(x);
        if (i == 3)
            x = choir_dropout(x, 0.25f, "drop");
    }
    return x;
}

static const choir_module_class net_class = {"net", sizeof(net), net_forward, 0};

static net *new_net(choir_scope *run, const char *placement)
{
    net *n = choir_module_new(run, &net_class);
    choir_module *layers[5] = {choir_nn_embedding(run, IDS, 8, choir_init_normal(0, 1)),
        choir_nn_linear(run, 8, 12), choir_nn_batch_norm(run, 12), choir_nn_linear(run, 12, 9),
        choir_nn_linear(run, 9, 4)};
    for (int i = 0; i < 5; i++) {
        char name[] = "layer_";
        name[5] = (char)('a' + i);
        choir_module_child(&n->base, name, &n->layer[i], layers[i]);
        if (placement[i] != '0')
            ok(choir_module_to(n->layer[i], cpu(placement[i])));
    }
    return n;
}

/* --- a job of a few steps, and all it leaves behind --- */

enum kind { SGD, SGD_CLIPPED, ADAM, ADAM_CLIPPED, LAMB, KINDS };

typedef struct devices_job {
    choir_scope *run;
    net *n;
    choir_optim *opt;
    choir_tensor *ids[MICRO], *y[MICRO], *loss[MICRO]; /* of the run */
} devices_job;

struct bits {
    float losses[STEPS * MICRO + STEPS], state[4000];
    int losses_count, state_count;
};

static choir_optim *new_optimizer(choir_scope *run, choir_module *m, enum kind kind)
{
    choir_sgd_opts sgd = {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f};
    choir_adamw_opts adam = choir_adamw_defaults();
    choir_lamb_opts lamb = choir_lamb_defaults();
    adam.lr = lamb.lr = 0.05f;
    adam.amsgrad = kind == ADAM;
    choir_optim *opt = kind <= SGD_CLIPPED    ? choir_sgd(run, m, sgd)
                       : kind <= ADAM_CLIPPED ? choir_adamw(run, m, adam)
                                              : choir_lamb(run, m, lamb); /* clips at 1 */
    if (kind == SGD_CLIPPED || kind == ADAM_CLIPPED)
        choir_optim_clip(opt, 0.3f);
    return opt;
}

static devices_job open_devices_job(const char *placement, enum kind kind)
{
    devices_job j = {.run = choir_scope_open(cpu('0'), 11)};
    j.n = new_net(j.run, placement);
    j.opt = new_optimizer(j.run, &j.n->base, kind);
    for (int m = 0; m < MICRO; m++) {
        int64_t ids[BATCH];
        for (int i = 0; i < BATCH; i++)
            ids[i] = (i * 7 + m * 5) % IDS;
        j.ids[m] = choir_from(j.run, CHOIR_I64, choir_dims(BATCH), ids);
        j.y[m] = choir_randn(j.run, choir_dims(BATCH, 4), "y");
    }
    ok(choir_scope_status(j.run));
    return j;
}

static choir_status one_step(choir_scope *step, void *arg)
{
    devices_job *j = arg;
    for (int m = 0; m < MICRO; m++) {
        choir_scope *s = choir_micro_open(step, m);
        choir_tensor *out = choir_forward(&j->n->base, choir_in(s, j->ids[m]));
        choir_tensor *y = choir_to(choir_in(s, j->y[m]), choir_tensor_device(out));
        choir_tensor *loss = choir_mse_loss(out, y);
        j->loss[m] = choir_keep(j->run, loss);
        choir_status status = choir_backward(loss);
        choir_scope_close(s);
        if (status != CHOIR_OK)
            return status;
    }
    return choir_optim_step(j->opt);
}

static void run_step(devices_job *j, uint64_t number, bool recorded)
{
    if (recorded) {
        ok(choir_step(j->run, one_step, j));
        return;
    }
    choir_scope *s = choir_step_open(j->run, number);
    ok(one_step(s, j));
    ok(choir_scope_close(s));
}

static void note_losses(const devices_job *j, struct bits *b)
{
    for (int m = 0; m < MICRO; m++)
        b->losses[b->losses_count++] = (float)choir_item(j->loss[m]);
    choir_tensor *norm = choir_optim_grad_norm(j->opt);
    b->losses[b->losses_count++] = norm ? (float)choir_item(norm) : 0;
}

static void note_state(const char *name, choir_tensor *t, void *arg)
{
    struct bits *b = arg;
    size_t n = (size_t)choir_tensor_count(t);
    if (choir_tensor_dtype(t) != CHOIR_F32)
        return;
    assert_in_range(b->state_count + (int)n, 0, CHOIR_COUNT(b->state));
    ok(choir_read(t, b->state + b->state_count, n * sizeof(float)));
    b->state_count += (int)n;
}

static void note_all(devices_job *j, struct bits *b)
{
    choir_module_visit(&j->n->base, true, note_state, b);
    choir_optim_visit(j->opt, note_state, b);
}

static struct bits *train_on(const char *placement, enum kind kind, bool recorded)
{
    struct bits *b = calloc(1, sizeof *b);
    devices_job j = open_devices_job(placement, kind);
    for (uint64_t i = 0; i < STEPS; i++) {
        run_step(&j, i, recorded);
        note_losses(&j, b);
    }
    note_all(&j, b);
    ok(choir_scope_close(j.run));
    return b;
}

static void assert_same(struct bits *a, struct bits *b, const char *what)
{
    if (a->losses_count != b->losses_count || a->state_count != b->state_count ||
        memcmp(a->losses, b->losses, sizeof a->losses) != 0)
        fail_msg("other losses or norms: %s", what);
    if (memcmp(a->state, b->state, sizeof a->state) != 0)
        fail_msg("other weights or state: %s", what);
    free(b);
}

static const char *const placements[] = {"00000", "00111", "01010", "11111", "21012", "22110"};

static void same_bits(void **state)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        struct bits *one = train_on("00000", kind, false);
        assert_true(one->losses[0] != one->losses[(STEPS - 1) * (MICRO + 1)]); /* it learns */
        assert_true((one->losses[MICRO] > 0) == (kind != SGD && kind != ADAM));
        for (size_t i = 0; i < CHOIR_COUNT(placements); i++)
            for (int recorded = 0; recorded < 2; recorded++) {
                char what[64];
                snprintf(what, sizeof what, "optimizer %d on %s, %s", (int)kind, placements[i],
                    recorded ? "recorded" : "not recorded");
                assert_same(one, train_on(placements[i], kind, recorded), what);
            }
        free(one);
    }
}

/* Layers and their optimizer state move during a job. */
static void same_bits_after_moves(void **state)
{
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (int recorded = 0; recorded < 2; recorded++) {
            struct bits *one = train_on("00000", kind, false), *b = calloc(1, sizeof *b);
            devices_job j = open_devices_job("00000", kind);
            for (uint64_t i = 0; i < STEPS; i++) {
                if (i == 1)
                    for (char to = '2'; to >= '0'; to--) /* and back */
                        ok(choir_module_to(&j.n->base, cpu(to)));
                if (i == 2)
                    ok(choir_module_to(j.n->layer[3], cpu('1')));
                if (i == 4)
                    ok(choir_module_to(&j.n->base, cpu('2')));
                run_step(&j, i, recorded);
                note_losses(&j, b);
            }
            note_all(&j, b);
            ok(choir_scope_close(j.run));
            assert_same(one, b, "moved on the way");
            free(one);
        }
}

/* --- the norm's tree --- */

enum { ROW = 4, ROWS = 5 };

typedef struct rows {
    choir_module base;
    choir_tensor *row[ROWS];
} rows;

/* Returns the sum of row[i] * in[i], so that in[i] is the gradient of row[i]. */
static choir_tensor *rows_forward(choir_module *self, choir_tensor *const *in, int count)
{
    rows *r = (rows *)self;
    choir_scope *s = choir_tensor_scope(in[0]);
    choir_tensor *sum = choir_zeros(s, CHOIR_F32, CHOIR_SCALAR);
    for (int i = 0; i < count; i++) {
        choir_tensor *w = choir_to(choir_in(s, r->row[i]), choir_tensor_device(sum));
        sum = choir_add(sum, choir_sum(choir_mul(w, in[i])));
    }
    return sum;
}

static const choir_module_class rows_class = {"rows", sizeof(rows), rows_forward, 0};

/* Five parameters of one row each. The row of e is (1 + 2^-24)^2, whose root is halfway between
 * 1 and the next float. Each of the others is 3/8 of a unit of its last place: alone each is
 * lost, four together count. The tree ((a b) (c d)) e adds those four first; an order with e
 * earlier does not. */
static void find_momentum(const char *name, choir_tensor *t, void *arg)
{
    if (arg && strstr(name, "weight"))
        *(choir_tensor **)arg = t;
}

/* A parameter moves away and back to its old memory: the optimizer must still notice that its
 * state did not move with it. */
static void there_and_back(void **state)
{
    float momentum[2][6];
    for (int moved = 0; moved < 2; moved++) {
        choir_scope *run = choir_scope_open(cpu('0'), 3);
        choir_module *layer = choir_nn_linear(run, 6, 1);
        choir_sgd_opts hp = choir_sgd_defaults();
        hp.momentum = 0.9f;
        choir_optim *opt = choir_sgd(run, layer, hp);
        for (uint64_t step = 0; step < 4; step++) {
            choir_scope *s = choir_step_open(run, step);
            choir_tensor *x = choir_full(s, CHOIR_F32, choir_dims(2, 6), 0.5 + (double)step);
            ok(choir_backward(choir_mean(choir_square(choir_forward(layer, x)))));
            ok(choir_optim_step(opt));
            ok(choir_scope_close(s));
            if (!moved || step != 1)
                continue;
            ok(choir_module_to(layer, cpu('1')));
            choir_optim_visit(opt, find_momentum, NULL); /* the state follows */
            ok(choir_device_sync(cpu('1')));
            ok(choir_module_to(layer, cpu('0')));
        }
        choir_tensor *m = NULL;
        choir_optim_visit(opt, find_momentum, &m);
        ok(choir_read(m, momentum[moved], sizeof momentum[moved]));
        ok(choir_scope_close(run));
    }
    assert_memory_equal(momentum[0], momentum[1], sizeof momentum[0]);
}

static void norm_is_one_tree_by_name(void **state)
{
    static const float small[ROW] = {0x1p-27f, 0x1p-28f, 0x1p-28f};
    static const float large[ROW] = {1, 0x1p-12f, 0x1p-12f, 0x1p-24f};
    static const char *const where[] = {
        "00000", "11111", "01010", "10101", "00001", "10000", "01210", "22110"};
    for (size_t i = 0; i < CHOIR_COUNT(where); i++) {
        choir_scope *run = choir_scope_open(cpu('0'), 1), *s = choir_step_open(run, 0);
        rows *r = choir_module_new(run, &rows_class);
        choir_tensor *g[ROWS];
        for (int k = 0; k < ROWS; k++) {
            char name[] = {(char)('a' + k), '\0'};
            choir_module_param(
                &r->base, name, &r->row[k], choir_dims(1, ROW), choir_init_constant(0));
            g[k] = choir_from(s, CHOIR_F32, choir_dims(1, ROW), k < 4 ? small : large);
            ok(choir__param_move(r->row[k]->param, cpu(where[i][k])));
        }
        choir_optim *opt = choir_sgd(run, &r->base, choir_sgd_defaults());
        choir_optim_clip(opt, 0);
        ok(choir_backward(choir_forward_n(&r->base, g, ROWS)));
        ok(choir_optim_step(opt));
        if (choir_item(choir_optim_grad_norm(opt)) != 1 + 0x1p-23)
            fail_msg("placed as %s: %.9g", where[i], choir_item(choir_optim_grad_norm(opt)));
        ok(choir_scope_close(s));
        ok(choir_scope_close(run));
    }
}

/* --- files --- */

static void files_know_no_placement(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(placements); i++)
        for (int recorded = 0; recorded < 2; recorded++) {
            const char *other = placements[CHOIR_COUNT(placements) - 1 - i];
            devices_job a = open_devices_job(placements[i], ADAM_CLIPPED);
            devices_job b = open_devices_job(other, ADAM_CLIPPED);
            choir_train_state s = {.step = 3, .optimizer_steps = 3};
            char hex[2][65];
            for (uint64_t k = 0; k < 3; k++)
                run_step(&a, k, recorded);
            ok(choir_save(&a.n->base, at("net.safetensors")));
            ok(choir_load(&b.n->base, at("net.safetensors")));
            ok(choir_weights_sha256(&a.n->base, NULL, hex[0]));
            ok(choir_weights_sha256(&b.n->base, NULL, hex[1]));
            assert_string_equal(hex[0], hex[1]);
            ok(save_checkpoint(at("ck"), &s, &a.n->base, a.opt, NULL, false));
            ok(choir__checkpoint_load(at("ck/latest"), &b.n->base, b.opt, NULL));
            for (uint64_t k = 3; k < STEPS; k++) {
                run_step(&a, k, recorded);
                run_step(&b, k, false);
            }
            ok(choir_weights_sha256(&a.n->base, NULL, hex[0]));
            ok(choir_weights_sha256(&b.n->base, NULL, hex[1]));
            assert_string_equal(hex[0], hex[1]);
            ok(choir_scope_close(a.run));
            ok(choir_scope_close(b.run));
        }
}

static void init_torch_anywhere(void **state)
{
    char hex[2][65];
    for (int i = 0; i < 2; i++) {
        devices_job j = open_devices_job(i ? "21012" : "00000", SGD);
        ok(choir_module_init_torch(&j.n->base, 5));
        ok(choir_weights_sha256(&j.n->base, NULL, hex[i]));
        ok(choir_scope_close(j.run));
    }
    assert_string_equal(hex[0], hex[1]);
}

/* --- errors --- */

static void break_queue(const void *args)
{
    choir__queue_fail(CHOIR_ERR_NONFINITE, "a kernel on %s failed", "the second device");
}

static void assert_said(const char *part)
{
    assert_says(part);
}

/* An execution error on a device other than the run's is reported when the step closes, or at
 * the latest when the run closes; the next run starts without it. */
static void errors_of_other_devices(void **state)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        devices_job j = open_devices_job("00111", SGD);
        for (uint64_t i = 0; i < 4; i++)
            run_step(&j, i, recorded);
        choir__queue_issue(cpu('1')->queue, break_queue, NULL, 0);
        choir_device_sync(cpu('1'));
        if (recorded) {
            assert_int_equal(choir_step(j.run, one_step, &j), CHOIR_ERR_NONFINITE);
        } else {
            choir_scope *s = choir_step_open(j.run, 4);
            assert_int_equal(choir_scope_close(s), CHOIR_ERR_NONFINITE);
        }
        assert_said("a kernel on the second device failed");
        choir_scope_clear(j.run);
        run_step(&j, 5, false); /* and it goes on */
        choir__queue_issue(cpu('1')->queue, break_queue, NULL, 0);
        assert_int_equal(choir_scope_close(j.run), CHOIR_ERR_NONFINITE);
        ok(choir_device_sync(cpu('1')));
    }
}

static choir_tensor *wrong_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    return choir_forward(n->layer[4], choir_forward(n->layer[3], in[0]));
}

static const choir_module_class wrong_class = {"wrong", sizeof(net), wrong_forward, 0};

static void operands_on_different_devices(void **state)
{
    choir_scope *run = choir_scope_open(cpu('0'), 1);
    net *n = choir_module_new(run, &wrong_class);
    choir_module_child(&n->base, "first", &n->layer[3], choir_nn_linear(run, 3, 4));
    choir_module_child(&n->base, "second", &n->layer[4], choir_nn_linear(run, 4, 2));
    ok(choir_module_to(n->layer[4], cpu('1')));
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *x = choir_zeros(s, CHOIR_F32, choir_dims(5, 3));
    choir_tensor *loss = choir_mean(choir_forward(&n->base, x));
    assert_int_equal(choir_backward(loss), CHOIR_ERR_DEVICE);
    assert_said("cpu:0");
    assert_said("cpu:1");
    assert_said("choir_to");
    assert_said("in module 'second'");
    choir_scope_clear(s);
    choir_scope_close(s);
    ok(choir_module_to(n->layer[4], cpu('0')));
    s = choir_step_open(run, 1);
    choir_tensor *y =
        choir_to(choir_zeros(s, CHOIR_F32, choir_dims(2)), choir_device_find("cpu:8"));
    assert_int_equal(choir_item(choir_sum(y)) == 0, 0);
    assert_int_equal(choir_scope_status(s), CHOIR_ERR_DEVICE);
    assert_said("to: no device 'cpu:8': expected cpu:0 to cpu:2");
    choir_scope_clear(s);
    choir_scope_close(s);
    s = choir_step_open(run, 2); /* the program goes on */
    ok(choir_backward(
        choir_mean(choir_forward(&n->base, choir_zeros(s, CHOIR_F32, choir_dims(5, 3))))));
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(same_bits_after_moves),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(norm_is_one_tree_by_name),
        cmocka_unit_test(files_know_no_placement),
        cmocka_unit_test(init_torch_anywhere),
        cmocka_unit_test(errors_of_other_devices),
        cmocka_unit_test(operands_on_different_devices),
    };
    return cmocka_run_group_tests(tests, devices, remove_all);
}
