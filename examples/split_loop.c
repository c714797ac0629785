/* A pipeline by hand: while the second device works on a split, the first computes the next. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

/* x (24, 64) -> (24, 8), in six splits. Ops return at once while the devices compute. */
static choir_tensor *forward(
    choir_module *seq1, choir_module *seq2, choir_device *second, choir_tensor *x)
{
    choir_tensor *out[6];
    for (int i = 0; i < 6; i++) {
        choir_tensor *next = choir_forward(seq1, choir_narrow(x, 0, 4 * i, 4));
        out[i] = choir_forward(seq2, choir_to(next, second));
    }
    return choir_cat(out, 6, 0);
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "2", 1); /* even on fewer cores */
    for (int devices = 1; devices <= 2; devices++) {
        choir_scope *run = choir_scope_open(NULL, 42); /* on cpu:0 */
        choir_device *second = choir_device_find(devices == 2 ? "cpu:1" : "cpu:0");
        choir_module *seq1 = choir_nn_linear(run, 64, 64), *seq2 = choir_nn_linear(run, 64, 8);
        choir_module *both = choir_nn_sequential(run, seq1, seq2); /* names them */
        choir_check(choir_module_to(seq2, second));
        choir_optim *opt = choir_sgd(run, both, (choir_sgd_opts){.lr = 0.1f});
        for (int i = 0; i < 5; i++) {
            choir_scope *s = choir_step_open(run, (uint64_t)i);
            choir_tensor *y =
                forward(seq1, seq2, second, choir_randn(s, choir_dims(24, 64), "x"));
            choir_tensor *loss = choir_mean(choir_gelu(y));
            choir_check(choir_backward(loss));
            choir_check(choir_optim_step(opt));
            printf("on %d: step %d  loss %.9g\n", devices, i, choir_item(loss));
            choir_check(choir_scope_close(s));
        }
        choir_check(choir_scope_close(run));
    }
}
