/* A program outside the repository: it fits y = 2 x0 - x1 + 3 with the installed files
 * alone. */
#include <stdio.h>
#include <choir/choir.h>

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_linear(run, 2, 1);
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.5f;
    choir_optim *opt = choir_sgd(run, net, hp);
    float points[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, values[4][1] = {{3}, {2}, {5}, {4}};
    double value = 1;

    for (uint64_t step = 0; step < 200; step++) {
        choir_scope *s = choir_step_open(run, step);
        choir_tensor *x = choir_from(s, CHOIR_F32, choir_dims(4, 2), points);
        choir_tensor *y = choir_from(s, CHOIR_F32, choir_dims(4, 1), values);
        choir_tensor *loss = choir_mse_loss(choir_forward(net, x), y);
        choir_tensor *kept = choir_keep(s, loss);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        value = choir_item(kept);
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
    printf("loss %g\n", value);
    return value < 1e-6 ? 0 : 1;
}
