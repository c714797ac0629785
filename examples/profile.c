/* The time of a step: a table of its kernels, and a trace for ui.perfetto.dev. */
#include <stdio.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 256, 512), choir_nn_relu(run), choir_nn_linear(run, 512, 10));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    choir_tensor *x = choir_randn(run, choir_dims(64, 256), "x");
    choir_tensor *y = choir_randn(run, choir_dims(64, 10), "y");
    choir_check(choir_scope_status(run));

    choir_trace *trace = choir_trace_new(0);
    choir_trace_device(trace, choir_device_find("cpu:0"));
    for (int step = 0; step < 20; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *out = choir_forward(net, choir_in(s, x));
        choir_check(choir_backward(choir_mse_loss(out, y)));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
    choir_trace_print(trace, stdout, 0); /* waits for the steps */
    if (argc > 1)
        choir_check(choir_trace_write(trace, argv[1], 0));
    choir_trace_free(trace);
    choir_check(choir_scope_close(run));
}
