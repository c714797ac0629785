/* A net learns to read words from noisy steps; no label says which step has which letter. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

enum { T = 14, B = 32, S = 3, LETTERS = 5 }; /* class 0 is the blank */

/* Each letter of a word is heard in one step, somewhere in its third of the time. */
static void hear(int64_t words[B * S], float x[T * B * LETTERS])
{
    for (int i = 0; i < T * B * LETTERS; i++)
        x[i] = (float)(rand() % 100) / 200;
    for (int i = 0; i < B * S; i++) {
        int t = i % S * 5 + rand() % 3, letter = rand() % LETTERS;
        x[(t * B + i / S) * LETTERS + letter] += 1, words[i] = 1 + letter;
    }
}
int main(void)
{
    int64_t words[B * S], best[T * B];
    static float x[T * B * LETTERS];
    choir_scope *run = choir_scope_open(NULL, 42), *s;
    choir_module *gru = choir_nn_gru(run, LETTERS, 32, choir_recurrent_defaults()),
                 *net = choir_nn_sequential(run, gru, choir_nn_linear(run, 32, 1 + LETTERS));
    choir_optim *opt = choir_sgd(run, net, (choir_sgd_opts){.lr = 0.2f, .momentum = 0.9f});
    for (int i = 0; i < 300; i++, choir_check(choir_scope_close(s))) {
        hear(words, x), s = choir_step_open(run, (uint64_t)i);
        choir_tensor *in = choir_from(s, CHOIR_F32, choir_dims(T, B, LETTERS), x);
        choir_tensor *scores = choir_forward(net, in); /* (T, B, 1 + LETTERS) */
        choir_tensor *y = choir_from(s, CHOIR_I64, choir_dims(B, S), words);
        choir_tensor *steps = choir_full(s, CHOIR_I64, choir_dims(B), T),
                     *lengths = choir_full(s, CHOIR_I64, choir_dims(B), S);
        choir_tensor *loss = choir_ctc_loss(choir_log_softmax(scores), y, steps, lengths);
        choir_check(choir_read(choir_argmax(scores), best, sizeof best));
        choir_check(choir_backward(loss)), choir_check(choir_optim_step(opt));
    }
    for (int t = 0; t < T + S; t++) /* a path such as "--a-bb--c", and the word that it reads */
        printf("%s%c", t == T ? " reads " : "", "-abcde"[t < T ? best[t * B] : words[t - T]]);
    puts(""), choir_check(choir_scope_close(run));
}
