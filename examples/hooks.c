/* Hooks: looking at what goes through a module forward, and at gradients on their way back. */
#include <stdio.h>
#include <choir/choir.h>

static double rms(choir_tensor *t)
{
    return choir_item(choir_sqrt(choir_mean(choir_square(t))));
}

static void on_forward(choir_module *module, choir_tensor *out, void *arg)
{
    (void)arg;
    printf("forward   %-10s output rms %.4f\n", module->path, rms(out));
}

static void on_backward(choir_module *module, choir_tensor *grad_out, void *arg)
{
    (void)arg;
    printf("backward  %-10s gradient rms %.4f\n", module->path, rms(grad_out));
}

static void on_grad(choir_tensor *t, choir_tensor *grad, void *name)
{
    (void)t;
    printf("gradient  %-10s rms %.4f\n", (const char *)name, rms(grad));
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    choir_module *a = choir_nn_linear(run, 8, 16), *b = choir_nn_linear(run, 16, 1);
    choir_module *net = choir_nn_sequential(run, a, choir_nn_tanh(run), b);
    choir_module_hooks both = {.after_forward = on_forward, .before_backward = on_backward};
    choir_module_hook(a, both, NULL);
    choir_module_hook(b, both, NULL);
    choir_on_grad(choir_module_find(net, "0.weight"), on_grad, "0.weight");
    choir_tensor *x = choir_randn(s, choir_dims(4, 8), "x"), *y = choir_randn(s, choir_dims(4, 1), "y");
    choir_check(choir_backward(choir_mse_loss(choir_forward(net, x), y)));
    choir_check(choir_scope_close(s));
    return choir_scope_close(run);
}
