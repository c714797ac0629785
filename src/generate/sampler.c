/* Scores become a token: processed as transformers' logits processors do, in their order, then
 * one draw. The draw depends on the seed and the number of the token in its text alone. */
#include "generate/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/floats.h"
#include "base/math/functions.h"
#include "base/rng.h"

const char *choir__sampler_wrong(const choir_generate_opts *o)
{
    return !(o->temperature >= 0 && isfinite(o->temperature))
               ? "expected a temperature of 0 or more"
           : o->top_k < 0                      ? "expected a top_k of 0 or more"
           : !(o->top_p > 0 && o->top_p <= 1)  ? "expected a top_p above 0, up to 1"
           : !(o->min_p >= 0 && o->min_p <= 1) ? "expected a min_p from 0 to 1"
           : !(o->repetition_penalty > 0 && isfinite(o->repetition_penalty))
               ? "expected a repetition_penalty above 0"
               : NULL;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static float largest(const float *scores, int64_t n)
{
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        top = scores[i] > top ? scores[i] : top;
    return top;
}

static void leave_out_below(float *scores, int64_t n, float least)
{
    for (int64_t i = 0; i < n; i++)
        scores[i] = scores[i] < least ? -INFINITY : scores[i];
}

/* Sinks heap[0] in a heap of k scores: none is larger than the two below it. */
static void sink(float *heap, int64_t k)
{
    const float x = heap[0];
    int64_t at = 0;
    for (int64_t next; (next = 2 * at + 1) < k; at = next) {
        next += next + 1 < k && heap[next + 1] < heap[next];
        if (!(heap[next] < x))
            break;
        heap[at] = heap[next];
    }
    heap[at] = x;
}

/* Returns the k-th largest of n scores; to sort all of a vocabulary would take as long as a
 * small model. heap: room for k, which keeps the largest so far. */
static float largest_but(const float *scores, int64_t n, float *heap, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        heap[i] = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] > heap[0]) {
            heap[0] = scores[i];
            sink(heap, k);
        }
    return heap[0];
}

/* Returns the likelihood of a score relative to the likeliest's. */
static double weight(float score, float top)
{
    return score == -INFINITY ? 0 : choir__exp((double)score - (double)top);
}

/* Leaves out the tokens behind the first whose probabilities reach p together. Equal scores
 * stay together. sorted: room for n scores. */
static void keep_share(float *scores, float *sorted, int64_t n, double p)
{
    double total = 0, sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] != -INFINITY)
            sorted[count++] = scores[i];
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    for (int64_t i = 0; i < count; i++)
        total += weight(sorted[i], sorted[0]);
    for (int64_t i = 0; i < count; i++) {
        sum += weight(sorted[i], sorted[0]);
        if (sum >= p * total) {
            leave_out_below(scores, n, sorted[i]);
            return;
        }
    }
}

void choir__sampler_process(
    const choir_generate_opts *o, const bool *seen, float *scores, int64_t n)
{
    const float penalty = (float)o->repetition_penalty, heat = (float)o->temperature;
    for (int64_t i = 0; i < n && penalty != 1; i++)
        if (seen[i])
            scores[i] = scores[i] < 0 ? scores[i] * penalty : scores[i] / penalty;
    if (o->temperature == 0)
        return;
    for (int64_t i = 0; i < n && heat != 1; i++)
        scores[i] /= heat;
    float *sorted = o->top_k || o->top_p < 1 ? choir__alloc((size_t)n * sizeof *sorted) : NULL;
    if (o->top_k && o->top_k < n)
        leave_out_below(scores, n, largest_but(scores, n, sorted, o->top_k));
    if (o->top_p < 1)
        keep_share(scores, sorted, n, o->top_p);
    free(sorted);
    if (o->min_p > 0) {
        float top = largest(scores, n);
        for (int64_t i = 0; i < n; i++)
            if (weight(scores[i], top) < o->min_p)
                scores[i] = -INFINITY;
    }
}

int64_t choir__sampler_draw(
    const choir_generate_opts *o, const float *scores, int64_t n, int64_t number)
{
    float top = largest(scores, n);
    double total = 0, sum = 0;
    int64_t best = 0;
    while (best < n - 1 && scores[best] != top)
        best++;
    if (o->temperature == 0)
        return best;
    uint32_t words[4];
    choir__philox(choir__rng_key(o->seed, "generate"), 0, (uint64_t)number, words);
    for (int64_t i = 0; i < n; i++)
        total += weight(scores[i], top);
    for (int64_t i = 0; i < n; i++)
        if ((sum += weight(scores[i], top)) > (double)choir__unit(words[0]) * total)
            return i;
    return best;
}

choir_status choir_generate_scores(
    choir_generate_opts opts, const int64_t *ids, int64_t count, float *scores, int64_t n)
{
    CHOIR__DEFAULT_FLOATS;
    if (!scores || (count > 0 && !ids))
        return choir__missing(__func__, scores ? "ids" : "scores");
    const char *wrong = choir__sampler_wrong(&opts);
    if (wrong || count < 0 || n < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "generate_scores: %s; begin with choir_generate_defaults()",
            wrong ? wrong : "expected ids and scores");
    bool *seen = choir__calloc((size_t)n, sizeof *seen);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= 0 && ids[i] < n)
            seen[ids[i]] = true;
    choir__sampler_process(&opts, seen, scores, n);
    free(seen);
    return CHOIR_OK;
}
