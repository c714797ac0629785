/* A small GPT learns a text letter by letter, and goes on with it:  ./char_gpt FILE */
#include <stdio.h>
#include <string.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    enum { CONTEXT = 16, WIDTH = 64 };
    const char *rhyme =
        "Twinkle, twinkle, little star, how I wonder what you are! Up above the "
        "world so high, like a diamond in the sky. Twinkle, twinkle, little star,"
        " how I wonder what you are.";
    choir_scope *s, *run = choir_scope_open(NULL, 42);
    choir_dataset *text;
    choir_tokenizer *chars = NULL; /* one a letter; made of the text */
    choir_check(argc > 1 ? choir_dataset_text(argv[1], CONTEXT, CHOIR_TRAIN, &chars, &text)
                         : choir_dataset_text_memory("rhyme", rhyme, strlen(rhyme), CONTEXT,
                               CHOIR_TRAIN, &chars, &text));
    choir_loader *data =
        choir_loader_new(run, text, (choir_loader_opts){16, 1, .shuffle = true});
    choir_init init = choir_init_normal(0, 0.02);
    int64_t size = choir_tokenizer_size(chars), ids[CONTEXT], next[CONTEXT];
    choir_module *gpt = choir_nn_sequential(run, choir_nn_embedding(run, size, WIDTH, init),
        choir_nn_transformer_block(run, WIDTH, 4, true, 0, 0.01),
        choir_nn_layer_norm(run, WIDTH), choir_nn_linear_with(run, WIDTH, size, true, init));
    choir_optim *opt = choir_adamw(run, gpt, choir_adamw_defaults());
    for (int step = 0; step <= 300; step++, choir_check(choir_scope_close(s))) {
        choir_batch b; /* x (16, CONTEXT) letters, y (16, CONTEXT) the ones that follow */
        choir_check(choir_loader_next(data, s = choir_step_open(run, (uint64_t)step), &b));
        choir_tensor *loss = choir_cross_entropy(choir_forward(gpt, b.x), b.y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (step % 100 == 0)
            printf("step %3d  loss %.3f\n", step, choir_item(loss));
    }
    choir_check(text->ops->get(text, 0, ids, next)); /* how the text begins, and then: */
    for (int i = 0; i < 60; i++, choir_check(choir_scope_close(s))) {
        printf("%s", choir_tokenizer_decode(chars, ids[0]));
        choir_tensor *x =
            choir_from(s = choir_no_grad(run), CHOIR_I64, choir_dims(CONTEXT), ids);
        choir_check(choir_read(choir_argmax(choir_forward(gpt, x)), next, sizeof next));
        memmove(ids, ids + 1, sizeof ids - sizeof *ids), ids[CONTEXT - 1] = next[CONTEXT - 1];
    }
}
