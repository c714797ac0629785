/* Two networks with an optimizer each, in the orders in which PyTorch's users write their
 * loops: which of them are right, which need choir_optim_zero or choir_module_freeze, and the
 * errors of those that have neither. A program is a string of what a step does:
 *
 *   d, g     backward of the discriminator's, the generator's loss
 *   r, f     backward of the real, the fake half of the discriminator's loss
 *   a        backward of the discriminator's loss through the generator, which is not detached
 *   b        backward of a loss of both networks
 *   D, G     the optimizer's step
 *   x, y     choir_optim_zero of the discriminator's, the generator's optimizer
 *   -, +     freezes, thaws the discriminator */
#include <math.h>

#include <choir/choir.h>

#include "check.h"

enum { ROWS = 8, WIDTH = 4, WEIGHTS = 2 * (2 * WIDTH + WIDTH) + 2 * WIDTH + 2 + WIDTH + 1 };

typedef struct gan {
    choir_scope *run;
    choir_module *g, *d;
    choir_optim *opt_g, *opt_d;
    choir_scaler *scaler;       /* NULL: none */
    choir_tensor *real, *noise; /* (ROWS, 2) */
    const char *program;
    float weights[WEIGHTS];
} gan;

static choir_module *network(choir_scope *run, int64_t out)
{
    return choir_nn_sequential(run, choir_nn_linear(run, 2, WIDTH), choir_nn_tanh(run),
        choir_nn_linear(run, WIDTH, out));
}

static void open_gan(gan *n, const char *program)
{
    choir_adamw_opts hp = choir_adam_defaults();
    hp.lr = 0.05f;
    *n = (gan){.run = choir_scope_open(NULL, 3), .program = program};
    n->g = network(n->run, 2);
    n->d = network(n->run, 1);
    n->real = choir_randn(n->run, choir_dims(ROWS, 2), "real");
    n->noise = choir_randn(n->run, choir_dims(ROWS, 2), "noise");
    n->opt_g = choir_adam(n->run, n->g, hp);
    n->opt_d = choir_adam(n->run, n->d, hp);
    ok(choir_scope_status(n->run));
}

static void copy_out(const char *name, choir_tensor *t, void *arg)
{
    float **to = arg;
    int64_t count = choir_tensor_count(t);
    ok(choir_read(t, *to, (size_t)count * sizeof(float)));
    *to += count;
}

static void close_gan(gan *n)
{
    float *to = n->weights;
    choir_scope_clear(n->run);
    choir_module_visit(n->g, false, copy_out, &to);
    choir_module_visit(n->d, false, copy_out, &to);
    assert_true(to <= n->weights + WEIGHTS);
    ok(choir_scope_close(n->run));
}

/* --- the parts of a program --- */

static choir_tensor *judged(gan *n, choir_scope *s, choir_tensor *x, double as)
{
    choir_tensor *label = choir_full(s, CHOIR_F32, choir_dims(ROWS, 1), as);
    return choir_bce_with_logits_loss(choir_forward(n->d, x), label, NULL, CHOIR_LOSS_MEAN);
}

static choir_status walk_back(gan *n, choir_tensor *loss)
{
    return choir_backward(n->scaler ? choir_scaler_scale(n->scaler, loss) : loss);
}

static choir_tensor *loss_of(gan *n, choir_scope *s, char what)
{
    choir_tensor *real = choir_keep(s, n->real);
    choir_tensor *fake = choir_forward(n->g, choir_keep(s, n->noise));
    choir_tensor *apart = what == 'd' || what == 'f' ? choir_keep(s, fake) : fake;
    switch (what) {
    case 'g': return judged(n, s, fake, 1);
    case 'r': return judged(n, s, real, 1);
    case 'f': return judged(n, s, apart, 0);
    case 'b': return choir_add(judged(n, s, real, 1), choir_mse_loss(fake, real));
    default: return choir_add(judged(n, s, real, 1), judged(n, s, apart, 0));
    }
}

static choir_status step_by(gan *n, choir_optim *opt)
{
    return n->scaler ? choir_scaler_step(n->scaler, opt) : choir_optim_step(opt);
}

static choir_status do_part(gan *n, choir_scope *s, char part)
{
    switch (part) {
    case 'D': return step_by(n, n->opt_d);
    case 'G': return step_by(n, n->opt_g);
    case 'x': return choir_optim_zero(n->opt_d);
    case 'y': return choir_optim_zero(n->opt_g);
    case '-':
    case '+': choir_module_freeze(n->d, part == '-'); return CHOIR_OK;
    default: return walk_back(n, loss_of(n, s, part));
    }
}

static choir_status one_step(choir_scope *s, void *arg)
{
    gan *n = arg;
    choir_status status = CHOIR_OK;
    for (const char *part = n->program; *part && status == CHOIR_OK; part++)
        status = do_part(n, s, *part);
    return status == CHOIR_OK && n->scaler ? choir_scaler_update(n->scaler) : status;
}

/* Runs the program for some steps, or until its first error; returns the number of steps. */
static int run_for(gan *n, int steps)
{
    for (int i = 0; i < steps; i++) {
        choir_scope *s = choir_step_open(n->run, (uint64_t)i);
        choir_status status = one_step(s, n);
        choir_scope_close(s);
        if (status != CHOIR_OK)
            return i;
    }
    return steps;
}

static void train(gan *n, const char *program)
{
    open_gan(n, program);
    int steps = run_for(n, 4);
    if (steps != 4)
        fail_msg("%s: step %d: %s", program, steps, choir_error_message());
    close_gan(n);
}

static void assert_equal_programs(const char *a, const char *b)
{
    gan one, other;
    train(&one, a);
    train(&other, b);
    if (memcmp(one.weights, other.weights, sizeof one.weights))
        fail_msg("%s and %s give other weights", a, b);
}

static void assert_refused(const char *program, int step, const char *words)
{
    gan n;
    open_gan(&n, program);
    int steps = run_for(&n, 4);
    if (steps != step || !strstr(choir_error_message(), words))
        fail_msg("%s: step %d, not %d: %s", program, steps, step, choir_error_message());
    close_gan(&n);
}

/* --- loops --- */

static void test_cures_are_equal(void **state)
{
    assert_equal_programs("dD-g+G", "dDgGx");  /* discriminator first */
    assert_equal_programs("dD-g+G", "xdDygG"); /* zero_grad before each backward */
    assert_equal_programs("dD-g+G", "dDgxG");
    assert_equal_programs("-g+GdD", "gGxdD"); /* generator first */
    assert_equal_programs("dDdD-g+G", "xdDxdDgG");
    assert_equal_programs("-g+dDG", "gxdDG");    /* both backwards, then both steps */
    assert_equal_programs("rfD-g+G", "xrfDygG"); /* a backward for each half of the loss */
    assert_equal_programs("dD-g+G", "aDy-g+G");  /* not detached: the generator has the leaf */
    assert_equal_programs("dD-g+G", "dD-g+Gxx");
}

static void test_mixed_sums_are_refused(void **state)
{
    const char *words =
        "parameter 0.bias (4) of module 'sequential' has gradients from before and from after "
        "another optimizer's step: choir_optim_zero,";
    assert_refused("rDgG", 1, words);
    assert_refused("gGrD", 0, words);
    assert_refused("fDgG", 1, "choir_module_freeze");
    assert_refused("aDgG", 0, words); /* the generator's sum */
    assert_refused("bDbG", 0, words);
    /* the discriminator is used once in one loss, twice in the other */
    words =
        "parameter 0.weight of module 'sequential' is used 2 times in this micro-batch, 1 in "
        "the one before; another optimizer has stepped since: if its loss";
    assert_refused("dDgG", 1, words);
    assert_refused("gGdD", 0, words);
    assert_refused("gd", 0, "1 in the one before");
}

static void test_one_round_serves_both(void **state)
{
    assert_equal_programs("bGD", "bDG");
    assert_equal_programs("bbGD", "bbDG");
    assert_equal_programs("gGD", "gDG");
    gan n;
    train(&n, "-gg+Grr-g+G"); /* what no optimizer steps may mix */
    train(&n, "xbGbGbGD");    /* begun by choir_optim_zero: as the program has it */
}

static void test_goes_on_after_the_error(void **state)
{
    gan one, other;
    open_gan(&one, "gGrD");
    assert_int_equal(run_for(&one, 1), 0);
    choir_scope_clear(one.run);
    one.program = "xrD";
    assert_int_equal(run_for(&one, 1), 1);
    one.program = "D";
    assert_int_equal(run_for(&one, 1), 0);
    assert_says("no backward since the last step");
    choir_scope_clear(one.run);
    one.program = "rxD";
    assert_int_equal(run_for(&one, 1), 0);
    assert_says("no backward since the last step");
    assert_null(choir_grad(choir_module_find(one.d, "0.weight")));
    close_gan(&one);
    open_gan(&other, "-g+GrD");
    assert_int_equal(run_for(&other, 1), 1);
    close_gan(&other);
    assert_memory_equal(one.weights, other.weights, sizeof one.weights);
}

static void test_recorded(void **state)
{
    static const char *const programs[] = {"dDgGx", "xdDygG", "xrDgG", "dD-g+G"};
    for (int p = 0; p < 4; p++) {
        gan plain, recorded;
        open_gan(&plain, programs[p]);
        assert_int_equal(run_for(&plain, 7), 7);
        close_gan(&plain);
        open_gan(&recorded, programs[p]);
        for (int i = 0; i < 7; i++)
            ok(choir_step(recorded.run, one_step, &recorded));
        close_gan(&recorded);
        assert_memory_equal(plain.weights, recorded.weights, sizeof plain.weights);
    }
}

static void test_scaled(void **state)
{
    gan plain, scaled;
    train(&plain, "dD-g+G");
    open_gan(&scaled, "dDgGx");
    scaled.scaler = choir_scaler_new(scaled.run, choir_scaler_defaults());
    assert_int_equal(run_for(&scaled, 4), 4);
    /* gradients that are dropped after they were unscaled leave no trace */
    choir_scope *s = choir_step_open(scaled.run, 4);
    ok(do_part(&scaled, s, 'd'));
    ok(choir_scaler_unscale(scaled.scaler, scaled.opt_d));
    ok(choir_optim_zero(scaled.opt_d));
    ok(do_part(&scaled, s, 'd'));
    ok(choir_scaler_unscale(scaled.scaler, scaled.opt_d));
    assert_int_not_equal(choir_scaler_unscale(scaled.scaler, scaled.opt_d), CHOIR_OK);
    choir_tensor *g = choir_grad(choir_module_find(scaled.d, "2.bias"));
    assert_true(fabs(choir_item(g)) < 10); /* of a scale of 65536 */
    choir_scope_close(s);
    close_gan(&scaled);
    assert_memory_equal(plain.weights, scaled.weights, sizeof plain.weights);
}

/* --- two optimizers, and one sum of gradients --- */

/* Parameters that were in a backward before their optimizers were made are in one book. */
static void open_shared(gan *n)
{
    open_gan(n, "b");
    n->g = network(n->run, 2);
    n->d = network(n->run, 1);
    assert_int_equal(run_for(n, 1), 1);
    n->opt_g = choir_sgd(n->run, n->g, choir_sgd_defaults());
    n->opt_d = choir_sgd(n->run, n->d, choir_sgd_defaults());
}

static void test_one_book(void **state)
{
    gan n, apart;
    open_shared(&n);
    n.program = "GD"; /* of the backward before */
    assert_int_equal(run_for(&n, 1), 1);
    n.program = "bDGgGxrDbGD";
    assert_int_equal(run_for(&n, 2), 2);
    n.program = "bx";
    assert_int_equal(run_for(&n, 1), 0);
    assert_says("together with the gradients of 4 others: call it after");
    close_gan(&n);
    open_shared(&n);
    n.program = "GDgGrD"; /* the second backward has overwritten the first */
    assert_int_equal(run_for(&n, 1), 0);
    assert_says("has gradients from before and from after");
    close_gan(&n);
    open_shared(&n);
    n.program = "GDgGxrD";
    assert_int_equal(run_for(&n, 1), 1);
    close_gan(&n);
    open_gan(&apart, "b");
    apart.g = network(apart.run, 2);
    apart.d = network(apart.run, 1);
    apart.opt_g = choir_sgd(apart.run, apart.g, choir_sgd_defaults());
    apart.opt_d = choir_sgd(apart.run, apart.d, choir_sgd_defaults());
    assert_int_equal(run_for(&apart, 1), 1);
    apart.program = "GDgGxrD";
    assert_int_equal(run_for(&apart, 1), 1);
    close_gan(&apart);
    assert_memory_equal(n.weights, apart.weights, sizeof n.weights);
}

/* --- leaves --- */

static void square_backward(choir_scope *s, choir_tensor *w)
{
    choir_tensor *one = choir_full(s, CHOIR_F32, choir_dims(2), 1);
    choir_status status = choir_backward(choir_mean(choir_mul(choir_mul(one, w), w)));
    ok(status);
}

static void test_leaves(void **state)
{
    float two[2] = {3, -1}, got[2];
    choir_scope *run = choir_scope_open(NULL, 1), *s = choir_step_open(run, 0);
    choir_tensor *w = choir_require_grad(choir_from(run, CHOIR_F32, choir_dims(2), two));
    choir_module *net = choir_nn_linear(run, 2, 1);
    for (int i = 0; i < 3; i++) {
        ok(choir_zero_grad(w));
        assert_null(choir_grad(w));
        square_backward(s, w);
        ok(choir_read(choir_grad(w), got, sizeof got));
        assert_memory_equal(got, two, sizeof got); /* d mean(w^2) / dw = w */
    }
    square_backward(s, w);
    ok(choir_read(choir_grad(w), got, sizeof got));
    assert_true(got[0] == 6 && got[1] == -2);
    assert_int_not_equal(choir_zero_grad(choir_module_find(net, "weight")), CHOIR_OK);
    assert_says("weight is a parameter, whose gradient choir_optim");
    assert_int_not_equal(choir_zero_grad(choir_mul(choir_keep(s, w), w)), CHOIR_OK);
    assert_says("expected a leaf, got the result of");
    choir_scope_close(s);
    choir_scope_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cures_are_equal),
        cmocka_unit_test(test_mixed_sums_are_refused),
        cmocka_unit_test(test_one_round_serves_both),
        cmocka_unit_test(test_goes_on_after_the_error),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_one_book),
        cmocka_unit_test(test_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
