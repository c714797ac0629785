/* Backward: gradients of a scope's tape.
 *
 * The gradient of a parameter is the sum over the micro-batches since the last optimizer step,
 * in the fixed binary tree, times one over their number: if losses are means, this is the
 * gradient of the mean of means. Where some targets are ignored, choir_loss_divisor (ops.h)
 * turns it into the gradient of the mean over all targets that count. The first backward after
 * a step overwrites the old gradient, and later ones add further leaves to the tree;
 * choir_optim_zero (optim.h) drops them. Other leaves (choir_require_grad) accumulate the
 * gradient of each backward, as PyTorch's do, until choir_zero_grad.
 *
 * Threads: the scope's thread. */
#ifndef CHOIR_AUTOGRAD_H
#define CHOIR_AUTOGRAD_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Walks loss's tape and leaves gradients in parameters and in leaves that require them. The
 * tape is consumed. loss is one value, or a vector (n) of the losses of n micro-batches. For a
 * vector, the walk starts from each loss with gradient 1; parameters get the gradient of the
 * losses' mean, other leaves the gradient of their sum. Reports the scope's error, if any.
 * Collective under DDP. */
CHOIR_CHECKED choir_status choir_backward(choir_tensor *loss);

/**
 * Stores in dx[i] the derivative of y's sum by x[i], as tensors that have a history themselves
 * (torch.autograd.grad with create_graph): a loss may contain them, and choir_backward or
 * another call gives second derivatives. A gradient penalty, a physical equation:
 *
 *     choir_tensor *g;
 *     choir_check(choir_derivatives(choir_forward(critic, x), &x, 1, &g));
 *     penalty = choir_mean(choir_square(choir_affine(choir_norm_dim(g, 2, 1, false), 1, -1)));
 *
 * @param y   a floating tensor of an open scope; its tape stays, and no gradient is left in
 *            parameters or leaves
 * @param x   count tensors that y depends on: leaves, parameters or results
 * @param dx  (count) receives tensors of x's shapes; zeros where y does not depend on x[i]
 *
 * Ops of one element, products (choir_matmul, choir_linear, choir_einsum), convolutions without
 * groups, sums, views, choices and lookups, softmax, linear algebra (linalg.h), and
 * choir_custom, whose backward is made of ops, have second derivatives. Attention, norms in one
 * op, pooling, recurrent layers and losses in one op have none: an error that names the op.
 * Write such a loss with the ops above. Errors: argument, state (no history); unsupported (an
 * op without a second derivative). Collective: no.
 */
CHOIR_CHECKED choir_status choir_derivatives(
    choir_tensor *y, choir_tensor *const *x, int count, choir_tensor **dx);

/** A function that backward calls when t's gradient is complete. Its arguments are t, the
 * gradient of this micro-batch, and arg. A parameter used several times causes one call per
 * use, with that use's gradient. grad is NULL for a lookup table whose gradient stays in rows
 * until the step ends: always, but where the rows of all ranks would be more than the table. */
typedef void choir_grad_hook(choir_tensor *t, choir_tensor *grad, void *arg);

/** Adds a hook to a tensor or a parameter; the hook lives as long as t. */
void choir_on_grad(choir_tensor *t, choir_grad_hook *hook, void *arg);

typedef choir_tensor *choir_check_fn(choir_tensor *const *inputs, int count, void *arg);

/**
 * Compares the gradients of f with central differences, in f64.
 *
 * @param inputs  f64 leaves; all those that require a gradient are checked
 * @return CHOIR_OK, or CHOIR_ERR_ARGUMENT naming the first entry that differs by more than
 *         tolerance * max(1, |numeric|).
 */
CHOIR_CHECKED choir_status choir_gradcheck(
    choir_check_fn *f, choir_tensor *const *inputs, int count, void *arg, double tolerance);

#ifdef __cplusplus
}
#endif
#endif
