/* A user's dataset is a struct that begins with choir_dataset; this one has two spirals. */
#include <math.h>
#include <stdio.h>
#include <choir/choir.h>

static int64_t length(const choir_dataset *self)
{
    return self->classes * 128;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    float r = (float)index / 128, angle = 3 * r + 3.14159f * (float)(index % self->classes);
    *(int64_t *)y = index % self->classes;
    ((float *)x)[0] = r * cosf(angle), ((float *)x)[1] = r * sinf(angle);
    return CHOIR_OK;
}

int main(void)
{
    const choir_dataset_ops ops = {.length = length, .get = get};
    choir_dataset set = {&ops, CHOIR_F32, CHOIR_I64, choir_dims(2), CHOIR_SCALAR, .classes = 2};
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_loader *data = choir_loader_shuffled(run, &set, 64);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 2, 256), choir_nn_relu(run), choir_nn_linear(run, 256, 2));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int step = 0; step <= 1000; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_batch b; /* x (64, 2), y (64) */
        choir_check(choir_loader_next(data, s, &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(net, b.x), b.y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (step % 200 == 0)
            printf("step %4d  loss %.4f\n", step, choir_item(loss));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
}
