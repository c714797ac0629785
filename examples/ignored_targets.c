/* Words that are not masked are ignored targets: the loss is that of the whole batch at any M.
 */
#include <stdio.h>
#include <choir/choir.h>

static void print_loss(choir_dataset *words, int64_t m)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    choir_module *net = choir_nn_embedding(run, 11, 11, choir_init_normal(0, 1)); /* scores */
    choir_loader_opts order = {.batch_size = 16, .microbatches = m, .shuffle = true};
    choir_loader *data = choir_loader_new(run, words, order);
    choir_cross_entropy_opts o = choir_cross_entropy_defaults();
    o.reduction = CHOIR_LOSS_SUM;
    choir_batch b[4]; /* x (16/m, 8) ids of 10 words and the mask, y (16/m, 8) */
    choir_tensor *y[4];
    for (int64_t i = 0; i < m; i++) {
        choir_check(choir_loader_next(data, s, &b[i])); /* all batches of the step first */
        y[i] = b[i].y;
    }
    double mean = 0;
    choir_tensor *divisor = choir_loss_divisor(y, (int)m, o);
    for (int64_t i = 0; i < m; i++) {
        choir_scope *micro = choir_micro_open(s, i);
        choir_tensor *out = choir_forward(net, choir_in(micro, b[i].x));
        choir_tensor *loss = choir_div(choir_cross_entropy_with(out, b[i].y, o), divisor);
        choir_check(choir_backward(loss));
        mean += choir_item(loss) / (double)m;
        choir_check(choir_scope_close(micro));
    }
    printf("%.5f ", mean);
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
}
int main(void)
{
    static choir_dataset *words;
    choir_check(choir_dataset_random_tokens(16, 8, 10, 1, &words));
    choir_check(choir_dataset_masked(words, 10, 10, 1, &words)); /* owns the other */
    print_loss(words, 1), print_loss(words, 2), print_loss(words, 4);
}
