/* Saves weights, and loads them into a model with other initial values. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_module *new_net(choir_scope *run)
{
    return choir_nn_sequential(run, choir_nn_linear(run, 4, 8), choir_nn_batch_norm(run, 8),
        choir_nn_relu(run), choir_nn_linear(run, 8, 2));
}

static double output(choir_module *net, choir_scope *s)
{
    choir_module_train(net, false);
    return choir_item(
        choir_sum(choir_forward(net, choir_full(s, CHOIR_F32, choir_dims(1, 4), 1))));
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "save_load.safetensors"; /* PyTorch reads it, too */
    choir_scope *run = choir_scope_open(NULL, 42), *other = choir_scope_open(NULL, 7);
    choir_scope *s = choir_step_open(run, 0), *t = choir_step_open(other, 0);
    choir_module *net = new_net(run), *copy = new_net(other),
                 *wide = choir_nn_linear(other, 4, 9);
    printf("outputs before: %.6f %.6f\n", output(net, s), output(copy, t));

    choir_check(choir_save(net, path));
    choir_check(choir_load(copy, path));
    printf("outputs after:  %.6f %.6f\n", output(net, s), output(copy, t));

    if (choir_load(wide, path) != CHOIR_OK) /* the failed load changed nothing */
        printf("another model: %s\n", choir_error_message());
    remove(path);
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(t));
    choir_check(choir_scope_close(run));
    return choir_scope_close(other);
}
