/* A pipeline: plain code for one micro-batch, cut into one stage per device, at most three:
 * ./pipeline DEVICES */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *data)
{
    choir_batch b; /* x (8, 64), y (8) */
    if (choir_loader_next(data, micro, &b) != CHOIR_OK)
        return NULL;
    return choir_cross_entropy(choir_forward(net, b.x), b.y);
}

int main(int argc, char **argv)
{
    setenv("CHOIR_CPU_DEVICES", argc > 1 ? argv[1] : "2", 1);
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 42);
    choir_dataset *points;
    choir_check(choir_dataset_random(640, choir_dims(64), CHOIR_SCALAR, 10, 7, &points));
    choir_loader_opts order = {.batch_size = 32, .microbatches = 4, .shuffle = true};
    choir_loader *data = choir_loader_new(run, points, order);
    choir_module *net =
        choir_nn_sequential(run, choir_nn_linear(run, 64, 256), choir_nn_relu(run),
            choir_nn_linear(run, 256, 256), choir_nn_relu(run), choir_nn_linear(run, 256, 10));
    choir_module *pipe = choir_pipeline(run, net, choir_pipeline_defaults());
    choir_optim *opt = choir_adamw(run, pipe, choir_adamw_defaults());
    choir_tensor *losses[4];
    for (uint64_t step = 0; step < 20; step++) {
        choir_scope *s = choir_step_open(run, step);
        choir_check(choir_pipeline_step(pipe, s, 4, micro_batch, data, losses));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
    choir_pipeline_print_stages(pipe, stderr);
    printf("after 20 steps, micro-batch 3: loss %a\n", choir_item(losses[3]));
    choir_check(choir_scope_close(run));
    choir_dataset_free(points);
    return 0;
}
