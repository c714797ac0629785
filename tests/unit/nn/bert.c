/* BERT: names and shapes, the effect of a mask and of token types, wrong inputs, and that the
 * model learns the tokens behind masks. tests/interop compares its numbers with another
 * implementation's. */
#include "checkpoint_fixture.h"

#include "tensor/tensor.h"

#define BERT "bert:layers=2,heads=2,width=16,hidden=24,context=8,vocab=11"

enum { B = 2, T = 6 };

static const int64_t ids[B * T] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};

static choir_tensor *tokens(choir_scope *s, const int64_t *values)
{
    return choir_from(s, CHOIR_I64, choir_dims(B, T), values);
}

static void has(choir_module *net, const char *name, choir_shape shape)
{
    choir_tensor *t = choir_module_find(net, name);
    if (!t)
        fail_msg("no %s", name);
    assert_true(choir__same_shape(t->shape, shape));
}

static void names_and_shapes(void **state)
{
    job j = job_open(BERT, SGD_PLAIN), c = job_open(BERT ",classes=3", SGD_PLAIN);
    has(j.net, "bert.embeddings.word_embeddings.weight", choir_dims(11, 16));
    has(j.net, "bert.embeddings.position_embeddings.weight", choir_dims(8, 16));
    has(j.net, "bert.embeddings.token_type_embeddings.weight", choir_dims(2, 16));
    has(j.net, "bert.embeddings.LayerNorm.weight", choir_dims(16));
    has(j.net, "bert.encoder.layer.1.attention.self.query.weight", choir_dims(16, 16));
    has(j.net, "bert.encoder.layer.1.attention.output.dense.bias", choir_dims(16));
    has(j.net, "bert.encoder.layer.1.attention.output.LayerNorm.bias", choir_dims(16));
    has(j.net, "bert.encoder.layer.1.intermediate.dense.weight", choir_dims(24, 16));
    has(j.net, "bert.encoder.layer.1.output.dense.weight", choir_dims(16, 24));
    has(j.net, "cls.predictions.transform.dense.weight", choir_dims(16, 16));
    has(j.net, "cls.predictions.transform.LayerNorm.weight", choir_dims(16));
    has(j.net, "cls.predictions.bias", choir_dims(11));
    assert_null(choir_module_find(j.net, "cls.predictions.decoder.weight"));
    assert_null(choir_module_find(j.net, "bert.pooler.dense.weight"));
    has(c.net, "bert.pooler.dense.weight", choir_dims(16, 16));
    has(c.net, "classifier.weight", choir_dims(3, 16));
    choir_scope *s = choir_no_grad(j.run), *t = choir_no_grad(c.run);
    assert_true(
        choir__same_shape(choir_forward(j.net, tokens(s, ids))->shape, choir_dims(B, T, 11)));
    assert_true(
        choir__same_shape(choir_forward(c.net, tokens(t, ids))->shape, choir_dims(B, 3)));
    ok(choir_scope_close(s));
    ok(choir_scope_close(t));
    job_close(&j);
    job_close(&c);
}

/* Computes scores (B, T, 11) of these ids, types and mask. */
static void scores(
    job *j, const int64_t *x, const int64_t *types, const int64_t *mask, float out[B * T * 11])
{
    choir_scope *s = choir_no_grad(j->run);
    choir_tensor *y =
        mask    ? choir_forward(j->net, tokens(s, x), tokens(s, types), tokens(s, mask))
        : types ? choir_forward(j->net, tokens(s, x), tokens(s, types))
                : choir_forward(j->net, tokens(s, x));
    ok(choir_read(y, out, B * T * 11 * sizeof *out));
    ok(choir_scope_close(s));
}

/* Positions that are masked out are not seen: other ids there change only their own scores. */
static void mask_hides(void **state)
{
    const int64_t none[B * T] = {0}, all[B * T] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t mask[B * T] = {1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1};
    int64_t changed[B * T];
    static float a[B * T * 11], b[B * T * 11];
    job j = job_open(BERT, SGD_PLAIN);
    memcpy(changed, ids, sizeof ids);
    changed[4] = 0;
    changed[5] = 7;
    scores(&j, ids, none, mask, a);
    scores(&j, changed, none, mask, b);
    assert_memory_equal(a, b, 4 * 11 * sizeof *a);
    assert_memory_equal(a + T * 11, b + T * 11, T * 11 * sizeof *a);
    scores(&j, changed, none, all, b); /* unmasked, they are seen */
    assert_memory_not_equal(a, b, 4 * 11 * sizeof *a);
    assert_memory_equal(a + T * 11, b + T * 11, T * 11 * sizeof *a);
    scores(&j, changed, none, NULL, a); /* left out is all ones */
    for (int i = 0; i < B * T * 11; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-6f);
    job_close(&j);
}

static void types_count(void **state)
{
    const int64_t none[B * T] = {0}, ones[B * T] = {1, 1, 1};
    static float a[B * T * 11], b[B * T * 11];
    job j = job_open(BERT, SGD_PLAIN);
    scores(&j, ids, NULL, NULL, a);
    scores(&j, ids, none, NULL, b);
    for (int i = 0; i < B * T * 11; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-6f);
    scores(&j, ids, ones, NULL, b);
    assert_memory_not_equal(a, b, T * 11 * sizeof *a);
    assert_memory_not_equal(a, b, 11 * sizeof *a);
    job_close(&j);
}

static void wrong(
    choir_scope *run, choir_module *net, choir_shape x, choir_shape types, const char *part)
{
    choir_scope *s = choir_no_grad(run);
    choir_forward(net, choir_zeros(s, CHOIR_I64, x), choir_zeros(s, CHOIR_I64, types));
    assert_int_not_equal(choir_scope_status(s), CHOIR_OK);
    assert_says(part);
    choir_scope_close(s);
}

static void wrong_inputs(void **state)
{
    job j = job_open(BERT, SGD_PLAIN);
    wrong(j.run, j.net, choir_dims(2, 9), choir_dims(2, 9), "context of 8");
    wrong(j.run, j.net, choir_dims(2), choir_dims(2), "(B, T)");
    wrong(j.run, j.net, choir_dims(2, 0), choir_dims(2, 0), "(B, T)");
    wrong(j.run, j.net, choir_dims(2, 6), choir_dims(2, 5), "(2, 5)");
    choir_scope *s = choir_no_grad(j.run);
    choir_tensor *zeros = choir_zeros(s, CHOIR_I64, choir_dims(2, 6));
    choir_tensor *mask = choir_full(s, CHOIR_F32, choir_dims(2, 6), 1);
    choir_forward(j.net, zeros, NULL, mask);
    ok(choir_scope_status(s));
    choir_forward(j.net, zeros, zeros, mask, zeros);
    assert_fails(
        choir_scope_status(s), CHOIR_ERR_ARGUMENT, "'bert' takes up to 3 inputs, got 4");
    choir_scope_close(s);
    job_close(&j);
}

/* Ids follow from their position, so that the masked ones can be inferred. */
static void learns(void **state)
{
    job j = job_open(BERT, ADAMW);
    choir_optim_set_lr(j.opt, 0.01f);
    float first = 0, last = 0;
    for (int k = 0; k < 150; k++) {
        int64_t x[B * T], y[B * T];
        for (int i = 0; i < B * T; i++) {
            bool chosen = choir__mix(3, (uint64_t)(k * 64 + i)) % 4 == 0 || i == k % T;
            int64_t id = (i % T * 3) % 10;
            x[i] = chosen ? 10 : id;
            y[i] = chosen ? id : -100;
        }
        choir_scope *s = choir_step_open(j.run, (uint64_t)k);
        choir_tensor *out = choir_forward(j.net, tokens(s, x));
        choir_tensor *loss = choir_model_loss(&j.info, out, tokens(s, y));
        last = (float)choir_item(loss);
        first = k ? first : last;
        ok(choir_backward(loss));
        ok(choir_optim_step(j.opt));
        ok(choir_scope_close(s));
    }
    assert_true(first > 2 && last < 0.7f * first);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_and_shapes),
        cmocka_unit_test(mask_hides), cmocka_unit_test(types_count),
        cmocka_unit_test(wrong_inputs), cmocka_unit_test(learns)};
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
