/* Sampling from a language model: one token after another, drawn from the scores of the last.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/rng.h"
#include "job/trainer/trainer.h"

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Returns the k-th largest of n scores. */
static float kth_largest(const float *scores, int64_t n, int64_t k)
{
    float *sorted = choir__alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, scores, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    float value = sorted[choir__min(k, n) - 1];
    free(sorted);
    return value;
}

/* Draws from softmax(scores / temperature) over the top_k scores (0: over all); temperature 0
 * takes the largest. */
static int64_t draw(
    const float *scores, int64_t n, double temperature, int64_t top_k, float unit)
{
    float floor_score = top_k && top_k < n ? kth_largest(scores, n, top_k) : -INFINITY;
    int64_t best = 0;
    double total = 0, sum = 0;
    for (int64_t i = 1; i < n; i++)
        best = scores[i] > scores[best] ? i : best;
    if (temperature <= 0)
        return best;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            if (scores[i] < floor_score)
                continue;
            double p = choir__exp((double)(scores[i] - scores[best]) / temperature);
            if (!pass)
                total += p;
            else if ((sum += p) > (double)unit * total)
                return i;
        }
    return best;
}

/* Computes the scores (V) of the token that follows ids (t). */
static choir_status next_scores(choir_scope *run, choir_module *net, const int64_t *ids,
    int64_t t, float *scores, int64_t vocabulary)
{
    choir_scope *step = choir_no_grad(run);
    choir_tensor *out = choir_forward(net, choir_from(step, CHOIR_I64, choir_dims(1, t), ids));
    choir_tensor *last = choir_cast(choir_narrow(out, 1, t - 1, 1), CHOIR_F32); /* (1, 1, V) */
    choir_status status = choir_read(last, scores, (size_t)vocabulary * sizeof *scores);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

choir_status choir__generate(choir_scope *run, choir_module *net, const choir_model_info *info,
    const choir_tokenizer *tokenizer, const int64_t *prompt, int64_t prompt_count,
    int64_t count, double temperature, int64_t top_k, FILE *out)
{
    int64_t context = info->input.dim[0], n = info->classes, used = choir__max(prompt_count, 1);
    int64_t *ids = choir__calloc((size_t)(used + count), sizeof *ids); /* no prompt: token 0 */
    float *scores = choir__alloc((size_t)n * sizeof *scores);
    choir_status status = CHOIR_OK;
    if (prompt_count)
        memcpy(ids, prompt, (size_t)prompt_count * sizeof *ids);
    choir_module_train(net, false);
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++) {
        int64_t t = choir__min(used, context);
        status = next_scores(run, net, ids + used - t, t, scores, n);
        if (status != CHOIR_OK)
            break;
        uint32_t words[4];
        choir__philox(choir__rng_key(choir_scope_seed(run), "generate"), 0, (uint64_t)i, words);
        int64_t id = draw(scores, n, temperature, top_k, choir__unit(words[0]));
        size_t bytes = 1;
        const char *text = choir_tokenizer_token(tokenizer, id, &bytes);
        fwrite(text ? text : "?", 1, bytes, out);
        fflush(out);
        ids[used++] = id;
    }
    choir_module_train(net, true);
    free(ids);
    free(scores);
    return status;
}
