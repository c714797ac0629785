/* DataParallel: how much of a batch does each replica see?  ./data_parallel DEVICES */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

typedef struct model {
    choir_module base, *fc;
} model;
static choir_tensor *sizes(const char *in, choir_tensor *x, const char *out, choir_tensor *y)
{
    choir_shape a = choir_tensor_shape(x), b = choir_tensor_shape(y);
    printf("%s torch.Size([%d, %d]) %s torch.Size([%d, %d])\n", in, (int)a.dim[0],
        (int)a.dim[1], out, (int)b.dim[0], (int)b.dim[1]);
    return y;
}

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir_tensor *y = count ? choir_forward(((model *)self)->fc, in[0]) : NULL;
    return sizes("\tIn Model: input size", in[0], "output size", y);
}

int main(int argc, char **argv)
{
    setenv("CHOIR_CPU_DEVICES", argc > 1 ? argv[1] : "2", 1); /* even on fewer cores */
    choir_scope *run = choir_scope_open(NULL, 42);
    model *m = choir_module_new(run, &(choir_module_class){"model", sizeof *m, forward, 1});
    choir_module_child(&m->base, "fc", &m->fc, choir_nn_linear(run, 5, 2));
    int devices = choir_device_count("cpu");
    if (devices > 1)
        printf("Let's use %d GPUs!\n", devices); /* as in PyTorch's tutorial */
    choir_module *dp = choir_data_parallel(run, &m->base, choir_data_parallel_defaults());
    for (int left = 100; left > 0; left -= 30) { /* samples, in batches of 30 */
        choir_scope *s = choir_step_open(run, 0);
        choir_tensor *input = choir_randn(s, choir_dims(left < 30 ? left : 30, 5), "input");
        sizes("Outside: input size", input, "output_size", choir_forward(dp, input));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
}
