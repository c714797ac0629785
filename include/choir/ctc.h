/* CTC, the loss of sequences whose labels have unknown positions: speech, handwriting (Graves
 * et al., "Connectionist temporal classification", 2006).
 *
 * A net reads T steps and gives, for each, log-probabilities of the labels and of a *blank*. A
 * path of one class per step stands for the labels that remain after repetitions are merged and
 * blanks removed: "-hh-e-ll-lo-" reads "hello". The loss of a sequence is -log of the
 * probability of all paths that read its target.
 *
 *     choir_tensor *loss = choir_ctc_loss(choir_log_softmax(scores), targets, steps, lengths);
 *
 * Threads: the thread of the operands' scope. Collective: none. */
#ifndef CHOIR_CTC_H
#define CHOIR_CTC_H

#include <choir/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_ctc_loss_opts {
    int64_t blank;             /* the blank's class; default 0 */
    choir_reduction reduction; /* default CHOIR_LOSS_MEAN */
    bool zero_infinity;        /* default false */
} choir_ctc_loss_opts;

choir_ctc_loss_opts choir_ctc_loss_defaults(void);

/**
 * Computes the losses of a batch of sequences, as torch.nn.functional.ctc_loss does.
 *
 * @param log_probs       (T, B, C) floating: choir_log_softmax of scores
 * @param targets         (B, S) i64: labels in [0, C) other than the blank; entries beyond a
 *                        target's length are not read
 * @param input_lengths   (B) i64, steps of each sequence, at most T
 * @param target_lengths  (B) i64, labels of each target, at most S; 0 is a silent sequence
 * @return                ()  CHOIR_LOSS_MEAN: each loss divided by its target's length (at
 *                        least 1), then the mean over B; CHOIR_LOSS_SUM: their sum; (B)
 *                        CHOIR_LOSS_NONE. f64 for f64, else f32: 16-bit operands are computed
 *                        in f32
 *
 * A target that needs more steps than the sequence has (one per label, and a blank between
 * equal neighbours) has an infinite loss and gradients that are NaN; with zero_infinity both
 * are 0, and the sequence still counts in the mean.
 *
 * The mean over micro-batches of equal B is the mean of the whole batch. For a loss per label
 * instead, take the sum and divide by choir_loss_divisor of the targets, padded with its
 * ignore_index.
 *
 * Gradient: log_probs, its derivative. PyTorch adds exp(log_probs) to it, which changes nothing
 * if log_probs is the result of a log_softmax. Sums have a fixed order: the bits depend neither
 * on threads nor on timing. Errors: shape, dtype, device; argument, a blank outside [0, C) or
 * another reduction. Execution error: range, a length or a label outside its bounds, naming the
 * sequence.
 */
choir_tensor *choir_ctc_loss(choir_tensor *log_probs, choir_tensor *targets,
    choir_tensor *input_lengths, choir_tensor *target_lengths);
choir_tensor *choir_ctc_loss_with(choir_tensor *log_probs, choir_tensor *targets,
    choir_tensor *input_lengths, choir_tensor *target_lengths, choir_ctc_loss_opts opts);

#ifdef __cplusplus
}
#endif
#endif
