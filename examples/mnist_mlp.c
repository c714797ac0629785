/* A two-layer network on MNIST:  ./mnist_mlp FOLDER  (without: random images) */
#include <stdio.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_dataset *images; /* x (1, 28, 28) f32, y () a class id */
    choir_shape shape = choir_dims(1, 28, 28);
    choir_check(argc > 1 ? choir_dataset_idx(argv[1], CHOIR_TRAIN, &images)
                         : choir_dataset_random(256, shape, CHOIR_SCALAR, 10, 7, &images));
    choir_loader_opts order = choir_loader_defaults(); /* shuffled, loaded in advance */
    order.batch_size = 64;
    choir_loader *data = choir_loader_new(run, images, order);
    choir_module *net = choir_nn_sequential(run, choir_nn_flatten(run),
        choir_nn_linear(run, 784, 128), choir_nn_relu(run), choir_nn_linear(run, 128, 10));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    choir_check(choir_scope_status(run)); /* covers every constructor */

    for (int step = 0; step <= 200; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_batch b; /* x (64, 1, 28, 28), y (64) */
        choir_check(choir_loader_next(data, s, &b));
        choir_tensor *out = choir_forward(net, b.x), *loss = choir_cross_entropy(out, b.y);
        int64_t guess[64], truth[64];
        int right = 0;
        choir_check(choir_read(choir_argmax(out), guess, sizeof guess));
        choir_check(choir_read(b.y, truth, sizeof truth));
        for (int i = 0; i < 64; i++)
            right += guess[i] == truth[i];
        choir_check(choir_backward(loss)); /* frees the memory of out */
        choir_check(choir_optim_step(opt));
        if (step % 50 == 0)
            printf("step %3d  loss %.4f  right %d/64\n", step, choir_item(loss), right);
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
    choir_dataset_free(images);
    return 0;
}
