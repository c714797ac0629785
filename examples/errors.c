/* Errors: a wrong shape is reported by backward, and the program goes on with the next step. */
#include <stdio.h>
#include <choir/choir.h>

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 8, 16), choir_nn_relu(run), choir_nn_linear(run, 16, 2));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    const int64_t widths[] = {8, 7, 8};

    for (int step = 0; step < 3; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_randn(s, choir_dims(4, widths[step]), "x");
        choir_tensor *y =
            choir_forward(net, x); /* never NULL: a failed op's result is poisoned, */
        choir_tensor *loss = choir_mean(choir_square(y)); /* and later ops pass it through */

        choir_status status = choir_backward(loss); /* reports the first error of the step */
        if (status == CHOIR_OK)
            status = choir_optim_step(opt);
        if (status == CHOIR_OK)
            printf("step %d: loss %.4f\n", step, choir_item(loss));
        else
            printf("step %d: %s: %s\n", step, choir_status_name(status), choir_error_message());
        status = choir_scope_close(s); /* the error ends with its scope */
    }

    if (!choir_device_find("cpu:1000"))
        printf("no device: %s\n", choir_error_message());
    printf("the run: %s\n", choir_status_text(choir_scope_status(run)));
    return choir_scope_close(run);
}
