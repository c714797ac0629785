/* Mixed precision: ops that gain by it in bf16 or f16, the others and all weights in f32.
 *
 *   choir_autocast(run, CHOIR_BF16);          from the next step on
 *
 * Weights, their gradients and the optimizer's state stay f32 (master weights). Each op casts
 * its operands as its name says, after PyTorch's lists:
 *
 *   to the 16-bit type  linear matmul conv2d conv_transpose2d attention, recurrent layers
 *   to f32              exp log square softmax sum mean, layer RMS and group norm, all losses
 *   to the widest       add sub mul div swiglu cat
 *   as they come        all others: activations, pooling, dropout, batch norm, views
 *
 * A parameter is cast once a micro-batch; its gradient comes back in f32. f64 operands stay.
 * Backward follows the dtypes of the forward. The same bits come out of every strategy, as in
 * f32.
 *
 * f16 has few exponents: gradients below 6e-8 are zero, and above 65504 infinite. A scaler
 * multiplies the loss' gradient by a scale that is as large as it may be:
 *
 *   choir_scaler *scaler = choir_scaler_new(run, choir_scaler_defaults());
 *   ...
 *   loss = choir_scaler_scale(scaler, loss);
 *   choir_check(choir_backward(loss));
 *   choir_check(choir_scaler_step(scaler, optim));
 *   choir_check(choir_scaler_update(scaler));
 *
 * Scale, verdict and counters lie in device memory, so a step may be recorded.
 *
 * Threads: those of the run. */
#ifndef CHOIR_AMP_H
#define CHOIR_AMP_H

#include <choir/dtype.h>
#include <choir/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_optim choir_optim;
typedef struct choir_scaler choir_scaler;

/** The ops of scope, and of scopes opened in it from now on, cast to dtype: bf16 or f16 (else
 * the scope has an error: argument). */
void choir_autocast(choir_scope *scope, choir_dtype dtype);
/** They do not any more: for a part of a model that must stay f32. 16-bit tensors that come in
 * are not cast either; choir_cast does that. */
void choir_autocast_off(choir_scope *scope);

/** Apex's levels, of f16, as a setting of scope:
 *   O0  f32
 *   O1  autocast to f16; for use with a scaler
 *   O2  from the first product or lookup on everything is f16, up to the losses, but for batch
 *       norm's numbers; weights are f32, their f16 values made once a micro-batch; for use with
 *       a scaler
 *   O3  batch norm's numbers are f16, too; for parameters of f16 (choir_module_cast), which no
 *       scaler takes
 *
 * Error of scope: argument, for another level. */
void choir_amp_level(choir_scope *scope, int level);

typedef struct choir_scaler_opts {
    float scale;           /* at first */
    float growth, backoff; /* what it is multiplied by, upwards and downwards */
    int64_t interval;      /* clean steps in a row after which it grows */
    int64_t patience;      /* skipped steps in a row that are an error: nonfinite */
} choir_scaler_opts;

choir_scaler_opts choir_scaler_defaults(void); /* 65536, 2, 0.5, 2000, 40 */

/** A gradient scaler of the run [torch.amp.GradScaler]. Errors stick to the run: argument. */
choir_scaler *choir_scaler_new(choir_scope *run, choir_scaler_opts opts);

/** The loss, in value as it is, whose gradients will be multiplied by the scale. */
choir_tensor *choir_scaler_scale(choir_scaler *scaler, choir_tensor *loss);

/** Divides the optimizer's gradients by the scale where they lie, for who wants to look at them
 * before the step; the reciprocal is rounded once from f64. Errors: state (a second time since
 * the last update, or after the step). */
choir_status choir_scaler_unscale(choir_scaler *scaler, choir_optim *optim);

/** choir_optim_step on unscaled gradients; their norm, and clipping, are of those. Where one of
 * them is infinite or NaN, on any device or rank, parameters and state stay as they are, and
 * bias corrections do not count the step; the schedule does. Errors: state (twice without an
 * update), dtype (16-bit parameters). */
choir_status choir_scaler_step(choir_scaler *scaler, choir_optim *optim);

/** Lowers the scale if a step since the last update was skipped, or counts a clean one. After
 * `patience` skipped ones in a row the run has an error: nonfinite. Errors: state (no step). */
choir_status choir_scaler_update(choir_scaler *scaler);

typedef struct choir_scaler_state {
    float scale;
    int64_t clean;      /* steps in a row since the scale changed */
    int64_t in_a_row;   /* steps skipped, up to the latest */
    int64_t skipped[8]; /* in all, of each optimizer, in the order of their first use */
} choir_scaler_state;

/** Waits for the device, and reads it; for checkpoints. */
choir_status choir_scaler_get(const choir_scaler *scaler, choir_scaler_state *state);
/** Goes on from a state, with an optimizer as restored: one at a time, in order. Errors:
 * argument. */
choir_status choir_scaler_set(
    choir_scaler *scaler, choir_optim *optim, choir_scaler_state state);

#ifdef __cplusplus
}
#endif
#endif
