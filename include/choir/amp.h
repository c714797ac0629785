/* Mixed precision: ops that benefit from it run in bf16 or f16; other ops and all weights use
 * f32.
 *
 *   choir_autocast(run, CHOIR_BF16);          from the next step on
 *
 * Weights, their gradients and the optimizer's state stay f32 (master weights). Each op casts
 * its operands by its name, following PyTorch's lists:
 *
 *   to the 16-bit type  linear matmul conv2d conv_transpose2d attention, recurrent layers
 *   to f32              exp log square softmax sum mean, layer RMS and group norm, all losses
 *   to the widest       add sub mul div swiglu cat
 *   unchanged           all others: activations, pooling, dropout, batch norm, views
 *
 * A parameter is cast once per micro-batch; its gradient arrives in f32. f64 operands stay
 * f64. Backward uses the dtypes of the forward pass. All strategies give the same bits, as in
 * f32.
 *
 * f16 has a small range: gradients below 6e-8 become zero, and those above 65504 infinite. A
 * scaler multiplies the loss's gradient by the largest scale that causes no overflow:
 *
 *   choir_scaler *scaler = choir_scaler_new(run, choir_scaler_defaults());
 *   ...
 *   loss = choir_scaler_scale(scaler, loss);
 *   choir_check(choir_backward(loss));
 *   choir_check(choir_scaler_step(scaler, optim));
 *   choir_check(choir_scaler_update(scaler));
 *
 * The scale, the check for non-finite gradients and the counters reside in device memory, so a
 * step can be recorded.
 *
 * Threads: the run's thread. */
#ifndef CHOIR_AMP_H
#define CHOIR_AMP_H

#include <choir/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_scaler choir_scaler;

/** Makes the ops of scope, and of scopes opened in it later, cast to dtype: bf16 or f16. Error
 * of scope: argument, for another dtype. */
void choir_autocast(choir_scope *scope, choir_dtype dtype);
/** Turns autocast off, for a part of a model that must stay f32. 16-bit tensors that enter it
 * are not cast either; choir_cast does that. */
void choir_autocast_off(choir_scope *scope);

/**
 * Sets one of Apex's levels, in f16, for scope:
 *   O0  f32
 *   O1  autocast to f16; for use with a scaler
 *   O2  everything from the first product or lookup up to the losses is f16, except for batch
 *       norm's parameters and statistics; weights are f32, and their f16 values are made once
 *       per micro-batch; for use with a scaler
 *   O3  batch norm's parameters and statistics are f16, too; for parameters of f16
 *       (choir_module_cast), which scalers do not support
 *
 * Error of scope: argument, for another level.
 */
void choir_amp_level(choir_scope *scope, int level);

typedef struct choir_scaler_opts {
    float scale;           /* initial scale */
    float growth, backoff; /* factors that raise and lower the scale */
    int64_t interval;      /* clean steps in a row after which the scale grows */
    int64_t patience;      /* skipped steps in a row that cause an error: nonfinite */
} choir_scaler_opts;

/* scale 65536, growth 2, backoff 0.5, interval 2000, patience 40 */
choir_scaler_opts choir_scaler_defaults(void);

/** Makes a gradient scaler of the run [torch.amp.GradScaler]. Errors stick to the run:
 * argument. */
choir_scaler *choir_scaler_new(choir_scope *run, choir_scaler_opts opts);

/** Returns a loss of equal value whose gradients will be multiplied by the scale. */
choir_tensor *choir_scaler_scale(choir_scaler *scaler, choir_tensor *loss);

/** Divides the optimizer's gradients by the scale, in place, for programs that read them before
 * the step. The reciprocal is rounded once from f64. Errors: state (a second call since the
 * last update, or a call after the step). */
CHOIR_CHECKED choir_status choir_scaler_unscale(choir_scaler *scaler, choir_optim *optim);

/** Runs choir_optim_step on unscaled gradients; the gradient norm, and clipping, use these. If
 * a gradient is infinite or NaN, on any device or rank, parameters and optimizer state stay
 * unchanged: bias corrections do not count the skipped step, but the learning-rate schedule
 * does. Errors: state (a second call without choir_scaler_update), dtype (16-bit
 * parameters). */
CHOIR_CHECKED choir_status choir_scaler_step(choir_scaler *scaler, choir_optim *optim);

/** Lowers the scale if a step since the last update was skipped, or else counts a clean one.
 * After `patience` skipped steps in a row the run has an error: nonfinite. Errors: state (no
 * step). */
CHOIR_CHECKED choir_status choir_scaler_update(choir_scaler *scaler);

typedef struct choir_scaler_state {
    float scale;
    int64_t clean;    /* clean steps in a row since the scale changed */
    int64_t in_a_row; /* skipped steps in a row, up to the latest step */
    /* total skipped steps per optimizer, in the order of their first use */
    int64_t skipped[8];
} choir_scaler_state;

/** Waits for the device and reads the scaler's state, for checkpoints. */
CHOIR_CHECKED choir_status choir_scaler_get(
    const choir_scaler *scaler, choir_scaler_state *state);
/** Restores a state, together with a restored optimizer; call it for one optimizer at a time,
 * in the order of their first use. Errors: argument. */
CHOIR_CHECKED choir_status choir_scaler_set(
    choir_scaler *scaler, choir_optim *optim, choir_scaler_state state);

#ifdef __cplusplus
}
#endif
#endif
