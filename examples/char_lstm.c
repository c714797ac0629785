/* An LSTM learns a text and continues it from its last state:  ./char_lstm FILE  (or itself) */
#include <stdio.h>
#include <choir/choir.h>

enum { T = 32, C = 128 }; /* letters in a sample; width of the state */

int main(int argc, char **argv)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s;
    static choir_tokenizer *chars; /* NULL: made from the file's letters */
    static choir_dataset *text;
    const char *file = argc > 1 ? argv[1] : __FILE__;
    choir_check(choir_dataset_text(file, T, CHOIR_TRAIN, &chars, &text));
    choir_loader_opts o = {.batch_size = 16, .microbatches = 1, .shuffle = true};
    choir_recurrent_opts opts = {.layers = 1, .bias = true, .batch_first = true};
    int64_t size = choir_tokenizer_size(chars), ids[T], next[T];
    choir_module *embed = choir_nn_embedding(run, size, C, choir_init_normal(0, 1));
    choir_module *lstm = choir_nn_lstm(run, C, C, opts), *head = choir_nn_linear(run, C, size),
                 *net = choir_nn_sequential(run, embed, lstm, head);
    choir_loader *data = choir_loader_new(run, text, o);
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int step = 0; step <= 600; step++, choir_check(choir_scope_close(s))) {
        choir_batch b; /* x, y (16, T): y is x shifted by one letter */
        choir_check(choir_loader_next(data, s = choir_step_open(run, (uint64_t)step), &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(net, b.x), b.y);
        choir_check(choir_backward(loss)), choir_check(choir_optim_step(opt));
        if (step % 200 == 0)
            printf("step %3d  loss %.3f\n", step, choir_item(loss));
    }
    choir_check(text->ops->get(text, 0, ids, next)); /* the text's beginning is the prompt */
    choir_cell_state state = {NULL, NULL};           /* zeros */
    s = choir_no_grad(run);
    for (int64_t i = 0, n = T; i < 160; i++, ids[0] = next[n - 1], n = 1) {
        choir_tensor *x = choir_from(s, CHOIR_I64, choir_dims(1, n), ids);
        x = choir_forward(head, choir_forward_state(lstm, choir_forward(embed, x), &state));
        choir_check(choir_read(choir_argmax(x), next, (size_t)n * sizeof *next));
        printf("%s%s", choir_tokenizer_decode(chars, next[n - 1]), i < 159 ? "" : "\n");
    }
    choir_check(choir_scope_close(s)), choir_check(choir_scope_close(run));
}
