/* Searches for the rate and the momentum of SGD that fit a line best. */
#include <stdio.h>
#include <choir/choir.h>

static double fit(choir_trial *trial)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s;
    choir_module *line = choir_nn_linear(run, 1, 1);
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = (float)choir_trial_real(trial, "lr");
    hp.momentum = (float)choir_trial_real(trial, "momentum");
    choir_optim *opt = choir_sgd(run, line, hp);
    double last = 0;
    for (int step = 0; step < 20; step++, choir_check(choir_scope_close(s))) {
        s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_rand(s, choir_dims(64, 1), "x", -1, 1);
        choir_tensor *loss = choir_mse_loss(choir_forward(line, x), choir_affine(x, 3, -2));
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        last = (double)choir_item(loss);
    }
    choir_check(choir_scope_close(run));
    return last;
}

int main(void)
{
    choir_study *study;
    choir_trial *t = NULL;
    choir_space *space = choir_space_new();
    choir_check(choir_space_add(space, "lr", "log(1e-4, 0.5)"));
    choir_check(choir_space_add(space, "momentum", "uniform(0, 0.9)"));
    choir_check(choir_study_open(space, choir_study_defaults(), &study));
    for (int i = 0; i < 40 && choir_study_ask(study, &t) == CHOIR_OK; i++)
        choir_check(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &(double){fit(t)}, 1));
    if ((t = choir_study_best(study)) != NULL) /* else no trial has a value */
        printf("lr %s, loss %.1e\n", choir_trial_text(t, "lr"), choir_trial_value(t, 0));
    choir_study_free(study);
    choir_space_free(space);
}
