/* mnist_mlp on several processes:  ./mnist_ddp RANKS FOLDER  (without: 2, random images) */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static int train(int rank, int world, void *images)
{
    choir_env env; /* this process's rank, group and device */
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 42);
    choir_loader *data = choir_env_loader(run, &env, images, 48); /* 48: over all ranks */
    choir_module *net = choir_nn_sequential(run, choir_nn_flatten(run),
        choir_nn_linear(run, 784, 128), choir_nn_relu(run), choir_nn_linear(run, 128, 10));
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int step = 0; step <= 200; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_batch b; /* x (48/world, 1, 28, 28), y (48/world) */
        choir_check(choir_loader_next(data, s, &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(net, b.x), b.y);
        choir_check(choir_backward(loss)); /* gradients are averaged while it runs */
        choir_check(choir_optim_step(opt));
        double mean = choir_item(loss); /* of this rank; then the mean over all */
        choir_check(choir_group_all_reduce(env.group, &mean, 1, CHOIR_F64, CHOIR_MEAN, NULL));
        if (rank == 0 && step % 50 == 0)
            printf("%d ranks  step %3d  loss %.4f\n", world, step, mean);
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

int main(int argc, char **argv)
{
    static choir_dataset *d; /* the processes are forks: they share its memory */
    choir_check(argc > 2 ? choir_dataset_idx(argv[2], CHOIR_TRAIN, &d)
                         : choir_dataset_random(240, choir_dims(784), CHOIR_SCALAR, 10, 7, &d));
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, d));
}
