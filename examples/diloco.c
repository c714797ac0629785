/* Workers that train independently and meet every 50 steps:  ./diloco [WORKERS] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static int train(int rank, int world, void *dataset)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 64, 128), choir_nn_relu(run), choir_nn_linear(run, 128, 10));
    choir_diloco_opts opts = choir_diloco_defaults(); /* every 50 steps, 0.7, 0.9 */
    opts.wire = CHOIR_BF16;                           /* half the bytes */
    net = choir_diloco(run, net, env.group, opts);
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults()); /* a state per worker */
    choir_loader *data = choir_env_loader(run, &env, dataset, 16 * world);
    for (int step = 0; step < 220; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_batch b;
        choir_check(choir_loader_next(data, s, &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(net, b.x), b.y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt)); /* the 50th, 100th, ... meets the others */
        if (rank == 0 && step % 55 == 54)
            printf("step %3d  loss %.4f  %lld steps apart\n", step + 1, choir_item(loss),
                (long long)choir_steps_apart(net));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_meet(net)); /* after 20 more steps: all ranks now hold the same weights */
    choir_check(choir_scope_close(run));
    return choir_env_free(&env), 0;
}

int main(int argc, char **argv)
{
    choir_dataset *set;
    choir_check(choir_dataset_random(480, choir_dims(64), CHOIR_SCALAR, 10, 7, &set));
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, set));
}
