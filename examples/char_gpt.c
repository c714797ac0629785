/* A small GPT that learns a text by heart and recites it:  ./char_gpt FILE STEPS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/choir.h>

enum { CONTEXT = 32, WIDTH = 64 };
static const char rhyme[] = "Row, row, row your boat, gently down the stream. Merrily, merrily, "
                            "merrily, merrily, life is but a dream. Row, row, row your boat, gently"
                            " down the stream. Merrily, merrily, merrily, merrily, life is but ...";

int main(int argc, char **argv)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_tokenizer *chars = NULL;
    choir_dataset *text;
    choir_check(argc > 1 ? choir_dataset_text(argv[1], CONTEXT, CHOIR_TRAIN, &chars, &text)
        : choir_dataset_text_memory("rhyme", rhyme, strlen(rhyme), CONTEXT, CHOIR_TRAIN, &chars, &text));
    choir_loader_opts order = choir_loader_defaults();
    order.batch_size = 16;
    choir_loader *data = choir_loader_new(run, text, order);
    int64_t vocabulary = choir_tokenizer_size(chars), ids[CONTEXT];
    choir_init small = choir_init_normal(0, 0.02);
    choir_module *gpt = choir_nn_sequential(run, choir_nn_embedding(run, vocabulary, WIDTH, small),
        choir_nn_transformer_block(run, WIDTH, 4, true, 0, 0.01), /* its causal attention is all */
        choir_nn_transformer_block(run, WIDTH, 4, true, 0, 0.01), /* it knows of positions */
        choir_nn_layer_norm(run, WIDTH), choir_nn_linear_with(run, WIDTH, vocabulary, false, small));
    choir_optim *opt = choir_adamw(run, gpt, choir_adamw_defaults());
    for (int step = 0; step <= 200; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_batch b; /* x, y (16, CONTEXT) */
        choir_check(choir_loader_next(data, s, &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(gpt, b.x), b.y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (step % 50 == 0)
            printf("step %3d  loss %.3f\n", step, choir_item(loss));
        choir_check(choir_scope_close(s));
    }
}
