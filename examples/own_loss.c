/* A user's loss is a function of ops: Huber's (1964), which is robust against outliers. */
#include <stdio.h>
#include <choir/choir.h>

/* r^2/2 for |r| <= d, else d (|r| - d/2): with q = min(|r|, d) both are q (|r| - q/2). */
static choir_tensor *huber(choir_tensor *y, choir_tensor *target, double d)
{
    choir_tensor *r = choir_abs(choir_sub(y, target));
    choir_tensor *q = choir_sub(r, choir_relu(choir_affine(r, 1, -d)));
    return choir_mean(choir_mul(q, choir_sub(r, choir_scale(q, 0.5))));
}

/* Returns the slope found for y = 2 x, with two wrong points. */
static double fit(bool robust)
{
    const float xs[] = {-4, -3, -2, -1, 1, 2, 3, 4}, ys[] = {-8, -6, -4, -2, 2, 4, -60, -80};
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *line = choir_nn_linear_with(run, 1, 1, false, choir_init_constant(0));
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.05f;
    choir_optim *opt = choir_sgd(run, line, hp);
    for (uint64_t step = 0; step < 300; step++) {
        choir_scope *s = choir_step_open(run, step);
        choir_tensor *x = choir_from(s, CHOIR_F32, choir_dims(8, 1), xs);
        choir_tensor *y = choir_from(s, CHOIR_F32, choir_dims(8, 1), ys);
        choir_tensor *out = choir_forward(line, x);
        choir_check(choir_backward(robust ? huber(out, y, 1) : choir_mse_loss(out, y)));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
    double slope = choir_item(choir_module_find(line, "weight"));
    choir_check(choir_scope_close(run));
    return slope;
}

int main(void)
{
    printf("slope by mean squares %.2f, by Huber's loss %.2f\n", fit(false), fit(true));
    return 0;
}
