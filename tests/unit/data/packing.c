/* Packed documents: every document is whole in one sample, or cut into pieces of a context; and
 * a model's scores and losses of a packed sample are those of each document alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>
#include "check.h"
#include "base/base.h"
#include "data/text/packs.h"

enum { CONTEXT = 12 };

static void fills_samples_with_whole_documents(void **state)
{
    enum { DOCUMENTS = 3000 };
    static bool seen[DOCUMENTS * 40];
    choir__packs p = {.context = 20};
    int64_t at[DOCUMENTS + 1] = {0}, used = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        int64_t count = (i * 7919) % 31; /* 0 to 30 */
        choir__packs_add(&p, at[i], count);
        at[i + 1] = at[i] + count + 1; /* its end is no position */
        used += count;
    }
    int64_t packs = choir__packs_end(&p), found = 0;
    assert_true((double)used / (20.0 * (double)packs) > 0.95);
    for (int64_t s = 0; s < packs; s++) {
        choir__packed_piece piece;
        int64_t filled = 0, n = 0;
        for (; choir__packs_at(&p, s, n, &piece); n++) {
            int document = 0;
            while (at[document + 1] <= piece.at)
                document++;
            int64_t whole = at[document + 1] - 1 - at[document],
                    within = piece.at - at[document];
            assert_int_equal(within % 20, 0);
            assert_int_equal(piece.count, choir__min(20, whole - within));
            for (int64_t k = piece.at; k < piece.at + piece.count; k++, found++) {
                assert_false(seen[k]);
                seen[k] = true;
            }
            filled += piece.count;
        }
        assert_true(n > 0 && filled <= 20);
    }
    assert_int_equal(found, used);
    choir__packs_free(&p);
}

/* Three documents in one sample, and padding behind them. */
static const int64_t lengths[] = {4, 1, 5}, total = 10;

static void fill(int64_t x[3][CONTEXT], int64_t y[CONTEXT])
{
    int64_t t = 0;
    for (int d = 0; d < 3; d++)
        for (int64_t i = 0; i < lengths[d]; i++, t++) {
            x[0][t] = (7 * t + 3) % 11;
            x[1][t] = d;
            x[2][t] = i;
            y[t] = (5 * t + 1) % 11;
        }
    for (; t < CONTEXT; t++) {
        x[0][t] = x[2][t] = 0;
        x[1][t] = 3;
        y[t] = CHOIR_IGNORED;
    }
}

static void compare(const float *one, const float *other, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (fabsf(one[i] - other[i]) > 1e-5f)
            fail_msg(
                "value %lld: %g, alone %g", (long long)i, (double)one[i], (double)other[i]);
}

/* Compares scores, and the sums of losses. */
static void documents_do_not_see_one_another(const char *model)
{
    enum { V = 11 };
    choir_scope *run = choir_scope_open(NULL, 3);
    choir_model_info info = {.classes = V};
    int64_t x[3][CONTEXT], y[CONTEXT], first = 0;
    static float packed[CONTEXT * V], alone[CONTEXT * V];
    double sum = 0;
    fill(x, y);
    ok(choir_model_describe(model, &info));
    assert_true(info.packs);
    choir_module *net = choir_model_build(run, &info);
    choir_scope *step = choir_step_open(run, 0);
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    opts.reduction = CHOIR_LOSS_SUM;
    choir_tensor *in = choir_from(step, CHOIR_I64, choir_dims(1, 3, CONTEXT), x);
    choir_tensor *to = choir_from(step, CHOIR_I64, choir_dims(1, CONTEXT), y);
    choir_tensor *scores = choir_model_forward(&info, net, in, to);
    ok(choir_read(scores, packed, sizeof packed));
    choir_tensor *loss = choir_cross_entropy_with(scores, to, opts);
    double whole = choir_item(loss);
    ok(choir_scope_close(step));
    for (int d = 0; d < 3; first += lengths[d++]) {
        step = choir_step_open(run, (uint64_t)d + 1);
        in = choir_from(step, CHOIR_I64, choir_dims(1, lengths[d]), x[0] + first);
        to = choir_from(step, CHOIR_I64, choir_dims(1, lengths[d]), y + first);
        scores = choir_model_forward(&info, net, in, to);
        ok(choir_read(scores, alone, (size_t)(lengths[d] * V) * sizeof *alone));
        compare(packed + first * V, alone, lengths[d] * V);
        loss = choir_cross_entropy_with(scores, to, opts);
        sum += choir_item(loss);
        ok(choir_scope_close(step));
    }
    assert_int_equal(first, total);
    assert_true(fabs(whole - sum) < 1e-4);
    ok(choir_scope_close(run));
}

static void gpt2(void **state)
{
    documents_do_not_see_one_another("gpt2:layers=2,heads=2,width=8,context=12");
}

static void llama(void **state)
{
    documents_do_not_see_one_another(
        "llama:layers=2,heads=2,kv_heads=1,width=8,hidden=12,context=12");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_samples_with_whole_documents),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(llama),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
