/* A model whose large weights no rank has whole:  ./tensor_parallel [RANKS] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static const int64_t ids[8] = {5, 17, 3, 60, 22, 9, 41, 30};
static int train(int rank, int world, void *unused)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net =
        choir_nn_sequential(run, choir_nn_embedding(run, 64, 32, choir_init_normal(0, 0.02)),
            choir_nn_linear(run, 32, 120), choir_nn_gelu(run), choir_nn_linear(run, 120, 64));
    choir_tp_rule rules[] = {{.path = "0", .style = CHOIR_TP_VOCAB}, /* the table by rows */
        {.path = "1", .style = CHOIR_TP_COLUMN}, {.path = "3", .style = CHOIR_TP_ROW}};
    choir_tensor_parallel_opts opts = {.rules = rules, .rule_count = 3};
    choir_tensor_parallel(run, net, env.group, opts);
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    long long rows = choir_tensor_size(choir_module_find(net, "0.weight"), 0);
    if (rank == 0)
        printf("%d ranks; rank 0 has %lld of 64 rows\n", world, rows);
    for (int step = 0; step < 100; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *y = choir_forward(net, choir_from(s, CHOIR_I64, choir_dims(7), ids));
        choir_tensor *next = choir_from(s, CHOIR_I64, choir_dims(7), ids + 1);
        choir_tensor *loss = choir_cross_entropy(y, next);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (rank == 0 && step % 50 == 49)
            printf("step %d, loss %.4f\n", step + 1, choir_item(loss));
        choir_check(choir_scope_close(s));
    }
    return unused || choir_scope_close(run) != CHOIR_OK;
}

int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, NULL));
}
