/* Callbacks around a training loop: a line per evaluation, and training ends when it is good.
 */
#include <stdio.h>
#include <choir/choir.h>
static choir_status show(choir_loop *loop, const choir_score *score, void *arg)
{
    const double *enough = arg;
    printf("step %3d  loss %.3f  validation %.3f\n", (int)choir_loop_state(loop)->step,
        choir_loop_state(loop)->loss, score->loss);
    if (score->loss < *enough)
        choir_loop_stop(loop);
    return CHOIR_OK;
}
static void done(choir_loop *loop, choir_status status, void *arg)
{
    (void)arg;
    printf("%s after step %d\n", status == CHOIR_OK ? "done" : choir_error_message(),
        (int)choir_loop_state(loop)->step);
}
int main(void)
{
    double enough = 2.9;
    choir_env env;
    choir_model_info m;
    choir_data data;
    choir_check(choir_env_init(&env));
    choir_check(choir_model_data(
        "gpt2:layers=1,heads=2,width=32,context=32", NULL, choir_data_defaults(), &m, &data));
    choir_scope *run = choir_run_open(&env, 42);
    choir_training t = {.module = choir_model_build(run, &m), .info = &m};
    t.optim = choir_muon(run, t.module, choir_muon_defaults());
    t.loader = choir_env_loader(run, &env, data.train, 32);
    choir_loop_opts opts = choir_loop_defaults();
    opts.eval_every = 20, opts.validation = data.validation, opts.eval_batches = 4;
    choir_loop *loop = choir_loop_new(&env, t, opts);
    choir_loop_add(loop, (choir_callbacks){.evaluated = show, .end = done}, &enough);
    choir_check(choir_loop_run(loop));
    choir_check(choir_scope_close(run));
    choir_data_free(&data);
}
