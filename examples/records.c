/* A loop that writes its numbers down: a run folder for `choir plot`, and a table. TensorBoard,
 * MLflow and others are further destinations. */
#include <stdio.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_linear(run, 8, 1);
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    choir_tensor *x = choir_randn(run, choir_dims(64, 8), "x");
    choir_tensor *y = choir_randn(run, choir_dims(64, 1), "y");
    choir_optim_set_lr(opt, 0.1f);
    choir_check(choir_scope_status(run));

    choir_logger *log;
    choir_check(choir_log_open(argc > 1 ? argv[1] : "run:records", choir_log_defaults(), &log));
    choir_check(choir_log_add(log, argc > 2 ? argv[2] : "csv:records/loss.csv"));
    choir_check(choir_log_param(log, "lr", "0.1"));
    for (int step = 1; step <= 20; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *loss = choir_mse_loss(choir_forward(net, choir_in(s, x)), choir_in(s, y));
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        choir_check(choir_log_number(log, "loss", (double)choir_item(loss)));
        choir_check(choir_log_step(log, step));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_log_close(log));
    printf("20 steps are in records/loss.csv\n");
    choir_check(choir_scope_close(run));
}
