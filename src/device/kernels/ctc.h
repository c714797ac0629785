/* The arguments of the kernels of connectionist temporal classification (Graves et al., 2006).
 * kernels.h includes this header. */
#ifndef CHOIR_KERNELS_CTC_H
#define CHOIR_KERNELS_CTC_H

#include <choir/dtype.h>
#include "base/base.h"

/* The losses of sequences: loss[b] = -log of the probability of all paths through x (steps,
 * batch, classes), over the first input_lengths[b] steps, that read targets[b] with blanks
 * between and repetitions; backward writes all of gx = gloss[b] dloss[b] / dx.
 *
 * A target of n labels has 2 n + 1 states, blank, label, blank, ...; width = 2 most + 1 is the
 * number for the longest. A path begins in state 0 or 1, ends in one of the last two, and each
 * step stays, goes to the next state, or skips a blank between two different labels.
 *
 *   alpha[b, t, s] = log of the probability of all beginnings that are in state s at step t,
 *                    minus top[0] + ... + top[t - 1]
 *   top[t]         = the greatest alpha[b, t, s]; 0 if all are -inf
 *
 * so that f32 keeps its digits however long the sequence is. Entries beyond the item's steps
 * and states are -inf. The sum of the tops is f64. Terms of a class are added in the order of
 * states, or in a fixed tree.
 *
 * A target that no path reads has an infinite loss, and gradients that are NaN in its steps;
 * with zero_infinity both are 0. Lengths and labels out of range fail the queue. dtype is f32
 * or f64. */
typedef struct choir__k_ctc {
    const void *x;                                 /* (steps, batch, classes) */
    const int64_t *targets;                        /* (batch, most) */
    const int64_t *input_lengths, *target_lengths; /* (batch) */
    void *alpha;                                   /* (batch, steps, width); backward reads */
    void *loss;                                    /* (batch); forward */
    const void *gloss;                             /* (batch); backward */
    void *gx;                                      /* (steps, batch, classes); backward */
    int64_t steps, batch, classes, most, blank;
    bool zero_infinity;
    choir_dtype dtype;
} choir__k_ctc;

/* The faults of a sequence, with their words in CHOIR__CTC_FAULT. */
typedef enum choir__ctc_part {
    CHOIR__CTC_STEPS,
    CHOIR__CTC_LABELS,
    CHOIR__CTC_LABEL,
    CHOIR__CTC_PARTS /* nothing is wrong */
} choir__ctc_part;

static inline const char *choir__ctc_part_text(choir__ctc_part part)
{
    static const char *const texts[CHOIR__CTC_PARTS] = {
        "an input length", "a target length", "a target other than the blank"};
    return (unsigned)part < CHOIR__CTC_PARTS ? texts[part] : "?";
}

/* part, limit, value, sequence */
#define CHOIR__CTC_FAULT "ctc_loss: expected %s from 0 to %lld, got %lld in sequence %lld"

/* Returns the fault of sequence b, with the offending value and its limit. */
static inline choir__ctc_part choir__ctc_check(
    const choir__k_ctc *k, int64_t b, int64_t *value, int64_t *limit)
{
    *value = k->input_lengths[b], *limit = k->steps;
    if (*value < 0 || *value > *limit)
        return CHOIR__CTC_STEPS;
    *value = k->target_lengths[b], *limit = k->most;
    if (*value < 0 || *value > *limit)
        return CHOIR__CTC_LABELS;
    int64_t n = *value;
    *limit = k->classes - 1;
    for (int64_t i = 0; i < n; i++) {
        *value = k->targets[b * k->most + i];
        if (*value < 0 || *value > *limit || *value == k->blank)
            return CHOIR__CTC_LABEL;
    }
    return CHOIR__CTC_PARTS;
}

#endif
