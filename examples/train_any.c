/* choir train as a program, resumed in DIR: choir run -n 2 ./train_any DIR STEPS MODEL DATA */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>
int main(int argc, char **argv)
{
    int64_t steps = argc > 2 ? atoll(argv[2]) : 20;
    choir_env env;
    choir_model_info m; /* the model as this data wants it: its sizes, what a sample is */
    choir_data data;
    choir_check(choir_env_init(&env));
    choir_check(choir_model_data(argc > 3 ? argv[3] : "gpt2:heads=2,width=32,context=32",
        argc > 4 ? argv[4] : NULL, choir_data_defaults(), &m, &data));
    choir_scope *run = choir_run_open(&env, 42), *s;
    choir_module *net = choir_model_build(run, &m);
    choir_module *ddp = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_training t = {.module = net, .info = &m, .tokenizer = data.tokenizer};
    t.optim = choir_adamw(run, ddp, choir_adamw_defaults());
    t.loader = choir_env_loader(run, &env, data.train, 32);
    choir_train_state at; /* where the training stands */
    choir_checkpoint *saved;
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = env.group;
    choir_check(choir_training_open(argc > 1 ? argv[1] : "run_any", opts, &t, &at, &saved));
    for (choir_batch b; at.step < steps; choir_check(choir_scope_close(s))) {
        s = choir_step_open(run, (uint64_t)at.step++);
        choir_check(choir_loader_next(t.loader, s, &b));
        choir_tensor *x = choir_model_forward(&m, ddp, b.x, b.y);
        choir_tensor *loss =
            choir_model_loss_over(&m, x, b.y, choir_model_divisor(&m, &b.y, 1));
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(t.optim));
        choir_check(choir_env_loss(&env, &loss, &at.loss));
    }
    choir_check(choir_training_save(saved, &t, &at, CHOIR_SAVE_NOW));
    printf("rank %d of %d, step %d: loss %.4f\n", env.rank, env.world, (int)at.step, at.loss);
    choir_check(choir_checkpoint_close(saved));
    choir_check(choir_scope_close(run));
    choir_data_free(&data);
}
