/* A contrastive loss (CLIP) over the pairs of all ranks, as on one rank: ./contrastive [ranks]
 */
#include <stdio.h>
#include <choir/choir.h>

enum { ALL = 16, IN = 12, OUT = 8 }; /* ALL: pairs of the global batch */
/* Which of all ranks' b belongs to each of this rank's a (n, OUT)? The one with its number. */
static choir_tensor *pick(choir_tensor *a, choir_tensor *b, choir_env *env)
{
    choir_tensor *all = choir_nn_all_gather(b, env->group, 0); /* (ALL, OUT) */
    int64_t ids[ALL], n = ALL / env->world;
    for (int64_t i = 0; i < n; i++)
        ids[i] = env->rank * n + i;
    choir_tensor *y = choir_from(choir_tensor_scope(a), CHOIR_I64, choir_dims(n), ids);
    return choir_cross_entropy(choir_matmul(a, choir_transpose(all, 0, 1)), y);
}
static int train(int rank, int world, void *mean)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 42), *s;
    choir_module *image = choir_nn_linear(run, IN, OUT), *text = choir_nn_linear(run, IN, OUT);
    choir_module *net = choir_nn_sequential(run, image, text); /* names them */
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_optim *opt = choir_sgd(run, net, (choir_sgd_opts){.lr = 0.1f});
    choir_tensor *pairs = choir_randn(run, choir_dims(ALL, IN), "pairs");
    for (int i = 0; i < 50; i++, choir_check(choir_scope_close(s))) {
        choir_tensor *x = choir_in(s = choir_step_open(run, (uint64_t)i), pairs);
        x = choir_narrow(x, 0, rank * ALL / world, ALL / world); /* this rank's */
        choir_tensor *a = choir_forward(image, x), *b = choir_forward(text, choir_tanh(x));
        choir_tensor *loss = choir_add(pick(a, b, &env), pick(b, a, &env));
        choir_check(choir_backward(loss)), choir_check(choir_optim_step(opt));
        choir_check(choir_env_loss(&env, &loss, mean)); /* of all ranks */
    }
    return rank == 0 && printf("after 50 steps: loss %.4f\n", *(double *)mean) < 0;
}
int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? *argv[1] - '0' : 2, train, &(double){0}));
}
