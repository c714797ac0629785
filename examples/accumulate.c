/* Accumulation: a batch of 256 in M micro-batches needs less memory; M again gives the same bits. */
#include <stdio.h>
#include <string.h>
#include <choir/choir.h>

/* Ten steps; the loss of the last one. */
static void train(int64_t m)
{
    choir_device_reset_peak(choir_device_find("cpu:0"));
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_dataset *points;
    choir_check(choir_dataset_random(1024, choir_dims(64), CHOIR_SCALAR, 10, 7, &points));
    choir_loader_opts order = choir_loader_defaults();
    order.batch_size = 256, order.microbatches = m;
    choir_loader *data = choir_loader_new(run, points, order);
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 64, 512), choir_nn_gelu(run),
        choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 512, 10));
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    float loss = 0;
    for (uint64_t step = 0; step < 10; step++) {
        choir_scope *s = choir_step_open(run, step);
        loss = 0;
        for (int64_t i = 0; i < m; i++) {
            choir_scope *micro = choir_micro_open(s, i);
            choir_batch b; /* x (256/m, 64), y (256/m) */
            choir_check(choir_loader_next(data, micro, &b));
            choir_tensor *part = choir_cross_entropy(choir_forward(net, b.x), b.y);
            choir_check(choir_backward(part)); /* one more leaf of the sum of gradients */
            loss += (float)choir_item(part) / (float)m;
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt)); /* uses their mean */
        choir_check(choir_scope_close(s));
    }
    uint32_t bits;
    ...
}
