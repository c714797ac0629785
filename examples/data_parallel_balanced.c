/* Outputs and losses stay on their devices:  ./data_parallel_balanced [balanced | weighted 2:3]
 */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_tensor *criterion(choir_tensor *out, choir_tensor *target, void *arg)
{
    return arg ? NULL : choir_cross_entropy(out, target); /* on each device */
}

int main(int argc, char **argv)
{
    setenv("CHOIR_CPU_DEVICES", "2", 1);
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_linear(run, 64, 10000); /* a large vocabulary */
    choir_data_parallel_opts opts = choir_data_parallel_defaults();
    opts.weights = argc > 2 ? (double[]){2, 3} : NULL; /* shares of a batch */
    choir_module *dp = choir_data_parallel_balanced(run, net, opts);
    choir_optim *optim = choir_adamw(run, dp, choir_adamw_defaults()); /* state on cpu:0 */
    for (uint64_t step = 0; step < 3; step++) {
        choir_scope *s = choir_step_open(run, step);
        choir_tensor *x = choir_randn(s, choir_dims(512, 64), "x"), *y = choir_argmax(x), *loss;
        if (argc == 1) { /* one loss, with all scores on cpu:0 */
            loss = choir_cross_entropy(choir_forward(dp, x), y);
        } else { /* two losses; backward gives the gradient of their mean */
            choir_shards *out = choir_forward_shards(dp, &x, 1);
            loss = choir_criterion_parallel(out, y, criterion, NULL);
        }
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(optim));
        choir_check(choir_scope_close(s));
    }
    choir_device_stats a, b;
    choir_device_get_stats(choir_device_find("cpu:0"), &a);
    choir_device_get_stats(choir_device_find("cpu:1"), &b);
    printf("%s: %zu and %zu KiB at most\n", argc > 1 ? argv[1] : "gathered",
        a.bytes_peak / 1024, b.bytes_peak / 1024);
    choir_check(choir_scope_close(run));
}
