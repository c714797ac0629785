/* Sequences that ranks share: the same bits on 1, 2 or 4 ranks:  ./context_parallel [RANKS] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

enum { TOKENS = 64, CHUNKS = 4 };

static int train(int rank, int world, void *unused)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net =
        choir_model(run, "gpt2:layers=1,heads=4,width=32,context=64,vocab=64", NULL);
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    opts.chunks = CHUNKS; /* each sequence is cut alike for any number of ranks */
    net = choir_context_parallel(run, net, env.group, opts);
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    int64_t ids[TOKENS + 1];
    for (int i = 0; i <= TOKENS; i++)
        ids[i] = i * i % 61;
    for (int step = 0; step < 50; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_from(s, CHOIR_I64, choir_dims(1, TOKENS), ids),
                     *y = choir_from(s, CHOIR_I64, choir_dims(1, TOKENS), ids + 1);
        choir_tensor *loss = choir_cross_entropy(choir_forward(net, x), y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (rank == 0 && step % 49 == 0)
            printf("step %d, loss %.8f\n", step + 1, choir_item(loss));
        choir_check(choir_scope_close(s));
    }
    (void)world;
    return unused || choir_scope_close(run) != CHOIR_OK;
}

int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, NULL));
}
