/* Processes that train one model without locks:  ./hogwild [PROCESSES] [FOLDER of MNIST] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_dataset *d; /* the processes are forks and inherit it */
static int train(int rank, int world, void *model)
{
    choir_module *net = model;                     /* inherited; its weights are shared */
    choir_loader_opts o = choir_loader_defaults(); /* 16 of each batch are this process's */
    o.batch_size = 16 * world, o.microbatches = world, o.micro_first = rank, o.micro_count = 1;
    choir_loader *data = choir_loader_new(net->run, d, o);
    choir_optim *opt = choir_adam(net->run, net, choir_adam_defaults());
    for (int step = 0; step < 200; step++) {
        choir_scope *s = choir_step_open(net->run, (uint64_t)step);
        choir_batch b;
        choir_check(choir_loader_next(data, s, &b));
        choir_check(choir_backward(choir_cross_entropy(choir_forward(net, b.x), b.y)));
        choir_check(choir_optim_step(opt)); /* this updates the shared weights */
        choir_check(choir_scope_close(s));
    }
    return 0;
}

int main(int argc, char **argv)
{
    choir_check(argc > 2 ? choir_dataset_idx(argv[2], CHOIR_TRAIN, &d)
                         : choir_dataset_random(240, choir_dims(784), CHOIR_SCALAR, 10, 7, &d));
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_sequential(run, choir_nn_flatten(run),
        choir_nn_linear(run, 784, 128), choir_nn_relu(run), choir_nn_linear(run, 128, 10));
    choir_check(choir_module_share_memory(net)); /* before the processes start */
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 4, train, net));
    choir_scope *s = choir_step_open(run, 0);
    choir_batch b; /* the whole set, with the trained weights */
    choir_check(choir_loader_next(choir_loader_shuffled(run, d, 240), s, &b));
    printf("loss %.4f\n", choir_item(choir_cross_entropy(choir_forward(net, b.x), b.y)));
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
}
