/* Ops of a step's tensor and a parameter: also those that are made of other ops, of which one
 * may act on the parameter alone. The gradients have the bits that a tensor of the step, with
 * the parameter's values, gets in its place. */
#include <stdio.h>

#include <choir/autograd.h>
#include <choir/select.h>
#include <choir/volumes.h>

#include "base/base.h"
#include "scopes_fixture.h"

enum { MOST = 64 };

typedef choir_tensor *binary(choir_tensor *x, choir_tensor *w);

static choir_tensor *signals(choir_tensor *x, choir_tensor *w)
{
    return choir_conv1d(x, w, NULL, choir_conv_defaults());
}

static choir_tensor *biased_signals(choir_tensor *x, choir_tensor *w)
{
    return choir_conv1d(x, choir_exp(x), w, choir_conv_defaults());
}

static choir_tensor *images(choir_tensor *x, choir_tensor *w)
{
    return choir_conv2d(x, w, NULL, choir_conv_defaults());
}

static choir_tensor *volumes(choir_tensor *x, choir_tensor *w)
{
    return choir_conv3d(x, w, NULL, choir_conv3d_defaults());
}

static choir_tensor *einsum(choir_tensor *x, choir_tensor *w)
{
    return choir_einsum("ij,kj->ik", (choir_tensor *[]){x, w}, 2);
}

static choir_tensor *diagonal(choir_tensor *x, choir_tensor *w)
{
    return choir_einsum("ij,jj->i", (choir_tensor *[]){x, w}, 2);
}

static choir_tensor *cosine(choir_tensor *x, choir_tensor *w)
{
    return choir_cosine_similarity(x, w, 1, 1e-8);
}

static choir_tensor *where(choir_tensor *x, choir_tensor *w)
{
    return choir_where(choir_compare(x, CHOIR_GT, 1), x, w);
}

static choir_tensor *power_of(choir_tensor *x, choir_tensor *w)
{
    return choir_pow_tensor(w, x);
}

static choir_tensor *scatter(choir_tensor *x, choir_tensor *w)
{
    choir_tensor *ids = choir_zeros(step, CHOIR_I64, choir_tensor_shape(w));
    return choir_scatter_add(x, 0, ids, w);
}

static choir_tensor *gather(choir_tensor *x, choir_tensor *w)
{
    return choir_mul(
        x, choir_gather_dim(w, 0, choir_zeros(step, CHOIR_I64, choir_tensor_shape(x))));
}

static choir_tensor *cat(choir_tensor *x, choir_tensor *w)
{
    return choir_cat((choir_tensor *[]){x, w}, 2, 0);
}

static const struct {
    const char *name;
    binary *op;
    choir_shape x, w;
} ops[] = {
    {"add", choir_add, {2, {2, 3}}, {1, {3}}},
    {"div", choir_div, {2, {2, 3}}, {1, {3}}},
    {"pow_tensor", choir_pow_tensor, {2, {2, 3}}, {1, {3}}},
    {"pow_tensor of a parameter", power_of, {2, {2, 3}}, {1, {3}}},
    {"matmul", choir_matmul, {3, {2, 3, 4}}, {2, {4, 3}}},
    {"einsum", einsum, {2, {2, 3}}, {2, {4, 3}}},
    {"einsum with a diagonal", diagonal, {2, {2, 3}}, {2, {3, 3}}},
    {"cosine_similarity", cosine, {2, {2, 3}}, {2, {1, 3}}},
    {"where", where, {2, {2, 3}}, {1, {3}}},
    {"scatter_add", scatter, {2, {2, 3}}, {2, {2, 3}}},
    {"gather_dim", gather, {2, {2, 3}}, {2, {2, 3}}},
    {"cat", cat, {2, {2, 3}}, {2, {1, 3}}},
    {"conv1d", signals, {3, {2, 3, 5}}, {3, {2, 3, 2}}},
    {"conv1d with a bias", biased_signals, {3, {2, 2, 2}}, {1, {2}}},
    {"conv2d", images, {4, {1, 2, 3, 3}}, {4, {2, 2, 2, 2}}},
    {"conv3d", volumes, {5, {1, 2, 3, 3, 2}}, {5, {2, 2, 2, 2, 2}}},
};

static int64_t gradient(binary *op, choir_shape of_x, choir_tensor *w, float g[MOST])
{
    choir_tensor *x = choir_rand(step, of_x, "x", 0.5f, 2);
    choir_status status = choir_backward(choir_mean(choir_square(op(x, w))));
    if (status != CHOIR_OK)
        print_error("%s\n", choir_error_message());
    ok(status);
    int64_t count = choir_tensor_count(w);
    assert_true(count <= MOST);
    ok(choir_read(choir_grad(w), g, (size_t)count * sizeof *g));
    return count;
}

static const choir_module_class holder = {"holder", sizeof(choir_module), NULL, 0};

static void parameters(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(ops); i++) {
        float values[MOST], of_parameter[MOST], of_tensor[MOST];
        choir_tensor *w;
        choir_module *m = choir_module_new(run, &holder);
        choir_module_param(m, "w", &w, ops[i].w, choir_init_uniform(0.5, 2));
        choir_module_find(m, "w"); /* the parameter gets its values */
        size_t bytes = (size_t)choir_tensor_count(w) * sizeof *values;
        ok(choir_read(w, values, bytes));
        gradient(ops[i].op, ops[i].x, w, of_parameter);
        close_scopes(state);
        open_scopes(state);
        choir_tensor *t = choir_from(step, CHOIR_F32, ops[i].w, values);
        gradient(ops[i].op, ops[i].x, choir_require_grad(t), of_tensor);
        if (memcmp(of_parameter, of_tensor, bytes))
            fail_msg("%s: the parameter's gradient differs", ops[i].name);
        close_scopes(state); /* each x is the first of its step */
        open_scopes(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
