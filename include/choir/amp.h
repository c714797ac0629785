/* Mixed precision: ops that gain by it in bf16 or f16, the others and all weights in f32.
 *
 *   choir_autocast(run, CHOIR_BF16);          from the next step on
 *
 * Weights, their gradients and the optimizer's state stay f32 (master weights). Each op casts its
 * operands as its name says, after PyTorch's lists:
 *
 *   to the 16-bit type  linear matmul conv2d conv_transpose2d attention, recurrent layers
 *   to f32              exp log square softmax sum mean, layer RMS and group norm, all losses
 *   to the widest       add sub mul div swiglu cat
 *   as they come        all others: activations, pooling, dropout, batch norm, views
 *
 * A parameter is cast once a micro-batch; its gradient comes back in f32. f64 operands stay.
 * Backward follows the dtypes of the forward. The same bits come out of every strategy, as in f32.
 *
 * f16 has few exponents: gradients below 6e-8 are zero, and above 65504 infinite. A scaler
 * multiplies the loss' gradient by a scale that is as large as it may be:
 *
 *   choir_scaler *scaler = choir_scaler_new(run, choir_scaler_defaults());
 *   ...
 *   choir_check(choir_backward(choir_scaler_scale(scaler, loss)));
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

/** The ops of scope, and of scopes opened in it from now on, cast to dtype: bf16 or f16 (else
 * the scope has an error: argument). */
void choir_autocast(choir_scope *scope, choir_dtype dtype);
/** They do not any more: for a part of a model that must stay f32. 16-bit tensors that come in
 * are not cast either; choir_cast does that. */
void choir_autocast_off(choir_scope *scope);

#ifdef __cplusplus
}
#endif
#endif
