/* Every differentiable op against central differences, in f64 (which runs the reference
 * kernels). */

#include "gradcheck_fixture.h"
#include "tensor/tensor.h"

/* --- unary --- */

typedef choir_tensor *unary_fn(choir_tensor *x);

static choir_tensor *apply_unary(choir_tensor *const *in, int count, void *arg)
{
    return weigh((*(unary_fn **)arg)(in[0]));
}

static choir_tensor *affine(choir_tensor *x)
{
    return choir_affine(x, -1.5, 0.25);
}

static choir_tensor *transposed(choir_tensor *x)
{
    return choir_transpose(x, 0, 1);
}

static choir_tensor *turned_relu(choir_tensor *x) /* on memory that is not row-major */
{
    return choir_relu(choir_transpose(x, 0, 1));
}

static choir_tensor *reshaped(choir_tensor *x)
{
    return choir_reshape(choir_transpose(x, 0, 1), choir_dims(3, -1));
}

static choir_tensor *narrowed(choir_tensor *x)
{
    return choir_narrow(x, 1, 1, 2);
}

static choir_tensor *expanded(choir_tensor *x)
{
    return choir_expand(choir_sum_dim(x, 0), choir_dims(2, 3));
}

static choir_tensor *joined_twice(choir_tensor *x) /* and a double use */
{
    return choir_cat((choir_tensor *[]){x, choir_square(x), x}, 3, 0);
}

static choir_tensor *mean_rows(choir_tensor *x)
{
    return choir_mean_dim(x, 1);
}

/* Gradients that arrive in another order than their shape's, or repeated. */
static choir_tensor *sums_of_sums(choir_tensor *x)
{
    choir_tensor *columns = choir_sum_dim(x, 0), *turned = choir_transpose(x, 0, 1);
    return choir_add(
        choir_sum(columns), choir_sum(choir_sum_dim(choir_mul(turned, turned), 1)));
}

static choir_tensor *turned_sums(choir_tensor *x)
{
    choir_tensor *cube = choir_reshape(x, choir_dims(2, 3, -1));
    return choir_transpose(choir_sum_dim(choir_square(cube), 1), 0, 1);
}

static choir_tensor *through_f32(choir_tensor *x)
{
    return choir_contiguous(choir_permute(x, choir_dims(1, 0)));
}

static void unary_ops(void **state)
{
    static unary_fn *const fns[] = {choir_neg, choir_exp, choir_log, choir_sqrt, choir_square,
        choir_abs, choir_tanh, choir_sigmoid, choir_relu, choir_gelu, choir_gelu_tanh,
        choir_silu, affine, transposed, turned_relu, reshaped, narrowed, expanded, joined_twice,
        mean_rows, sums_of_sums, turned_sums, through_f32, choir_sum, choir_mean, choir_softmax,
        choir_log_softmax};
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        unary_fn *f = fns[i];
        choir_tensor *x = leaf(choir_dims(4, 3), true);
        check(apply_unary, &x, 1, &f);
        if (f == choir_log || f == choir_sqrt)
            continue;
        x = leaf(choir_dims(4, 3), false);
        check(apply_unary, &x, 1, &f);
    }
}

/* --- binary, broadcasting --- */

typedef choir_tensor *binary_fn(choir_tensor *a, choir_tensor *b);

static choir_tensor *apply_binary(choir_tensor *const *in, int count, void *arg)
{
    return weigh((*(binary_fn **)arg)(in[0], in[1]));
}

static void binary_ops(void **state)
{
    static binary_fn *const fns[] = {choir_add, choir_sub, choir_mul, choir_div};
    static const choir_shape shapes[][2] = {{{2, {4, 3}}, {2, {4, 3}}}, {{2, {4, 3}}, {1, {3}}},
        {{2, {4, 1}}, {2, {1, 3}}}, {{1, {3}}, {3, {2, 1, 3}}}, {{0, {0}}, {2, {2, 2}}}};
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            binary_fn *f = fns[i];
            choir_tensor *in[2] = {leaf(shapes[s][0], false), leaf(shapes[s][1], true)};
            check(apply_binary, in, 2, &f);
        }
}

static void matrix_products(void **state)
{
    binary_fn *f = choir_matmul;
    choir_tensor *flat[2] = {leaf(choir_dims(3, 4), false), leaf(choir_dims(4, 5), false)};
    check(apply_binary, flat, 2, &f);
    choir_tensor *batched[2] = {
        leaf(choir_dims(2, 3, 4), false), leaf(choir_dims(2, 4, 5), false)};
    check(apply_binary, batched, 2, &f);
    choir_tensor *shared[2] = {leaf(choir_dims(2, 3, 4), false), leaf(choir_dims(4, 5), false)};
    check(apply_binary, shared, 2, &f);
}

/* --- layers --- */

static choir_tensor *apply_linear(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_linear(in[0], in[1], count > 2 ? in[2] : NULL));
}

static void linear(void **state)
{
    choir_tensor *in[3] = {leaf(choir_dims(2, 3, 4), false), leaf(choir_dims(5, 4), false),
        leaf(choir_dims(5), false)};
    check(apply_linear, in, 3, NULL);
    choir_tensor *no_bias[2] = {leaf(choir_dims(3, 4), false), leaf(choir_dims(5, 4), false)};
    check(apply_linear, no_bias, 2, NULL);
}

static choir_tensor *apply_attention(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_attention(in[0], in[1], in[2], *(bool *)arg));
}

static choir_tensor *apply_self_attention(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_self_attention(in[0], 2, *(bool *)arg));
}

static void attention(void **state)
{
    for (int causal = 0; causal < 2; causal++) {
        bool flag = causal;
        choir_shape shape = choir_dims(2, 2, 5, 3);
        choir_tensor *in[3] = {leaf(shape, false), leaf(shape, false), leaf(shape, false)};
        check(apply_attention, in, 3, &flag);
        choir_tensor *packed = leaf(choir_dims(2, 5, 12), false);
        check(apply_self_attention, &packed, 1, &flag);
    }
    bool full = false; /* other keys than queries */
    choir_tensor *cross[3] = {leaf(choir_dims(1, 2, 4, 3), false),
        leaf(choir_dims(1, 2, 6, 3), false), leaf(choir_dims(1, 2, 6, 3), false)};
    check(apply_attention, cross, 3, &full);
}

/* Grouped heads, a window, other keys than queries, a bias in each of its forms. */
static choir_tensor *apply_attention_with(choir_tensor *const *in, int count, void *arg)
{
    choir_attention_opts opts = *(choir_attention_opts *)arg;
    opts.bias = count > 3 ? in[3] : NULL;
    choir_tensor *k = choir_transpose(in[1], 1, 2), *v = choir_transpose(in[2], 1, 2);
    return weigh(choir_attention_with(in[0], k, v, opts));
}

static void attention_options(void **state)
{
    static const choir_attention_opts opts[] = {
        {0}, {.causal = true, .scale = 0.7f}, {.causal = true, .window = 2, .softcap = 0.8f}};
    for (size_t i = 0; i < CHOIR_COUNT(opts) * 4; i++) {
        choir_attention_opts o = opts[i / 4];
        bool padded = i % 4 == 1;
        int64_t keys = o.causal ? 5 : 6; /* k and v (B, S, G, D) */
        choir_tensor *in[4] = {leaf(choir_dims(2, 4, 5, 3), false),
            leaf(choir_dims(2, keys, 2, 3), false), leaf(choir_dims(2, keys, 2, 3), false),
            leaf(padded       ? choir_dims(2, 1, 1, keys)
                 : i % 4 == 2 ? choir_dims(1, 4, 5, keys)
                              : choir_dims(2, 4, 1, keys),
                false)};
        check(apply_attention_with, in, i % 4 ? 4 : 3, &o);
    }
}

static choir_tensor *apply_layer_norm(choir_tensor *const *in, int count, void *arg)
{
    return weigh(
        choir_layer_norm(in[0], count > 1 ? in[1] : NULL, count > 2 ? in[2] : NULL, 1e-5f));
}

static choir_tensor *apply_batch_norm(choir_tensor *const *in, int count, void *arg)
{
    choir_scope *s = choir_tensor_scope(in[0]);
    choir_tensor *mean = choir_full(s, CHOIR_F64, choir_dims(3), 0.1);
    choir_tensor *var = choir_full(s, CHOIR_F64, choir_dims(3), 1.3);
    return weigh(choir_batch_norm(in[0], in[1], in[2], mean, var, *(bool *)arg, 0.1f, 1e-5f));
}

static void norms(void **state)
{
    choir_tensor *in[3] = {leaf(choir_dims(2, 3, 5), false), leaf(choir_dims(5), false),
        leaf(choir_dims(5), false)};
    check(apply_layer_norm, in, 3, NULL);
    choir_tensor *bare = leaf(choir_dims(3, 5), false);
    check(apply_layer_norm, &bare, 1, NULL);
    for (int training = 0; training < 2; training++) {
        bool flag = training;
        choir_tensor *image[3] = {leaf(choir_dims(2, 3, 4, 2), false),
            leaf(choir_dims(3), true), leaf(choir_dims(3), false)};
        check(apply_batch_norm, image, 3, &flag);
    }
}

static choir_tensor *apply_conv(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_conv2d(in[0], in[1], in[2], *(choir_conv_opts *)arg));
}

static choir_tensor *apply_max_pool(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_max_pool2d(in[0], 2, 2, 0));
}

static choir_tensor *apply_avg_pool(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_avg_pool2d(in[0], 3, 2, 1));
}

static void convolutions(void **state)
{
    static const int numbers[][4] = {{1, 0, 1, 1}, {2, 1, 1, 1}, {1, 2, 2, 1}, {1, 1, 1, 2}};
    choir_conv_opts opts[4];
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
        opts[i] = (choir_conv_opts){.stride = numbers[i][0],
            .padding = numbers[i][1],
            .dilation = numbers[i][2],
            .groups = numbers[i][3]};
        choir_tensor *in[3] = {leaf(choir_dims(2, 4, 5, 6), false),
            leaf(choir_dims(4, 4 / opts[i].groups, 3, 3), false), leaf(choir_dims(4), false)};
        check(apply_conv, in, 3, &opts[i]);
    }
    choir_tensor *x = leaf(choir_dims(2, 3, 6, 5), false);
    check(apply_max_pool, &x, 1, NULL);
    x = leaf(choir_dims(2, 3, 6, 5), false);
    check(apply_avg_pool, &x, 1, NULL);
}

static choir_tensor *apply_embedding(choir_tensor *const *in, int count, void *arg)
{
    static const int64_t ids[] = {4, 0, 2, 4, 1, 4};
    choir_scope *s = choir_tensor_scope(in[0]);
    return weigh(choir_embedding(in[0], choir_from(s, CHOIR_I64, choir_dims(2, 3), ids)));
}

static choir_tensor *apply_dropout(choir_tensor *const *in, int count, void *arg)
{
    (void)count, (void)arg; /* the same mask each time: a new name would draw another */
    choir_tensor *x = in[0];
    x->scope->calls = NULL;
    return weigh(choir_dropout(x, 0.4f, "drop"));
}

static void lookups(void **state)
{
    choir_tensor *table = leaf(choir_dims(5, 3), false);
    check(apply_embedding, &table, 1, NULL);
    choir_tensor *x = leaf(choir_dims(5, 7), false);
    check(apply_dropout, &x, 1, NULL);
}

/* --- losses --- */

static choir_tensor *apply_cross_entropy(choir_tensor *const *in, int count, void *arg)
{
    static const int64_t targets[] = {3, 0, -100, 1};
    choir_tensor *y = choir_from(choir_tensor_scope(in[0]), CHOIR_I64, choir_dims(4), targets);
    return weigh(choir_cross_entropy_with(in[0], y, *(choir_cross_entropy_opts *)arg));
}

/* Cross entropy with class weights. */
static choir_tensor *apply_weighted_cross_entropy(choir_tensor *const *in, int count, void *arg)
{
    static const double w[5] = {1, 2, 0.5, 3, 1.5};
    choir_cross_entropy_opts opts = *(choir_cross_entropy_opts *)arg;
    opts.weight = choir_from(choir_tensor_scope(in[0]), CHOIR_F64, choir_dims(5), w);
    return count == 1 ? apply_cross_entropy(in, 1, &opts)
                      : weigh(choir_cross_entropy_with(in[0], choir_softmax(in[1]), opts));
}

static choir_tensor *apply_soft_cross_entropy(choir_tensor *const *in, int count, void *arg)
{
    return choir_cross_entropy_with(
        in[0], choir_softmax(in[1]), *(choir_cross_entropy_opts *)arg);
}

static choir_tensor *apply_nll(choir_tensor *const *in, int count, void *arg)
{
    static const int64_t targets[] = {3, 0, 2, 1};
    choir_tensor *y = choir_from(choir_tensor_scope(in[0]), CHOIR_I64, choir_dims(4), targets);
    return choir_nll_loss(choir_log_softmax(in[0]), y);
}

/* arg: which of the losses of pairs. */
static choir_tensor *apply_pair_loss(choir_tensor *const *in, int count, void *arg)
{
    choir_tensor *x = in[0], *y = choir_sigmoid(in[1]), *z = NULL;
    double w[5] = {1, 2, 0.5, 3, 1.5};
    choir_tensor *weight = choir_from(choir_tensor_scope(x), CHOIR_F64, choir_dims(5), w);
    switch (*(int *)arg) {
    case 0: z = choir_l1_loss(x, y, CHOIR_LOSS_NONE); break;
    case 1: z = choir_smooth_l1_loss(x, y, 0.5f, CHOIR_LOSS_NONE); break;
    case 2: z = choir_huber_loss(x, y, 0.4f, CHOIR_LOSS_NONE); break;
    case 3: z = choir_bce_loss(choir_sigmoid(x), y, CHOIR_LOSS_NONE); break;
    case 4: z = choir_bce_with_logits_loss(x, y, NULL, CHOIR_LOSS_NONE); break;
    case 5: z = choir_bce_with_logits_loss(x, y, weight, CHOIR_LOSS_NONE); break;
    case 6: z = choir_kl_div_loss(x, y, false, CHOIR_LOSS_NONE); break;
    case 7: z = choir_kl_div_loss(x, y, true, CHOIR_LOSS_NONE); break;
    case 8: return choir_huber_loss(x, y, 1, CHOIR_LOSS_SUM);
    case 9: return choir_kl_div_loss(x, y, false, CHOIR_LOSS_BATCH_MEAN);
    default: return choir_bce_with_logits_loss(x, y, weight, CHOIR_LOSS_MEAN);
    }
    return weigh(z);
}

static void pair_losses(void **state)
{
    for (int which = 0; which <= 10; which++) {
        choir_tensor *in[2] = {leaf(choir_dims(4, 5), false), leaf(choir_dims(4, 5), false)};
        check(apply_pair_loss, in, 2, &which);
    }
}

static choir_tensor *apply_mse(choir_tensor *const *in, int count, void *arg)
{
    return choir_mse_loss(in[0], in[1]);
}

/* Index tensors used twice: backward of one op must leave them to the other. */
static choir_tensor *apply_shared_indices(choir_tensor *const *in, int count, void *arg)
{
    static const int64_t ids[] = {1, 0, 2};
    choir_scope *s = choir_tensor_scope(in[0]);
    choir_tensor *i = choir_from(s, CHOIR_I64, choir_dims(3), ids);
    choir_tensor *x =
        choir_add(choir_embedding(in[0], i), choir_embedding(in[1], i)); /* (3, 4) */
    choir_tensor *nll = choir_nll_loss(choir_log_softmax(x), i);
    return choir_add(choir_add(choir_cross_entropy(x, i), choir_cross_entropy(x, i)), nll);
}

static void shared_indices(void **state)
{
    choir_tensor *in[2] = {leaf(choir_dims(3, 4), false), leaf(choir_dims(3, 4), false)};
    check(apply_shared_indices, in, 2, NULL);
    check(apply_shared_indices, in, 2, NULL); /* and again, on leaves that have a gradient */
}

static void cross_entropies(void **state)
{
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    for (int i = 0; i < 6; i++) {
        choir_tensor *x = leaf(choir_dims(4, 5), false);
        choir_tensor *soft[2] = {leaf(choir_dims(4, 5), false), leaf(choir_dims(4, 5), false)};
        opts.label_smoothing = i < 3 ? 0 : 0.2f;
        opts.reduction = (choir_reduction)(CHOIR_LOSS_MEAN + i % 3);
        check(apply_cross_entropy, &x, 1, &opts);
        x = leaf(choir_dims(4, 5), false);
        check(apply_weighted_cross_entropy, &x, 1, &opts);
        check(apply_weighted_cross_entropy, soft, 2, &opts);
    }
}

static void losses(void **state)
{
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    choir_tensor *x = leaf(choir_dims(4, 5), false);
    check(apply_cross_entropy, &x, 1, &opts);
    opts.label_smoothing = 0.2f;
    x = leaf(choir_dims(4, 5), false);
    check(apply_cross_entropy, &x, 1, &opts);
    x = leaf(choir_dims(4, 5), false);
    check(apply_nll, &x, 1, NULL);
    choir_tensor *in[2] = {leaf(choir_dims(4, 5), false), leaf(choir_dims(4, 5), false)};
    check(apply_mse, in, 2, NULL);
    choir_tensor *soft[2] = {leaf(choir_dims(4, 5), false), leaf(choir_dims(4, 5), false)};
    check(apply_soft_cross_entropy, soft, 2, &opts);
}

/* --- a user's own op --- */

static choir_tensor *cube(choir_tensor *const *in, int count, const void *arg)
{
    return choir_mul(in[0], choir_square(in[0]));
}

static void cube_backward(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    grad_in[0] = choir_scale(choir_mul(grad_out, choir_square(in[0])), 3);
}

static void cube_backward_wrong(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    grad_in[0] = choir_mul(grad_out, choir_square(in[0]));
}

/* The gradient is wrong in one entry of six. */
static void cube_backward_one_off(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    static const double off[6] = {[4] = 1e-4};
    cube_backward(in, count, out, grad_out, grad_in, arg);
    choir_tensor *more =
        choir_from(choir_tensor_scope(grad_out), CHOIR_F64, choir_dims(3, 2), off);
    grad_in[0] = choir_add(grad_in[0], more);
}

static choir_tensor *apply_custom(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_custom(arg, in, count, NULL));
}

static void custom(void **state)
{
    static const choir_custom_op right = {"cube", cube, cube_backward};
    static const choir_custom_op wrong = {"wrong cube", cube, cube_backward_wrong};
    static const choir_custom_op one_off = {"cube but one", cube, cube_backward_one_off};
    choir_tensor *x = leaf(choir_dims(3, 2), false);
    check(apply_custom, &x, 1, (void *)&right);
    x = leaf(choir_dims(3, 2), false); /* the check can fail */
    assert_int_equal(
        choir_gradcheck(apply_custom, &x, 1, (void *)&wrong, 1e-6), CHOIR_ERR_ARGUMENT);
    for (uint64_t seed = 0; seed < 20; seed++) { /* and so can a sampled one */
        x = leaf(choir_dims(3, 2), false);
        assert_int_equal(
            check_directions(apply_custom, &x, 1, (void *)&one_off, seed), CHOIR_ERR_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(unary_ops),
        IN_SCOPES(binary_ops),
        IN_SCOPES(matrix_products),
        IN_SCOPES(linear),
        IN_SCOPES(attention),
        IN_SCOPES(attention_options),
        IN_SCOPES(norms),
        IN_SCOPES(convolutions),
        IN_SCOPES(lookups),
        IN_SCOPES(cross_entropies),
        IN_SCOPES(losses),
        IN_SCOPES(pair_losses),
        IN_SCOPES(shared_indices),
        IN_SCOPES(custom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
