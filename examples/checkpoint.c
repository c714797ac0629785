/* Trains five more steps, on any number of ranks:  choir run -n 4 ./checkpoint; ./checkpoint */
#include <stdio.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    int64_t done = 0, first, count;
    choir_env env;
    choir_check(choir_env_init(&env));
    env.microbatches = 4; /* the bits depend on this alone */
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net = choir_model(run, "mlp:in=16,classes=4", NULL);
    net = choir_fsdp(run, net, env.group, choir_fsdp_defaults()); /* each rank has a part */
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());

    choir_checkpoint *checkpoint;
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = env.group; /* all ranks save, each its part, */
    opts.async = true;      /* while they train on */
    choir_check(choir_checkpoint_open(argc > 1 ? argv[1] : "run", opts, &checkpoint));
    if (choir_checkpoint_exists(checkpoint))
        choir_check(choir_checkpoint_load(checkpoint, net, opt, &done));
    for (int64_t step = done; step < done + 5; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        for (int64_t m = first; m < first + count; m++) {
            choir_scope *micro = choir_micro_open(s, m);
            choir_tensor *x = choir_randn(micro, choir_dims(8, 16), "x");
            choir_tensor *loss = choir_mean(choir_square(choir_forward(net, x)));
            printf(m ? "" : "step %d, loss %a\n", (int)step + 1, choir_item(loss));
            choir_check(choir_backward(loss));
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
        choir_check(choir_checkpoint_save(checkpoint, net, opt, step + 1));
    }
    choir_check(choir_checkpoint_close(checkpoint)); /* waits for the save in progress */
    return choir_scope_close(run);
}
