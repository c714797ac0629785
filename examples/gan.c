/* A GAN: two networks, each with an optimizer of its own. The generator learns to draw from a
 * normal distribution of mean 3 and variance 0.25; the discriminator tells its samples apart.
 */
#include <stdio.h>
#include <choir/choir.h>

enum { N = 256 };

static choir_tensor *judge(choir_scope *s, choir_module *d, choir_tensor *x, double as)
{
    choir_tensor *label = choir_full(s, CHOIR_F32, choir_dims(N, 1), as);
    return choir_bce_with_logits_loss(choir_forward(d, x), label, NULL, CHOIR_LOSS_MEAN);
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_module *g = choir_nn_linear(run, 1, 1);
    choir_module *d = choir_nn_sequential(
        run, choir_nn_linear(run, 1, 16), choir_nn_tanh(run), choir_nn_linear(run, 16, 1));
    choir_adamw_opts hp = {.lr = 1e-2f, .beta1 = 0.5f, .beta2 = 0.9f, .eps = 1e-8f};
    choir_optim *opt_g = choir_adam(run, g, hp), *opt_d = choir_adam(run, d, hp);
    for (uint64_t step = 0; step < 2000; step++) {
        choir_scope *s = choir_step_open(run, step);
        choir_tensor *real = choir_affine(choir_randn(s, choir_dims(N, 1), "real"), 0.5, 3);
        choir_tensor *fake = choir_forward(g, choir_randn(s, choir_dims(N, 1), "z"));
        choir_tensor *seen = choir_keep(s, fake); /* leads to no gradient of the generator */
        choir_check(choir_backward(choir_add(judge(s, d, real, 1), judge(s, d, seen, 0))));
        choir_check(choir_optim_step(opt_d));
        choir_module_freeze(d, true); /* this loss leaves no gradient in the discriminator */
        choir_check(choir_backward(judge(s, d, fake, 1)));
        choir_module_freeze(d, false);
        choir_check(choir_optim_step(opt_g));
        if (step % 400 == 399)
            printf("mean %.2f, variance %.2f\n", choir_item(choir_mean(seen)),
                choir_item(choir_var_dim(seen, 0, 1, false)));
        choir_check(choir_scope_close(s));
    }
    return choir_scope_close(run) == CHOIR_OK ? 0 : 1;
}
