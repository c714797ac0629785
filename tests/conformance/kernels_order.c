/* Conformance of the kernels that order the entries of a line, and that make lines of another
 * length. */
#include "conformance/harness.h"

/* Values of which many are equal, with NaN, infinities and zeros of both signs. */
static float *tied(int64_t n)
{
    float *x = uniform(n, -9, 9);
    for (int64_t i = 0; i < n; i++)
        x[i] = rintf(x[i]) * (i % 5 ? 1.0f : 0.0f); /* rintf(-0.3f) is -0 */
    x[n / 3] = NAN;
    x[n / 2] = -INFINITY;
    x[n - 1] = n % 2 ? NAN : INFINITY;
    return x;
}

/* Lines that are kept in a list, sorted by digits, and on a GPU in one tile and in several. */
static const int64_t sort_cases[][4] = {/* outer, n, inner, top */
    {1, 1, 1, 1}, {3, 7, 2, 7}, {5, 33, 1, 4}, {2, 64, 3, 64}, {3, 65, 2, 65}, {2, 257, 1, 256},
    {1, 1024, 2, 3}, {2, 1025, 1, 1025}, {1, 2100, 1, 2100}, {2, 1100, 1, 60},
    {1, 1500, 1, 1100}, {2, 5, 1, 0}};

static void sort(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(sort_cases) * 4; c++) {
        const int64_t *s = sort_cases[c / 4], all = s[0] * s[1] * s[2];
        int64_t room = s[1] <= CHOIR__SORT_SHORT ? 0 : 2 * (c % 3 ? s[1] : all);
        choir__sort_entry *scratch = malloc((size_t)(room + 1) * sizeof *scratch);
        trial t = TRIAL(sort, .outer = s[0], .n = s[1], .inner = s[2], .top = s[3],
            .scratch = scratch, .room = room, .descending = c % 2);
        give(&t, AT(sort, x), all, c & 2 ? tied(all) : uniform(all, -2, 2));
        take_raw(&t, AT(sort, index), s[0] * s[3] * s[2], sizeof(int64_t));
        check(t);
        free(scratch);
    }
}

/* All dtypes, as bits: halves and floats of any pattern, and integers that doubles cannot tell
 * apart. */
static void sort_dtypes(void **state)
{
    enum { N = 1100 };
    static uint64_t bits[N];
    static int64_t index[N], expected[N];
    static choir__sort_entry scratch[2 * N];
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_F64, CHOIR_BF16, CHOIR_F16, CHOIR_I64,
        CHOIR_I32, CHOIR_U8, CHOIR_BOOL};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int i = 0; i < N; i++) {
        uint32_t word[4];
        choir__philox(7, 0, (uint64_t)i, word);
        bits[i] = i % 3 ? (uint64_t)word[0] << 32 | word[1] : (UINT64_C(3) << 61) + word[2] % 5;
    }
    int count = isa_tables(tables, names);
    for (size_t c = 0; c < CHOIR_COUNT(dtypes) * 4; c++) {
        choir__k_sort k = {.x = bits,
            .index = expected,
            .scratch = scratch,
            .outer = 1,
            .n = N,
            .inner = 1,
            .top = c & 2 ? 9 : N,
            .room = 2 * N,
            .descending = c % 2,
            .dtype = dtypes[c / 4]};
        for (int i = 0; i < N * 8 && k.dtype == CHOIR_BOOL; i++)
            ((uint8_t *)bits)[i] &= 1; /* the last dtype */
        choir__cpu_reference.sort(&k);
        k.index = index;
        for (int j = 0; j < count; j++) {
            memset(index, 0xA5, sizeof index);
            tables[j]->sort(&k);
            if (memcmp(index, expected, (size_t)k.top * sizeof *index))
                fail_msg("sort (%s): %s differ from the reference", names[j],
                    choir_dtype_name(k.dtype));
        }
    }
}

static const int64_t stretch_cases[][4] = {/* outer, from, to, inner */
    {1, 1, 1, 1}, {2, 1, 5, 3}, {3, 5, 1, 2}, {1, 7, 16, 1}, {2, 33, 17, 5}, {3, 8, 8, 17},
    {1, 5, 131, 2}, {2, 131, 6, 33}};

static void stretch(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(stretch_cases) * CHOIR__STRETCH_COUNT * 4; c++) {
        const int64_t *s = stretch_cases[c / 4 / CHOIR__STRETCH_COUNT];
        choir__stretch how = (choir__stretch)(c / 4 % CHOIR__STRETCH_COUNT);
        bool back = c & 2, corners = c % 2 && how != CHOIR__STRETCH_NEAREST;
        int64_t x = s[0] * (back ? s[2] : s[1]) * s[3], y = s[0] * (back ? s[1] : s[2]) * s[3];
        trial t = TRIAL(stretch, .outer = s[0], .from = s[1], .to = s[2], .inner = s[3],
            .how = how, .corners = corners, .back = back);
        give(&t, AT(stretch, x), x, uniform(x, -1, 2));
        take(&t, AT(stretch, y), y);
        check(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sort),
        cmocka_unit_test(sort_dtypes),
        cmocka_unit_test(stretch),
    };
    return cmocka_run_group_tests_name("ordering kernels", tests, NULL, NULL);
}
