/* Model parallel: one half of a model on each of two devices, with the bits of one device. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

typedef struct toy {
    choir_module base, *net1, *net2;
    choir_device *second; /* the device of net2 */
} toy;

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    toy *t = (toy *)self; /* count is 1 */
    choir_tensor *x = choir_relu(choir_forward(t->net1, in[count - 1]));
    return choir_forward(t->net2, choir_to(x, t->second)); /* gradients go back the same way */
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "2", 1); /* even on fewer cores */
    for (int devices = 1; devices <= 2; devices++) {
        choir_scope *run = choir_scope_open(NULL, 42); /* on cpu:0 */
        toy *t = choir_module_new(run, &(choir_module_class){"toy", sizeof(toy), forward, 1});
        t->second = choir_device_find(devices == 2 ? "cpu:1" : "cpu:0");
        choir_module_child(&t->base, "net1", &t->net1, choir_nn_linear(run, 10, 10));
        choir_module_child(&t->base, "net2", &t->net2, choir_nn_linear(run, 10, 5));
        choir_check(choir_module_to(t->net2, t->second));
        choir_optim *opt = choir_sgd(run, &t->base, (choir_sgd_opts){.lr = 0.1f});
        for (uint64_t i = 0; i < 5; i++) {
            choir_scope *s = choir_step_open(run, i);
            choir_tensor *x = choir_randn(s, choir_dims(20, 10), "x"), *loss;
            choir_tensor *y = choir_to(choir_randn(s, choir_dims(20, 5), "y"), t->second);
            choir_check(choir_backward(loss = choir_mse_loss(choir_forward(&t->base, x), y)));
            choir_check(choir_optim_step(opt));
            printf("on %d: step %d  loss %.9g\n", devices, (int)i, choir_item(loss));
            choir_check(choir_scope_close(s));
        }
        choir_check(choir_scope_close(run));
    }
}
