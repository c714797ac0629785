/* Augmentation: a sample depends on (seed, epoch, index) alone; mixtures are what their
 * probabilities say; rectangles and lam have their distributions; wrong options are refused. */
#include <math.h>
#include <stdlib.h>

#include <choir/augment.h>
#include <choir/device.h>
#include "check.h"
#include "copies.h"
#include "base/rng.h"
#include "data/images/image_ops.h"
#include "device/cpu/context.h"

enum {
    SIDE = 24,
    CHANNELS = 3,
    SAMPLES = 64,
    PIXELS = SIDE * SIDE,
    VALUES = CHANNELS * PIXELS
};

static const float mean[3] = {0.5f, 0.4f, 0.3f}, deviation[3] = {0.25f, 0.2f, 0.3f};

/* Sample i has class i. */
typedef struct pictures {
    choir_dataset base;
    bool flat;       /* all values are 1 */
    bool unbalanced; /* every fourth sample has class 1, the others 0 */
} pictures;

static int64_t length(const choir_dataset *self)
{
    return SAMPLES;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    float *out = x;
    for (int i = 0; i < VALUES; i++) {
        uint32_t bits[4];
        choir__philox(7, (uint64_t)index, (uint64_t)i, bits);
        float v = choir__unit(bits[0]);
        out[i] = ((const pictures *)self)->flat ? 1 : (v - mean[i % 3]) / deviation[i % 3];
    }
    *(int64_t *)y = ((const pictures *)self)->unbalanced ? index % 4 == 0 : index;
    return CHOIR_OK;
}

static void normalized(const choir_dataset *self, float m[3], float s[3])
{
    memcpy(m, mean, sizeof mean);
    memcpy(s, deviation, sizeof deviation);
}

static void free_pictures(choir_dataset *self)
{
    free(self);
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .free = free_pictures,
    .channels_last = true,
    .normalized = normalized};

static choir_dataset *make_pictures(bool flat)
{
    pictures *p = calloc(1, sizeof *p);
    *p = (pictures){{&ops, CHOIR_F32, CHOIR_I64, choir_dims(CHANNELS, SIDE, SIDE), CHOIR_SCALAR,
                        .classes = SAMPLES},
        flat, false};
    return &p->base;
}

static choir_dataset *augmented(const char *text, bool flat, uint64_t seed)
{
    choir_augment_opts opts = choir_augment_defaults();
    choir_dataset *data;
    ok(choir_augment_parse(text, &opts));
    opts.seed = seed;
    ok(choir_dataset_augmented(make_pictures(flat), opts, &data));
    return data;
}

static const char everything[] =
    "jitter+randaugment:ops=3+erase:p=0.7,noise=1+mixup+cutmix:p=0.9";

static void depends_on_seed_epoch_and_index(void **state)
{
    choir_dataset *one = augmented(everything, false, 5),
                  *two = augmented(everything, false, 5);
    choir_dataset *other = augmented(everything, false, 6);
    static float x[2][VALUES], y[2][SAMPLES];
    int same_epoch = 0, same_seed = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t k = SAMPLES - 1 - i; /* read in another order */
        ok(choir_dataset_get_epoch(two, 3, k, x[1], y[1]));
        ok(choir_dataset_get_epoch(two, 3, i, x[1], y[1]));
        ok(choir_dataset_get_epoch(one, 3, i, x[0], y[0]));
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        ok(choir_dataset_get_epoch(one, 4, i, x[1], y[1]));
        same_epoch += !memcmp(x[0], x[1], sizeof x[0]);
        ok(choir_dataset_get_epoch(other, 3, i, x[1], y[1]));
        same_seed += !memcmp(x[0], x[1], sizeof x[0]);
    }
    assert_true(same_epoch == 0 && same_seed == 0);
    choir_dataset_free(one);
    choir_dataset_free(two);
    choir_dataset_free(other);
}

/* Returns the share of sample i in y, and stores the other sample, or i. */
static float share_of(const float *y, int64_t i, int64_t *partner)
{
    float sum = 0;
    *partner = i;
    for (int64_t c = 0; c < SAMPLES; c++) {
        sum += y[c];
        if (y[c] > 0 && c != i)
            *partner = c;
    }
    assert_true(fabsf(sum - 1) < 1e-6f);
    return y[i];
}

/* Three of four samples are of class 0; a mixture's partner is of either class equally often.
 */
static void partners_are_balanced(void **state)
{
    choir_augment_opts opts = choir_augment_defaults();
    static float x[VALUES], y[SAMPLES];
    ok(choir_augment_parse("mixup:alpha=1000", &opts)); /* half of each */
    for (int balance = 0; balance < 2; balance++) {
        choir_dataset *data, *inner = make_pictures(false);
        ((pictures *)inner)->unbalanced = true;
        opts.balance = balance;
        ok(choir_dataset_augmented(inner, opts, &data));
        double first = 0;
        enum { DRAWS = 400 };
        for (int64_t e = 0; e < DRAWS; e++) {
            ok(choir_dataset_get_epoch(data, e, 0, x, y)); /* a sample of class 1 */
            first += (double)y[0] / DRAWS;
        }
        assert_true(fabs(first - (balance ? 0.25 : 0.375)) < 0.04);
        choir_dataset_free(data);
    }
}

static void mixtures_are_what_their_classes_say(void **state)
{
    choir_dataset *plain = make_pictures(false);
    static float x[VALUES], a[VALUES], b[VALUES], y[SAMPLES];
    int64_t label, partner;
    for (int cuts = 0; cuts < 2; cuts++) {
        choir_dataset *data = augmented(cuts ? "cutmix" : "mixup:alpha=0.4", false, 1);
        assert_int_equal(data->y_dtype, CHOIR_F32);
        assert_int_equal(data->y_shape.dim[0], SAMPLES);
        assert_int_equal(data->classes, SAMPLES);
        for (int64_t i = 0; i < SAMPLES; i++) {
            int differ = 0;
            ok(choir_dataset_get_epoch(data, 1, i, x, y));
            float lam = share_of(y, i, &partner);
            ok(choir_dataset_get(plain, i, a, &label));
            ok(choir_dataset_get(plain, partner, b, &label));
            for (int v = 0; v < VALUES; v++) {
                if (cuts)
                    assert_true(x[v] == a[v] || x[v] == b[v]);
                else
                    assert_true(fabsf(x[v] - (lam * a[v] + (1 - lam) * b[v])) < 1e-5f);
                differ += x[v] != a[v];
            }
            if (cuts && partner != i)
                assert_true(fabsf((float)differ / VALUES - (1 - lam)) < 1e-5f);
        }
        choir_dataset_free(data);
    }
    choir_dataset_free(plain);
}

/* Beta(a, a) has mean 1/2 and variance 1 / (8 a + 4). */
static void lam_is_of_beta(void **state)
{
    static const struct {
        const char *text;
        double variance;
    } cases[] = {
        {"mixup:alpha=0.2", 1 / 5.6}, {"mixup", 1.0 / 12}, {"mixup:alpha=4", 1.0 / 36}};
    static float x[VALUES], y[SAMPLES];
    for (size_t k = 0; k < CHOIR_COUNT(cases); k++) {
        choir_dataset *data = augmented(cases[k].text, true, 3);
        double sum = 0, squares = 0, n = 0;
        for (int64_t i = 0; i < 1500; i++) {
            int64_t partner;
            assert_int_equal(choir_dataset_get_epoch(data, i / SAMPLES, i % SAMPLES, x, y), 0);
            double lam = (double)share_of(y, i % SAMPLES, &partner);
            if (partner == i % SAMPLES && lam == 1)
                continue; /* mixed with itself */
            sum += lam;
            squares += lam * lam;
            n++;
        }
        double middle = sum / n, variance = squares / n - middle * middle;
        assert_true(fabs(middle - 0.5) < 0.04);
        assert_true(fabs(variance - cases[k].variance) < 0.15 * cases[k].variance);
        choir_dataset_free(data);
    }
}

static void erases_rectangles(void **state)
{
    static float x[VALUES];
    int64_t y;
    int erased = 0;
    choir_dataset *data = augmented("erase:p=0.25,min=0.1,max=0.2", true, 2);
    for (int64_t i = 0; i < 2000; i++) {
        int low[2] = {SIDE, SIDE}, high[2] = {-1, -1}, zeros = 0;
        ok(choir_dataset_get_epoch(data, i / SAMPLES, i % SAMPLES, x, &y));
        assert_int_equal(y, i % SAMPLES);
        for (int v = 0; v < VALUES; v++) {
            int at[2] = {v / CHANNELS / SIDE, v / CHANNELS % SIDE};
            for (int k = 0; k < 2 && x[v] == 0; k++) {
                low[k] = at[k] < low[k] ? at[k] : low[k];
                high[k] = at[k] > high[k] ? at[k] : high[k];
            }
            zeros += x[v] == 0;
        }
        if (!zeros)
            continue;
        int box = (high[0] - low[0] + 1) * (high[1] - low[1] + 1);
        assert_int_equal(zeros, CHANNELS * box);
        assert_true(box > 0.07 * PIXELS && box < 0.24 * PIXELS); /* sides are rounded */
        erased++;
    }
    assert_true(erased > 400 && erased < 600);
    choir_dataset_free(data);
}

/* Black, white and constant images stay within [0, 1], whatever happens to them. */
static void changes_stay_in_range(void **state)
{
    float x[5 * 4 * 3];
    for (int op = 0; op < CHOIR_IMAGE_OPS; op++)
        for (int level = 0; level <= 2; level++)
            for (int channels = 1; channels <= 3; channels += 2) {
                for (int i = 0; i < 60; i++)
                    x[i] = (float)level / 2;
                double amount = op == CHOIR_IMAGE_HUE ? 0.3 : 0.9;
                ok(choir_image_change(x, channels, 5, 4, (choir_image_op)op, amount));
                for (int i = 0; i < 20 * channels; i++)
                    assert_true(x[i] >= 0 && x[i] <= 1);
            }
}

/* Loops for all instruction sets that this processor has give the same bits. */
static void same_bits_on_all_instruction_sets(void **state)
{
#define DECLARE(isa) extern const choir__colours choir__colours_##isa;
#define NAME(isa)    #isa,
#define LOOPS(isa)   &choir__colours_##isa,
    COPIES(DECLARE)
    static const char *const isas[] = {COPIES(NAME)};
    const choir__colours *const all[] = {COPIES(LOOPS)};
    int sets = 0;
    while (sets < (int)CHOIR_COUNT(isas) && choir__cpu_kernels(isas[sets]))
        sets++;
    enum { H = 37, W = 51, N = 3 * H * W };
    static float source[N], x[3][2][N], out[3][N];
    const float mul[3] = {1.1f, 0.9f, 1}, add[3] = {0.01f, -0.02f, 0};
    for (int i = 0; i < N; i++) {
        uint32_t bits[4];
        choir__philox(3, 0, (uint64_t)i, bits);
        source[i] = choir__unit(bits[0]);
    }
    for (int op = 0; op < CHOIR_IMAGE_OPS; op++)
        for (int channels = 1; channels <= 3; channels += 2)
            for (int k = 0; k < sets; k++) {
                choir__picture p = {x[k][0], x[k][1], H, W, channels, all[k]};
                all[k]->into_planes(&p, source, mul, add);
                choir__picture_change(&p, (choir_image_op)op, 0.4);
                all[k]->from_planes(&p, out[k], mul, add);
                assert_memory_equal(out[0], out[k], (size_t)(channels * H * W) * sizeof(float));
            }
}

#define assert_refused(text, words)                                                            \
    do {                                                                                       \
        choir_augment_opts parsed = choir_augment_defaults();                                  \
        assert_int_equal(choir_augment_parse(text, &parsed), CHOIR_ERR_ARGUMENT);              \
        if (!strstr(choir_error_message(), words))                                             \
            fail_msg("'%s' does not say '%s'", choir_error_message(), words);                  \
    } while (0)

static void refuses_what_is_wrong(void **state)
{
    choir_augment_opts opts = choir_augment_defaults();
    choir_dataset *tokens, *data, *images = make_pictures(false);
    float x[3] = {0};
    assert_refused("", "unknown augmentation ''");
    assert_refused("jitte", "did you mean 'jitter'?");
    assert_refused("mixup+mixup", "named twice");
    assert_refused("mixup+", "unknown augmentation ''");
    assert_refused("jitter:hue=0.6", "hue=0.6");
    assert_refused("randaugment:magnitude=31", "below bins=31, got 31");
    assert_refused("erase:min=0.5,max=0.1", "min <= max");
    ok(choir_dataset_random_tokens(9, 4, 9, 1, &tokens));
    assert_int_equal(choir_dataset_augmented(tokens, opts, &data), CHOIR_ERR_ARGUMENT);
    choir_dataset_free(tokens);
    assert_int_equal(
        choir_dataset_augmented(images, (choir_augment_opts){0}, &data), CHOIR_ERR_ARGUMENT);
    opts.hue = (float)NAN;
    assert_int_equal(choir_dataset_augmented(images, opts, &data), CHOIR_ERR_ARGUMENT);
    choir_dataset_free(images);
    assert_int_equal(choir_image_change(x, 2, 1, 1, CHOIR_IMAGE_HUE, 0), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_image_change(x, 3, 1, 1, CHOIR_IMAGE_OPS, 0), CHOIR_ERR_ARGUMENT);
    float wild[3 * 4] = {-1e30f, 2, 201, (float)NAN, (float)INFINITY, -(float)INFINITY};
    for (int op = 0; op < CHOIR_IMAGE_OPS; op++) /* such values are no levels, and no indices */
        ok(choir_image_change(wild, 3, 2, 2, (choir_image_op)op, 0));
    assert_int_equal(
        choir_image_change(x, 3, 1, 1, CHOIR_IMAGE_CONTRAST, (double)NAN), CHOIR_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depends_on_seed_epoch_and_index),
        cmocka_unit_test(partners_are_balanced),
        cmocka_unit_test(mixtures_are_what_their_classes_say),
        cmocka_unit_test(lam_is_of_beta),
        cmocka_unit_test(erases_rectangles),
        cmocka_unit_test(changes_stay_in_range),
        cmocka_unit_test(same_bits_on_all_instruction_sets),
        cmocka_unit_test(refuses_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
