/* Backward: gradients of a scope's tape.
 *
 * The gradient of a parameter is the sum over the micro-batches since the last optimizer step,
 * in the fixed binary tree, times one over their number: the first backward after a step
 * overwrites, later ones are further leaves. There is no zero_grad.
 * Other leaves (choir_require_grad) add up what each backward gives, as PyTorch's do.
 *
 * Threads: those of the scope. */
#ifndef CHOIR_AUTOGRAD_H
#define CHOIR_AUTOGRAD_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Walks loss's tape and leaves gradients in parameters and in leaves that require them. loss
 * is one value, or a vector (n) of the losses of n micro-batches: each is walked from with
 * gradient 1, and the parameters' gradients are those of the losses' mean (of other leaves: of
 * their sum). Consumes the tape.
 * Under DDP it is collective. Reports the scope's error, if any. */
choir_status choir_backward(choir_tensor *loss);

/** Called when t's gradient is complete in a backward: t, its gradient of this micro-batch,
 *  arg. A parameter used several times: once a use, with that use's gradient; grad is NULL for
 *  a lookup table, whose gradient stays rows until the step ends. */
typedef void choir_grad_hook(choir_tensor *t, choir_tensor *grad, void *arg);

/** Adds a hook to a tensor or a parameter; it lives as long as t. */
void choir_on_grad(choir_tensor *t, choir_grad_hook *hook, void *arg);

/**
 * Compares the gradients of f with central differences, in f64.
 *
 * @param inputs  f64 leaves; all those that require a gradient are checked
 * @return CHOIR_OK, or CHOIR_ERR_ARGUMENT naming the first entry that differs by more than
 *         tolerance * max(1, |numeric|).
 */
typedef choir_tensor *choir_check_fn(choir_tensor *const *inputs, int count, void *arg);
choir_status choir_gradcheck(
    choir_check_fn *f, choir_tensor *const *inputs, int count, void *arg, double tolerance);

#ifdef __cplusplus
}
#endif
#endif
