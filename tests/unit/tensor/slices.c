/* Parts of tensors, and tensors made of parts: narrow, split, chunk, cat and stack, and the
 * cost of their gradients. */
#include <stdlib.h>

#include "scopes_fixture.h"
#include "tensor/tensor.h"

static choir_tensor *counting(choir_shape shape)
{
    float v[4096];
    int64_t n = choir__shape_count(shape);
    assert_in_range(n, 0, 4096);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)(i + 1);
    return choir_from(step, CHOIR_F32, shape, v);
}

static void assert_values(choir_tensor *t, const float *expected, int64_t count)
{
    float v[4096];
    assert_int_equal(choir_tensor_count(t), count);
    t = choir_contiguous(t);
    ok(choir_read(t, v, (size_t)count * sizeof *v));
    assert_memory_equal(v, expected, (size_t)count * sizeof *v);
}

/* --- the gradient of slices --- */

/* Eight slices in some order: the sum of each times i + 1, and of the squares of every second.
 */
static void slices(int dim, int64_t start, choir_tensor *h)
{
    choir_tensor *loss = NULL, *part[8];
    for (int i = 0; i < 8; i++)
        part[i] = choir_narrow(h, dim, start + i, 1 + (i == 3)); /* one of them overlaps */
    for (int n = 0; n < 8; n++) {
        int i = n * 3 % 8;
        choir_tensor *one = choir_scale(choir_sum(part[i]), i + 1);
        if (i % 2)
            one = choir_add(one, choir_sum(choir_square(part[i])));
        loss = loss ? choir_add(loss, one) : one;
    }
    choir_check(choir_backward(loss));
}

/* Computes the expected gradients separately. x (16, 16) counts from 1. */
static void expect(int dim, int64_t start, float g[16 * 16])
{
    memset(g, 0, 16 * 16 * sizeof *g);
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < 16; col++)
            for (int i = 0; i < 8; i++) {
                int64_t at = (dim ? col : row) - start - i;
                float x = (float)(row * 16 + col + 1);
                if (at == 0 || (i == 3 && at == 1))
                    g[row * 16 + col] += (float)(i + 1) + (i % 2 ? 2 * x : 0);
            }
}

static void gradient_of_slices(void **state)
{
    float expected[16 * 16];
    for (int dim = 0; dim < 2; dim++)
        for (int64_t start = 0; start < 5; start += 4)
            for (int leaf = 0; leaf < 2; leaf++) { /* a leaf's gradient, or a result's */
                choir_tensor *x = choir_require_grad(counting(choir_dims(16, 16)));
                slices(dim, start, leaf ? x : choir_scale(x, 1));
                expect(dim, start, expected);
                assert_values(choir_grad(x), expected, 16 * 16);
            }
}

/* A slice's gradient is not added into a gradient that another op shares and still needs. */
static void gradients_of_others(void **state)
{
    choir_tensor *x = choir_require_grad(counting(choir_dims(4))),
                 *other = choir_require_grad(counting(choir_dims(4)));
    choir_tensor *h = choir_scale(x, 1), *o = choir_scale(other, 1);
    choir_tensor *a = choir_narrow(h, 0, 0, 2), *b = choir_narrow(h, 0, 1, 2);
    choir_tensor *z = choir_add(h, o); /* hands one gradient to both */
    choir_tensor *loss = choir_add(
        choir_sum(choir_scale(z, 5)), choir_add(choir_sum(a), choir_scale(choir_sum(b), 10)));
    choir_check(choir_backward(loss));
    assert_values(choir_grad(x), (float[]){6, 16, 15, 5}, 4);
    assert_values(choir_grad(other), (float[]){5, 5, 5, 5}, 4);
}

/* Backward over any number of slices of a tensor of 1 MiB needs one gradient of the whole, plus
 * the slices' own. */
static void cost_of_slices(void **state)
{
    enum { ROWS = 16, COLS = 16384, WHOLE = ROWS * COLS * (int)sizeof(float) };
    choir_device *d = choir_tensor_device(choir_zeros(step, CHOIR_F32, CHOIR_SCALAR));
    choir_device_stats before, after;
    choir_tensor *x =
        choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(ROWS, COLS), 1));
    choir_tensor *loss = NULL;
    for (int i = 0; i < ROWS; i++) {
        choir_tensor *one = choir_sum(choir_square(choir_narrow(x, 0, i, 1)));
        loss = loss ? choir_add(loss, one) : one;
    }
    choir_device_sync(d);
    choir_device_reset_peak(d);
    choir_device_get_stats(d, &before);
    choir_check(choir_backward(loss));
    choir_device_get_stats(d, &after);
    assert_true(after.bytes_peak <= before.bytes_now + WHOLE + WHOLE / 4);
}

/* --- split and chunk --- */

static void assert_pieces(int count, choir_tensor **parts, const int *lengths)
{
    float at = 1;
    for (int i = 0; i < count; i++) {
        float v[32];
        assert_int_equal(choir_tensor_size(parts[i], 0), lengths[i]);
        choir_check(choir_read(parts[i], v, (size_t)lengths[i] * sizeof *v));
        for (int j = 0; j < lengths[i]; j++, at++)
            assert_true(v[j] == at);
    }
}

/* The pieces that torch.chunk and torch.split give. */
static void pieces(void **state)
{
    static const struct {
        int length, count, pieces, lengths[8];
    } chunks[] = {{10, 8, 5, {2, 2, 2, 2, 2}}, {10, 4, 4, {3, 3, 3, 1}}, {5, 4, 3, {2, 2, 1}},
        {30, 8, 8, {4, 4, 4, 4, 4, 4, 4, 2}}, {3, 8, 3, {1, 1, 1}}, {7, 1, 1, {7}},
        {6, 3, 3, {2, 2, 2}}, {0, 4, 4, {0, 0, 0, 0}}},
      splits[] = {{10, 4, 3, {4, 4, 2}}, {10, 20, 1, {10}}, {10, 10, 1, {10}},
          {10, 5, 2, {5, 5}}, {3, 1, 3, {1, 1, 1}}, {0, 4, 1, {0}}};
    choir_tensor *parts[8];
    for (size_t i = 0; i < CHOIR_COUNT(chunks); i++) {
        choir_tensor *x = counting(choir_dims(chunks[i].length));
        assert_int_equal(choir_chunk(x, chunks[i].count, 0, parts), chunks[i].pieces);
        assert_pieces(chunks[i].pieces, parts, chunks[i].lengths);
    }
    for (size_t i = 0; i < CHOIR_COUNT(splits); i++) {
        choir_tensor *x = counting(choir_dims(splits[i].length));
        assert_int_equal(choir_split_dim(x, splits[i].count, -1, parts, 8), splits[i].pieces);
        assert_pieces(splits[i].pieces, parts, splits[i].lengths);
    }
    choir_tensor *x = counting(choir_dims(2, 5)); /* sequence first: dimension 1 */
    assert_int_equal(choir_chunk(x, 2, 1, parts), 2);
    assert_values(parts[0], (float[]){1, 2, 3, 6, 7, 8}, 6);
    assert_values(parts[1], (float[]){4, 5, 9, 10}, 4);
}

/* --- cat and stack --- */

/* A batch of 120 is cut into pieces of every size and joined again: more parts than one op
 * takes. */
static void cut_and_joined(void **state)
{
    float whole[240], doubled[240];
    for (int i = 0; i < 240; i++)
        whole[i] = (float)(i + 1), doubled[i] = (float)(2 * (i + 1));
    for (int size = 1; size <= 120; size += size < 20 ? 1 : 25) {
        choir_tensor *x = choir_require_grad(counting(choir_dims(120, 2))), *parts[120];
        int count = choir_split_dim(x, size, 0, parts, 120);
        choir_tensor *y = choir_cat(parts, count, 0);
        assert_values(y, whole, 240);
        choir_check(choir_backward(choir_sum(choir_square(y))));
        assert_values(choir_grad(x), doubled, 240);
    }
}

static void stacked(void **state)
{
    choir_tensor *x = counting(choir_dims(2, 3)), *y = choir_scale(x, 10);
    choir_tensor *both[2] = {x, y};
    assert_values(
        choir_stack(both, 2, 0), (float[]){1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60}, 12);
    assert_values(
        choir_stack(both, 2, 1), (float[]){1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60}, 12);
    choir_tensor *last = choir_stack(both, 2, -1);
    assert_values(last, (float[]){1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60}, 12);
    assert_int_equal(choir_tensor_ndim(last), 3);
    assert_int_equal(choir_tensor_size(last, 2), 2);
}

/* Scalars become a vector: its mean, and backward from all of them at once. */
static void scalars(void **state)
{
    for (int way = 0; way < 2; way++) {
        choir_tensor *leaves[20], *losses[20];
        for (int i = 0; i < 20; i++) {
            leaves[i] = choir_require_grad(choir_full(step, CHOIR_F32, CHOIR_SCALAR, i));
            losses[i] = choir_square(leaves[i]);
        }
        choir_tensor *vector = choir_stack(losses, 20, 0);
        assert_true(choir__same_shape(choir_tensor_shape(vector), choir_dims(20)));
        choir_check(choir_backward(way ? vector : choir_sum(vector)));
        for (int i = 0; i < 20; i++)
            assert_true(choir_item(choir_grad(leaves[i])) == 2 * i);
    }
}

static void refusals(void **state)
{
    choir_tensor *x = counting(choir_dims(2, 3)), *y = counting(choir_dims(3, 2)), *parts[4];
#define BAD(count, word)                                                                       \
    assert_int_equal(count, 1);                                                                \
    assert_true(parts[0]->poisoned);                                                           \
    assert_says(word);                                                                         \
    choir_scope_clear(step)
    BAD(choir_split_dim(x, 0, 0, parts, 4), "pieces of 0");
    BAD(choir_split_dim(x, 1, 1, parts, 2), "makes 3 of them, and there is room for 2");
    BAD(choir_split_dim(x, 1, 2, parts, 4), "no dimension 2");
    BAD(choir_chunk(x, 0, 0, parts), "into 0");
    BAD(choir_chunk(x, 2, -3, parts), "no dimension -3");
    choir_tensor *bad = choir_relu(choir_stack((choir_tensor *[]){x, y}, 2, 0));
    assert_true(bad->poisoned);
    assert_says("(3, 2)");
    parts[0] = x; /* poison is handed on */
    assert_int_equal(choir_chunk(bad, 2, 0, parts), 1);
    assert_ptr_equal(parts[0], bad);
    choir_scope_clear(step);
    assert_true(choir_stack((choir_tensor *[]){x, x}, 2, 3)->poisoned);
    assert_says("no dimension 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(gradient_of_slices),
        IN_SCOPES(gradients_of_others),
        IN_SCOPES(cost_of_slices),
        IN_SCOPES(pieces),
        IN_SCOPES(cut_and_joined),
        IN_SCOPES(stacked),
        IN_SCOPES(scalars),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests_name("slices", tests, NULL, NULL);
}
