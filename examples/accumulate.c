/* Accumulation: a batch of 512 in M micro-batches needs less memory; M again gives the same bits. */
#include <stdio.h>
#include <choir/choir.h>

static void train(int64_t m)
{
    choir_device *cpu = choir_device_find("cpu:0");
    choir_scope *run = choir_scope_open(cpu, 42);
    choir_dataset *points;
    choir_check(choir_dataset_random(2048, choir_dims(64), CHOIR_SCALAR, 10, 7, &points));
    choir_loader_opts order = choir_loader_defaults();
    order.batch_size = 512, order.microbatches = m;
    choir_loader *data = choir_loader_new(run, points, order);
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 64, 512), choir_nn_gelu(run),
        choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 512, 10));
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    choir_device_stats memory;
    choir_device_reset_peak(cpu);
    double loss = 0;
    for (uint64_t step = 0; step < 10; step++, loss = step < 10 ? 0 : loss) {
        choir_scope *s = choir_step_open(run, step);
        for (int64_t i = 0; i < m; i++) {
            choir_scope *micro = choir_micro_open(s, i);
            choir_batch b; /* x (512/m, 64), y (512/m) */
            choir_check(choir_loader_next(data, micro, &b));
            choir_tensor *part = choir_cross_entropy(choir_forward(net, b.x), b.y);
            choir_check(choir_backward(part)); /* one more leaf of the tree of gradients */
            loss += choir_item(part) / (double)m;
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt)); /* out of their mean */
        choir_check(choir_scope_close(s));
    }
    choir_device_get_stats(cpu, &memory);
    printf("M = %2lld  peak %6.2f MiB  loss %a\n", (long long)m,
        (double)memory.bytes_peak / (1 << 20), loss);
    choir_check(choir_scope_close(run));
    choir_dataset_free(points);
}

int main(void)
{
    train(1), train(4), train(4), train(16);
}
