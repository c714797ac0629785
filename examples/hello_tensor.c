/* Tensors, ops, and a gradient: y = mean((x w + 1)^2), beside dy/dw computed by hand. */
#include <stdio.h>
#include <choir/choir.h>

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42); /* on cpu:0; 42 is the seed */
    choir_scope *step = choir_step_open(run, 0);   /* every tensor lives in a scope */

    const float rows[] = {1, 2, 3, 4, 5, 6};
    choir_tensor *x = choir_from(step, CHOIR_F32, choir_dims(3, 2), rows);
    choir_tensor *w = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2, 1), 0.5));
    choir_print(x);

    choir_tensor *r = choir_affine(choir_matmul(x, w), 1, 1); /* 1 (x w) + 1: (3, 1) */
    choir_print(r);
    choir_tensor *y = choir_mean(choir_square(r));

    choir_check(choir_backward(y)); /* frees r's memory; y and w stay */
    printf("y = %.4f\ndy/dw =\n", choir_item(y));
    choir_print(choir_grad(w));

    double by_hand = 0; /* dy/dw0 = 2/3 sum_i r_i x_i0 */
    for (int i = 0; i < 3; i++)
        by_hand += 2.0 / 3 * (0.5 * rows[2 * i] + 0.5 * rows[2 * i + 1] + 1) * rows[2 * i];
    printf("by hand, dy/dw0 = %.4f\n", by_hand);

    choir_check(choir_scope_close(step)); /* frees its tensors, all at once */
    choir_check(choir_scope_close(run));
    return 0;
}
