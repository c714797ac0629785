/* An op with a user's gradient: SiLU, y = x s(x), which saves only x and not the sigmoid s. */
#include <stdio.h>
#include <choir/choir.h>

static choir_tensor *forward(choir_tensor *const *in, int count, const void *arg)
{
    (void)count, (void)arg;
    return choir_mul(in[0], choir_sigmoid(in[0]));
}

/* dy/dx = s + y (1 - s) */
static void backward(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    (void)count, (void)arg;
    choir_tensor *s = choir_sigmoid(in[0]);
    choir_tensor *slope = choir_add(s, choir_mul(out, choir_affine(s, -1, 1)));
    grad_in[0] = choir_mul(grad_out, slope);
}

static choir_tensor *summed_silu(choir_tensor *const *in, int count, void *arg)
{
    static const choir_custom_op silu = {"silu", forward, backward};
    return choir_sum(choir_custom(&silu, in, count, arg));
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    const double values[] = {-2, -0.5, 0, 1, 3};
    choir_tensor *x = choir_require_grad(choir_from(s, CHOIR_F64, choir_dims(5), values));

    choir_check(choir_gradcheck(summed_silu, &x, 1, NULL, 1e-6)); /* runs backward, too */
    printf("backward agrees with finite differences:\n");
    choir_print(choir_grad(x));
    choir_check(choir_scope_close(s));
    return choir_scope_close(run);
}
