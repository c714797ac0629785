/* Hooks observe a module's inputs and outputs, and gradients in backward; change_output and the
 * like return others. */
#include <stdio.h>
#include <choir/choir.h>

static void show(const char *what, const char *where, choir_tensor *t)
{
    printf("%-8s  %-8s  rms %.4f\n", what, where,
        choir_item(choir_sqrt(choir_mean(choir_square(t)))));
}

static void on_forward(choir_module *module, choir_tensor *out, void *arg)
{
    show("forward", *module->path ? module->path : arg, out);
}

static void on_backward(choir_module *module, choir_tensor *grad_out, void *arg)
{
    show("backward", *module->path ? module->path : arg, grad_out);
}

static void on_grad(choir_tensor *t, choir_tensor *grad, void *name)
{
    show(t ? "gradient" : "", name, grad);
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    choir_module *first = choir_nn_linear(run, 8, 16), *net;
    net = choir_nn_sequential(run, first, choir_nn_tanh(run), choir_nn_linear(run, 16, 1));
    choir_module_hooks hooks = {.after_forward = on_forward, .before_backward = on_backward};
    choir_module_hook(first, hooks, NULL);
    choir_module_hook(net, hooks, "the net");
    choir_on_grad(choir_module_find(net, "2.weight"), on_grad, "2.weight");
    choir_tensor *x = choir_randn(s, choir_dims(4, 8), "x");
    choir_check(choir_backward(choir_mean(choir_square(choir_forward(net, x)))));
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
}
