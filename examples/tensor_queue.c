/* Several processes make batches for one that trains:  ./tensor_queue [PROCESSES] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static int work(int rank, int world, void *queue)
{
    choir_scope *run = choir_scope_open(NULL, (uint64_t)rank);
    choir_tensor *x; /* (32, 3) */
    for (int i = 0; rank > 0 && i < 1000; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        x = choir_randn(s, choir_dims(32, 3), "x");
        choir_check(choir_tensor_share_memory(x)); /* otherwise put would copy it, once */
        choir_check(choir_tensor_queue_put(queue, &x, 1, -1));
        choir_check(choir_scope_close(s)); /* the memory stays until its last user frees it */
    }
    if (rank > 0)
        return choir_scope_close(run);
    choir_module *net = choir_nn_linear(run, 3, 3);
    choir_optim *opt = choir_adam(run, net, choir_adam_defaults());
    choir_scope *s = choir_step_open(run, 0);
    for (; !choir_tensor_queue_get(queue, s, &x, 1, -1); s = choir_step_open(run, 0)) {
        choir_tensor *loss = choir_mse_loss(choir_forward(net, x), x);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (choir_optim_steps(opt) % 1000 == 0)
            printf("batches of %d processes, loss %.5f\n", world - 1, choir_item(loss));
        choir_check(choir_scope_close(s));
    }
    printf("%s\n", choir_error_message()); /* explains why the queue ended */
    return choir_scope_close(s) || choir_scope_close(run);
}

int main(int argc, char **argv)
{
    choir_tensor_queue *queue;
    choir_check(choir_tensor_queue_new(4, &queue));
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 4, work, queue));
    choir_tensor_queue_free(queue);
}
