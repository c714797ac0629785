/* Hooks: looking at what goes through a module, and at gradients on their way back. */
#include <stdio.h>
#include <choir/choir.h>

static void show(const char *what, const char *where, choir_tensor *t)
{
    printf("%-8s  %-8s  rms %.4f\n", what, where,
        choir_item(choir_sqrt(choir_mean(choir_square(t)))));
}

static void on_forward(choir_module *module, choir_tensor *out, void *what)
{
    show(what, module->path, out);
}

static void on_backward(choir_module *module, choir_tensor *grad_out, void *what)
{
    (void)what;
    show("backward", module->path, grad_out);
}

static void on_grad(choir_tensor *t, choir_tensor *grad, void *name)
{
    (void)t;
    show("gradient", name, grad);
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    choir_module *net =
        choir_nn_sequential(run, choir_nn_linear(run, 8, 16), choir_nn_tanh(run));
    choir_module *last = choir_nn_linear(run, 16, 1),
                 *all = choir_nn_sequential(run, net, last);
    choir_module_hooks hooks = {.after_forward = on_forward, .before_backward = on_backward};
    choir_module_hook(net, hooks, "forward"), choir_module_hook(last, hooks, "forward");
    choir_on_grad(choir_module_find(all, "1.weight"), on_grad, "1.weight");
    choir_tensor *x = choir_randn(s, choir_dims(4, 8), "x");
    choir_check(choir_backward(choir_mean(choir_square(choir_forward(all, x)))));
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
}
