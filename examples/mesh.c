/* Replicas of a pipeline of two stages, with the bits of one: ./mesh [1, 2 or 4 replicas] */
#include <stdio.h>
#include <choir/choir.h>

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *name)
{
    choir_tensor *x = choir_randn(micro, choir_dims(8, 64), name);
    return choir_mean(choir_square(choir_sub(choir_forward(net, x), x)));
}

static int train(int rank, int world, void *dims)
{
    choir_env env;
    choir_mesh *mesh;
    choir_check(choir_env_init(&env));
    choir_check(choir_mesh_new(env.group, 2, dims, (int[]){-1, 2}, &mesh));
    env.microbatches = 4; /* of all replicas */
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *in = choir_nn_linear(run, 64, 256), *out = choir_nn_linear(run, 256, 64);
    choir_pipeline_opts opts = {.group = choir_mesh_group(mesh, "pipeline")};
    choir_module *net = choir_pipeline(run, choir_nn_sequential(run, in, out), opts);
    net = choir_ddp(run, net, choir_mesh_group(mesh, "data"), choir_ddp_defaults());
    choir_tensor *losses[4]; /* of this replica's micro-batches: 8 / world */
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (uint64_t number = 0; number < 20; number++) {
        choir_scope *step = choir_step_open(run, number);
        choir_check(choir_pipeline_step(net, step, 8 / world, micro_batch, "noise", losses));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(step));
    }
    if (rank == world - 1)
        printf("after 20 steps, micro-batch 3: loss %a\n", choir_item(losses[8 / world - 1]));
    return choir_scope_close(run) != CHOIR_OK;
}

int main(int argc, char **argv)
{
    const char *dims[] = {"data", "pipeline"}; /* stages of a replica are neighbours */
    choir_check(choir_spawn(2 * (argc > 1 ? *argv[1] - '0' : 2), train, dims));
}
