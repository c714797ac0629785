/* Rank 0 is killed in step 20; the others go on, and a new rank joins them:  ./elastic */
#include <signal.h>
#include <stdio.h>
#include <choir/choir.h>
static choir_env env;
static choir_module *net;
static choir_status step(choir_scope *s, void *optim)
{
    int64_t m, left; /* this rank's micro-batches, which change with the ranks */
    choir_status status = CHOIR_OK;
    for (choir_env_micro(&env, &m, &left); left-- && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(s, m);
        choir_tensor *x = choir_full(micro, CHOIR_F32, choir_dims(8, 10), (float)m);
        status = choir_backward(choir_mse_loss(choir_forward(net, x), x));
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    return status == CHOIR_OK ? choir_optim_step(optim) : status;
}
static int train(int rank, int world, void *name)
{
    choir_elastic *e;
    choir_check(choir_env_init(&env)); /* micro-batches: 3, however many ranks are left */
    choir_scope *run = choir_run_open(&env, 42);
    net = choir_ddp(run, choir_nn_linear(run, 10, 10), env.group, choir_ddp_defaults());
    choir_training t = {.module = net, .optim = choir_adamw(run, net, choir_adamw_defaults())};
    choir_check(choir_elastic_open(&env, &t, choir_elastic_defaults(), &e));
    for (bool again = true; again; choir_check(choir_elastic_end(e, &again)))
        for (; choir_run_next(run) < 50; choir_check(choir_elastic_step(e, step, t.optim)))
            if (env.generation == 1 && env.rank == 0 && choir_run_next(run) == 20)
                raise(SIGKILL);
    printf("%s %d of %d: generation %d\n", (char *)name, rank, world, (int)env.generation);
    choir_elastic_free(e);
    return choir_scope_close(run);
}
int main(void)
{
    choir_spawn_opts opts = {.nodes = 1, .timeout_s = 60, .max_restarts = 1};
    choir_check(choir_spawn_with(3, train, "rank", opts));
}
