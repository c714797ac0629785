/* A user's communication hook, which drops small gradients and averages the others. */
#include <math.h>
#include <stdio.h>
#include <choir/choir.h>

/* This runs in the group's queue, after backward has filled the bucket. */
static choir_status drop_small(const void *args)
{
    const choir_ddp_bucket *b = args;
    for (int64_t i = 0; i < b->count; i++)
        b->data[i] = fabsf(b->data[i]) < 1e-3f ? 0 : b->data[i];
    return CHOIR_OK;
}

/* This runs while backward issues its work: a hook issues work, too, and waits for none. */
static choir_status my_hook(const choir_ddp_bucket *b, void *arg)
{
    choir_work work;
    choir_status status = choir_group_call(b->group, drop_small, b, sizeof *b, &work);
    return status ? status : choir_ddp_all_reduce(b, arg);
}

static int train(int rank, int world, void *arg)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, (uint64_t)world), *s = choir_step_open(run, 0);
    choir_module *net = choir_nn_linear(run, 4, 1);
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_check(choir_ddp_set_hook(net, my_hook, arg));
    choir_tensor *y = choir_forward(net, choir_full(s, CHOIR_F32, choir_dims(8, 4), 1));
    choir_check(choir_backward(choir_mean(choir_scale(y, rank ? 1e-4 : 1))));
    printf("%d: %.4f\n", rank, choir_item(choir_grad(choir_module_find(net, "bias"))));
    return choir_scope_close(s) || choir_scope_close(run);
}

int main(void)
{
    return choir_spawn(2, train, NULL) != CHOIR_OK;
}
