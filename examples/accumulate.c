/* Accumulation: a batch of 512 in M micro-batches needs less memory. */
#include <stdio.h>
#include <choir/choir.h>

static void train(choir_dataset *points, int64_t m)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_loader_opts order = {.batch_size = 512, .microbatches = m, .shuffle = true};
    choir_loader *data = choir_loader_new(run, points, order);
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 64, 512),
        choir_nn_gelu(run), choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 512, 10));
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    choir_device_stats stats;
    choir_device_reset_peak(choir_device_find("cpu:0"));
    double loss = 0;
    for (int step = 0; step < 10; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        for (int64_t i = 0; i < m; i++) {
            choir_scope *micro = choir_micro_open(s, i);
            choir_batch b; /* x (512/m, 64), y (512/m) */
            choir_check(choir_loader_next(data, micro, &b));
            choir_tensor *part = choir_cross_entropy(choir_forward(net, b.x), b.y);
            choir_check(choir_backward(part)); /* one more leaf of the tree of gradients */
            loss += choir_item(part) / (double)(10 * m);
            choir_check(choir_scope_close(micro)); /* its memory serves the next */
        }
        choir_check(choir_optim_step(opt)); /* uses the mean of the gradients */
        choir_check(choir_scope_close(s));
    }
    choir_device_get_stats(choir_device_find("cpu:0"), &stats);
    printf("M = %2d  %5zu KiB  mean loss %a\n", (int)m, stats.bytes_peak / 1024, loss);
    choir_check(choir_scope_close(run));
}

int main(void)
{
    static choir_dataset *points;
    choir_check(choir_dataset_random(2048, choir_dims(64), CHOIR_SCALAR, 10, 7, &points));
    train(points, 1), train(points, 4), train(points, 4), train(points, 16);
}
