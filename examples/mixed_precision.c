/* Mixed precision: products in f16, weights in f32, gradients scaled so that none is lost. */
#include <stdio.h>
#include <choir/choir.h>

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 16, 64), choir_nn_gelu(run), choir_nn_linear(run, 64, 4));
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    choir_optim_clip(optim, 1);
    choir_autocast(run, CHOIR_F16); /* with CHOIR_BF16 nothing below but choir_optim_step */
    choir_scaler *scaler = choir_scaler_new(run, choir_scaler_defaults());
    choir_check(choir_scope_status(run));

    for (int step = 0; step < 60; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_randn(s, choir_dims(32, 16), "x");
        if (step == 20)
            x = choir_scale(
                x, 1e4); /* a batch whose gradients overflow: that step is skipped */
        choir_tensor *loss = choir_mean(choir_square(choir_forward(net, x)));
        loss = choir_scaler_scale(scaler, loss); /* its value stays; its gradients are scaled */
        choir_check(choir_backward(loss));
        choir_check(choir_scaler_step(scaler, optim));
        choir_check(choir_scaler_update(scaler));
        choir_scaler_state state;
        choir_check(choir_scaler_get(scaler, &state));
        if (step % 10 == 0 || step == 59)
            printf("step %2d  loss %10.4f  scale %5.0f  skipped %lld\n", step, choir_item(loss),
                (double)state.scale, (long long)state.skipped[0]);
        choir_check(choir_scope_close(s));
    }
    return choir_scope_close(run);
}
