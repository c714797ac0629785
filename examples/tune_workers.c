/* Searches with several workers at once. Each trial is a fork: one that crashes has failed. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_status fit(choir_trial *trial, void *arg, double *values)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s;
    choir_module *line = choir_nn_linear(run, 1, 1);
    choir_optim *opt = choir_sgd(run, line, choir_sgd_defaults());
    choir_optim_set_lr(opt, (float)choir_trial_real(trial, "lr"));
    choir_trial_real(trial, "lr") > *(double *)arg ? abort() : (void)0; /* as if by a bug */
    for (int step = 1; step <= 20 && !choir_trial_should_stop(trial); step++) {
        s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_rand(s, choir_dims(64, 1), "x", -1, 1);
        choir_tensor *loss = choir_mse_loss(choir_forward(line, x), choir_affine(x, 3, -2));
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        choir_check(choir_trial_report(trial, step, values[0] = (double)choir_item(loss)));
        choir_check(choir_scope_close(s));
    }
    return choir_scope_close(run);
}
int main(int argc, char **argv)
{
    choir_study *study;
    choir_study_opts about = choir_study_defaults();
    choir_tune_opts opts = choir_tune_defaults();
    choir_space *space = choir_space_new();
    about.scheduler = "median", about.window = 4, about.trials = 30;
    opts.parallel = argc > 1 ? atoi(argv[1]) : 4, opts.forks = true;
    choir_check(choir_space_add(space, "lr", "log(1e-4, 1)"));
    choir_check(choir_study_open(space, about, &study));
    choir_check(choir_tune(study, fit, &(double){0.8}, opts));
    for (int i = 0; i < 30; i++) /* running, complete, pruned, failed */
        printf("%c ", "rcpf"[choir_trial_result(choir_study_trial(study, i))]);
    printf("best: lr %s\n", choir_trial_text(choir_study_best(study), "lr"));
    choir_study_free(study);
    choir_space_free(space);
}
