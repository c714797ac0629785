/* A small GPT learns a text letter by letter and recites it:  ./char_gpt FILE  (or itself) */
#include <stdio.h>
#include <string.h>
#include <choir/choir.h>

enum { T = 32, C = 64 }; /* letters in a sample; width of the model */

int main(int argc, char **argv)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s;
    const char *file = argc > 1 ? argv[1] : __FILE__;
    static choir_tokenizer *chars; /* NULL: made from the file's letters */
    static choir_dataset *text;
    choir_check(choir_dataset_text(file, T, CHOIR_TRAIN, &chars, &text));
    choir_loader_opts order = {.batch_size = 16, .microbatches = 1, .shuffle = true};
    choir_loader *data = choir_loader_new(run, text, order);
    int64_t size = choir_tokenizer_size(chars), ids[T], next[T];
    choir_module *gpt = choir_nn_sequential(run,
        choir_nn_embedding(run, size, C, choir_init_normal(0, 1)),
        choir_nn_transformer_block(run, C, 4, true, 0, 0.02), choir_nn_linear(run, C, size));
    choir_optim *opt = choir_adamw(run, gpt, choir_adamw_defaults());
    choir_optim_set_lr(opt, 4e-3f);
    for (int step = 0; step <= 600; step++, choir_check(choir_scope_close(s))) {
        choir_batch b; /* x, y (16, T): y is x shifted by one letter */
        choir_check(choir_loader_next(data, s = choir_step_open(run, (uint64_t)step), &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(gpt, b.x), b.y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (step % 200 == 0)
            printf("step %3d  loss %.3f\n", step, choir_item(loss));
    }
    choir_check(text->ops->get(text, 0, ids, next)); /* the text's beginning is the prompt */
    for (int i = 0; i < 160; i++, choir_check(choir_scope_close(s))) {
        choir_tensor *x = choir_from(s = choir_no_grad(run), CHOIR_I64, choir_dims(1, T), ids);
        choir_check(choir_read(choir_argmax(choir_forward(gpt, x)), next, sizeof next));
        printf(i < 159 ? "%s" : "%s\n", choir_tokenizer_decode(chars, ids[0]));
        memmove(ids, ids + 1, sizeof ids - sizeof *ids), ids[T - 1] = next[T - 1];
    }
    choir_check(choir_scope_close(run));
}
