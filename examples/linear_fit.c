/* Fits a line to noisy points by stochastic gradient descent: y = 3 x - 2. */
#include <stdio.h>
#include <choir/choir.h>

enum { POINTS = 64 };

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *line = choir_nn_linear(run, 1, 1); /* a weight and a bias */
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.1f;
    choir_optim *opt = choir_sgd(run, line, hp);
    choir_check(choir_scope_status(run)); /* covers both constructors */

    for (int step = 0; step < 100; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_rand(s, choir_dims(POINTS, 1), "x", -1, 1); /* new every step */
        choir_tensor *noise = choir_scale(choir_randn(s, choir_dims(POINTS, 1), "noise"), 0.1);
        choir_tensor *y = choir_add(choir_affine(x, 3, -2), noise);

        choir_tensor *loss = choir_mse_loss(choir_forward(line, x), y);
        choir_check(choir_backward(loss)); /* there is no zero_grad: the step is a scope */
        choir_check(choir_optim_step(opt));
        if (step % 20 == 0 || step == 99)
            printf("step %2d  loss %.4f\n", step, choir_item(loss));
        choir_check(choir_scope_close(s));
    }
    printf("y = %.2f x + %.2f\n", choir_item(choir_module_find(line, "weight")),
        choir_item(choir_module_find(line, "bias")));
    choir_check(choir_scope_close(run));
    return 0;
}
