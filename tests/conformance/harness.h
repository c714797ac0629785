/* Compares fast kernels with the reference kernels.
 *
 * A trial is one call of one kernel: its arguments, and for each pointer among them the values
 * that go in or the elements that come out. check() makes the call with the reference kernel on
 * f64 copies of the values, then with each instruction set's kernel on the f32 values, and
 * requires:
 *
 *   - ||out - reference|| <= tolerance ||reference|| for each output (infinities, NaN alike),
 *   - the bits are the same for every instruction set,
 *   - nothing beyond an output was written.
 *
 * Outputs start as NaN, so an element that a kernel forgets to write shows. Buffers are not
 * aligned to a vector in two trials of three.
 *
 * With CHOIR_TEST_DEVICE=cuda:0 that device's kernels replace the instruction sets': in f32,
 * f64 and, where the kernel has them, the 16-bit types, whose operands are rounded before the
 * reference sees them. Each call is made twice and must give the same bits. A run that samples
 * (sample.h) makes the first call of each kernel and dtype, and some of the others. */
#ifndef CHOIR_TEST_HARNESS_H
#define CHOIR_TEST_HARNESS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "check.h"
#include "base/half.h"
#include "base/rng.h"
#include "device/cpu/context.h"
#include "conformance/on_device.h"
#include "sample.h"

enum { GUARD = 64, MAX_OPERANDS = 12, MAX_TABLES = 3 };

typedef struct operand {
    size_t at[2]; /* offsets of its pointers in the arguments */
    int places;
    int64_t n;     /* elements */
    size_t raw;    /* bytes per element of an output that is not floating-point; else 0 */
    float *values; /* input values; NULL: none */
    bool out;
    bool wide; /* f32 where the kernel's dtype has 16 bits */
} operand;

typedef struct trial {
    const char *name;
    size_t kernel, dtype_at,
        bytes; /* places in the table and in the arguments; the arguments' size */
    unsigned char args[512];
    operand operand[MAX_OPERANDS];
    int count;
    double tolerance;
    double f64_tolerance; /* on a device; default 0: 1e-9 */
    bool exact;           /* f32 results equal the reference's own f32 results */
    bool bits_may_differ; /* between instruction sets */
    bool no_half;         /* the kernel has no 16-bit types */
    double half_slack;    /* factor on the bounds of 16-bit types; 0: 1 */
} trial;

typedef struct result {
    void *block[MAX_OPERANDS];
    unsigned char *data[MAX_OPERANDS];
} result;

typedef void kernel_fn(const void *args);

#define TRIAL(kernel, ...)                                                                     \
    trial_new(#kernel, offsetof(choir__kernels, kernel), offsetof(choir__k_##kernel, dtype),   \
        &(choir__k_##kernel){__VA_ARGS__}, sizeof(choir__k_##kernel))
#define AT(kernel, field) offsetof(choir__k_##kernel, field)

static inline trial trial_new(
    const char *name, size_t kernel, size_t dtype_at, const void *args, size_t bytes)
{
    trial t = {.name = name,
        .kernel = kernel,
        .dtype_at = dtype_at,
        .bytes = bytes,
        .tolerance = 1e-6};
    assert_true(bytes <= sizeof t.args);
    memcpy(t.args, args, bytes);
    return t;
}

/* Returns n numbers in [low, high), different ones at each call. */
static inline float *uniform(int64_t n, float low, float high)
{
    static uint64_t call;
    float *values = malloc((size_t)(n + 4) * sizeof *values);
    call++;
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        choir__philox(20240607, call, (uint64_t)i, word);
        for (int j = 0; j < 4; j++)
            values[i + j] = low + (high - low) * choir__unit(word[j]);
    }
    return values;
}

static inline operand *add_operand(trial *t, size_t at, int64_t n)
{
    operand *o = &t->operand[t->count++];
    assert_true(t->count <= MAX_OPERANDS);
    *o = (operand){.at = {at}, .places = 1, .n = n};
    return o;
}

/* Add an input, an output, or both in one; check() frees the values. */
static inline void give(trial *t, size_t at, int64_t n, float *values)
{
    add_operand(t, at, n)->values = values;
}

static inline void take(trial *t, size_t at, int64_t n)
{
    add_operand(t, at, n)->out = true;
}

static inline void update(trial *t, size_t at, int64_t n, float *values)
{
    operand *o = add_operand(t, at, n);
    o->values = values;
    o->out = true;
}

/* Adds an output of whole numbers, size bytes each. */
static inline void take_raw(trial *t, size_t at, int64_t n, size_t size)
{
    operand *o = add_operand(t, at, n);
    o->raw = size;
    o->out = true;
}

/* Passes the latest operand's buffer through the pointer at `at`, too: it is written in
 * place. */
static inline void in_place(trial *t, size_t at)
{
    operand *o = &t->operand[t->count - 1];
    o->at[o->places++] = at;
    o->out = true;
}

/* Keeps the latest operand in f32 where the kernel's dtype has 16 bits. */
static inline void keep_wide(trial *t)
{
    t->operand[t->count - 1].wide = true;
}

static inline void give_wide(trial *t, size_t at, int64_t n, float *values)
{
    give(t, at, n, values);
    keep_wide(t);
}

static inline void take_wide(trial *t, size_t at, int64_t n)
{
    take(t, at, n);
    keep_wide(t);
}

static inline void update_wide(trial *t, size_t at, int64_t n, float *values)
{
    update(t, at, n, values);
    keep_wide(t);
}

static inline bool is_half(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

static inline choir_dtype operand_dtype(const operand *o, choir_dtype dtype)
{
    return o->wide && is_half(dtype) ? CHOIR_F32 : dtype;
}

static inline size_t element_size(const operand *o, choir_dtype dtype)
{
    return o->raw ? o->raw : choir_dtype_size(operand_dtype(o, dtype));
}

/* Returns value rounded to dtype. */
static inline float rounded(float value, choir_dtype dtype)
{
    return dtype == CHOIR_BF16  ? choir__f32_from_bf16(choir__bf16_from_f32(value))
           : dtype == CHOIR_F16 ? choir__f32_from_f16(choir__f16_from_f32(value))
                                : value;
}

/* Returns element i of memory of dtype. */
static inline float element(const void *data, int64_t i, choir_dtype dtype)
{
    switch (dtype) {
    case CHOIR_F64: return (float)((const double *)data)[i];
    case CHOIR_BF16: return choir__f32_from_bf16(((const uint16_t *)data)[i]);
    case CHOIR_F16: return choir__f32_from_f16(((const uint16_t *)data)[i]);
    default: return ((const float *)data)[i];
    }
}

/* Stores the operand's values in dtype. as: the dtype to which they are rounded first; dtype
 * itself or a narrower one. */
static inline void fill_operand(
    const operand *o, choir_dtype dtype, choir_dtype as, unsigned char *data)
{
    dtype = operand_dtype(o, dtype);
    for (int64_t i = 0; i < o->n && !o->raw; i++) {
        float value = o->values ? rounded(o->values[i], operand_dtype(o, as)) : NAN;
        if (dtype == CHOIR_F64)
            ((double *)data)[i] = (double)value;
        else if (dtype == CHOIR_BF16)
            ((uint16_t *)data)[i] = choir__bf16_from_f32(value);
        else if (dtype == CHOIR_F16)
            ((uint16_t *)data)[i] = choir__f16_from_f32(value);
        else
            ((float *)data)[i] = value;
    }
}

/* Makes the call with the operands in the device's memory, and copies them back. */
static inline void call_device(const trial *t, unsigned char *args, const result *r,
    const size_t *bytes, choir_device *device)
{
    on_device copy[MAX_OPERANDS];
    for (int j = 0; j < t->count; j++) {
        copy[j] = to_device(device, r->block[j], bytes[j]);
        unsigned char *p = (unsigned char *)choir__block_data(copy[j].block) +
                           (r->data[j] - (unsigned char *)r->block[j]);
        for (int place = 0; place < t->operand[j].places; place++)
            memcpy(args + t->operand[j].at[place], &p, sizeof p);
    }
    /* other arguments (ids, a step's number) stay in the host's memory */
    call_with_host_memory(device, t->kernel, args, t->bytes);
    for (int j = 0; j < t->count; j++)
        from_device(device, copy[j], r->block[j]);
}

/* Makes the call with a table of the processor's or on a device. Returns the operands' memory
 * after it. as: see fill_operand. */
static inline result run_as(const trial *t, const choir__kernels *table, choir_device *device,
    choir_dtype dtype, choir_dtype as, int shift)
{
    unsigned char args[sizeof t->args] __attribute__((aligned(16)));
    size_t bytes[MAX_OPERANDS];
    result r = {0};
    kernel_fn *kernel;
    memcpy(args, t->args, t->bytes);
    memcpy(args + t->dtype_at, &dtype, sizeof dtype);
    for (int j = 0; j < t->count; j++) {
        const operand *o = &t->operand[j];
        size_t size = element_size(o, dtype), body = (size_t)o->n * size;
        size_t lead = (size_t)shift * size;
        r.block[j] = aligned_alloc(64, (body + lead + 2 * GUARD) & ~(size_t)63);
        r.data[j] = (unsigned char *)r.block[j] + lead;
        bytes[j] = lead + body + GUARD;
        memset(r.block[j], 0xA5, bytes[j]);
        fill_operand(o, dtype, as, r.data[j]);
        for (int p = 0; p < o->places && !device; p++)
            memcpy(args + o->at[p], &r.data[j], sizeof(void *));
    }
    if (device) {
        call_device(t, args, &r, bytes, device);
    } else {
        memcpy(&kernel, (const char *)table + t->kernel, sizeof kernel);
        kernel(args);
    }
    for (int j = 0; j < t->count; j++) {
        size_t size = element_size(&t->operand[j], dtype);
        for (size_t i = 0; i < GUARD; i++)
            if (r.data[j][(size_t)t->operand[j].n * size + i] != 0xA5)
                fail_msg("%s: wrote beyond operand %d", t->name, j);
        for (int i = 0; i < shift * (int)size; i++)
            if (((unsigned char *)r.block[j])[i] != 0xA5)
                fail_msg("%s: wrote before operand %d", t->name, j);
    }
    return r;
}

static inline result run(
    const trial *t, const choir__kernels *table, choir_dtype dtype, int shift)
{
    return run_as(t, table, NULL, dtype, dtype, shift);
}

static inline void free_result(const trial *t, result *r)
{
    for (int j = 0; j < t->count; j++)
        free(r->block[j]);
}

static inline bool same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Returns ||out - ref|| / ||ref|| over the finite elements; infinite if others do not match. */
static inline double distance(const float *out, const double *ref, int64_t n)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double y = (double)out[i];
        if (!isfinite(ref[i]) || !isfinite(y)) {
            if (!same_value(y, ref[i]))
                return INFINITY;
            continue;
        }
        difference += (y - ref[i]) * (y - ref[i]);
        norm += ref[i] * ref[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

/* Returns the tables that this machine can run, and their names. */
static inline int isa_tables(
    const choir__kernels *tables[MAX_TABLES], const char *names[MAX_TABLES])
{
    int count = 0;
    if (test_device()) {
        tables[0] = &device_table, names[0] = test_device()->name;
        return 1;
    }
    const char *all[MAX_TABLES] = {"baseline", "avx2", "avx512"};
    bool can[MAX_TABLES] = {true, false, false};
#if defined(__x86_64__)
    can[1] = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    can[2] = can[1] && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#endif
    for (int i = 0; i < MAX_TABLES; i++) {
        const choir__kernels *table = can[i] ? choir__cpu_kernels(all[i]) : NULL;
        if (table)
            tables[count] = table, names[count++] = all[i];
    }
    assert_true(count > 0);
    return count;
}

static inline const choir__kernels *first_table(void)
{
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    isa_tables(tables, names);
    return tables[0];
}

/* Compares one instruction set's result with the reference in f64 and, where promised, in
 * f32. */
static inline void compare(const trial *t, const char *isa, const result *out,
    const result *wide, const result *narrow)
{
    for (int j = 0; j < t->count; j++) {
        const operand *o = &t->operand[j];
        if (!o->out)
            continue;
        if (o->raw) {
            if (memcmp(out->data[j], wide->data[j], (size_t)o->n * o->raw))
                fail_msg("%s (%s): operand %d differs from the reference", t->name, isa, j);
            continue;
        }
        const float *y = (const float *)out->data[j], *exact = (const float *)narrow->data[j];
        double d = distance(y, (const double *)wide->data[j], o->n);
        if (!(d <= t->tolerance))
            fail_msg("%s (%s): operand %d of %lld elements is off by %g, %g allowed", t->name,
                isa, j, (long long)o->n, d, t->tolerance);
        for (int64_t i = 0; t->exact && i < o->n; i++)
            if (!same_value((double)y[i], (double)exact[i]))
                fail_msg("%s (%s): element %lld of operand %d is %a, not %a", t->name, isa,
                    (long long)i, j, (double)y[i], (double)exact[i]);
    }
}

static inline void compare_bits(
    const trial *t, const char *isa, const char *other, const result *a, const result *b)
{
    for (int j = 0; j < t->count && !t->bits_may_differ; j++)
        if (t->operand[j].out &&
            memcmp(a->data[j], b->data[j],
                (size_t)t->operand[j].n * element_size(&t->operand[j], CHOIR_F32)))
            fail_msg("%s: operand %d has other bits on %s than on %s", t->name, j, isa, other);
}

/* --- on a device --- */

/* Returns the tolerance of results of dtype, given t->tolerance for f32. */
static inline double tolerance_in(const trial *t, choir_dtype dtype)
{
    return dtype == CHOIR_BF16  ? 1e-2
           : dtype == CHOIR_F16 ? 2e-3
           : dtype == CHOIR_F64 ? (t->f64_tolerance > 0 ? t->f64_tolerance : 1e-9)
                                : t->tolerance;
}

/* Returns the part of y - exact that rounding to dtype does not explain. f16 has few exponents:
 * its numbers below 2^-14 are 2^-24 apart, and half of that is much of a result so small. */
static inline double error_in(double y, double exact, choir_dtype dtype)
{
    double error = fabs(y - exact);
    bool coarse = dtype == CHOIR_F16 && fabs(exact) < 0x1p-14;
    return coarse ? fmax(error - 0x1p-25, 0) : error;
}

/* Like distance(), for elements of dtype: f64 keeps its digits, and values beyond f16's range
 * count as infinite. */
static inline double distance_in(
    const void *out, const double *ref, int64_t n, choir_dtype dtype)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double y =
            dtype == CHOIR_F64 ? ((const double *)out)[i] : (double)element(out, i, dtype);
        bool beyond = dtype == CHOIR_F16 && fabs(ref[i]) >= 65504;
        double exact = beyond ? copysign(INFINITY, ref[i]) : ref[i];
        if (beyond && fabs(y) == 65504)
            continue;
        if (!isfinite(exact) || !isfinite(y)) {
            if (!same_value(y, exact))
                return INFINITY;
            continue;
        }
        double error = error_in(y, exact, dtype);
        difference += error * error;
        norm += exact * exact;
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

static inline void compare_in(const trial *t, const result *out, const result *wide,
    const result *narrow, choir_dtype dtype)
{
    const char *name = choir_dtype_name(dtype);
    for (int j = 0; j < t->count; j++) {
        const operand *o = &t->operand[j];
        choir_dtype kind = operand_dtype(o, dtype);
        if (!o->out)
            continue;
        if (o->raw) {
            if (memcmp(out->data[j], wide->data[j], (size_t)o->n * o->raw))
                fail_msg("%s (%s): operand %d differs from the reference", t->name, name, j);
            continue;
        }
        double d = distance_in(out->data[j], (const double *)wide->data[j], o->n, kind);
        /* twice the tolerance: among few 16-bit numbers, one that nearly cancelled dominates
         * the error */
        double allowed = tolerance_in(t, dtype) * (is_half(dtype) && o->n < 16 ? 2 : 1);
        if (is_half(dtype) && t->half_slack > 0)
            allowed *= t->half_slack;
        if (!(d <= allowed))
            fail_msg("%s (%s): operand %d of %lld elements is off by %g, %g allowed", t->name,
                name, j, (long long)o->n, d, allowed);
        for (int64_t i = 0; t->exact && dtype == CHOIR_F32 && i < o->n; i++) {
            double y = (double)element(out->data[j], i, kind);
            double exact = (double)element(narrow->data[j], i, kind);
            if (!same_value(y, exact))
                fail_msg("%s: element %lld of operand %d is %a, not %a", t->name, (long long)i,
                    j, y, exact);
        }
    }
}

static inline void check_on_device(
    const trial *t, choir_device *device, choir_dtype dtype, int shift)
{
    result wide = run_as(t, &choir__cpu_reference, NULL, CHOIR_F64, dtype, 0);
    result narrow = run(t, &choir__cpu_reference, CHOIR_F32, 0);
    result out = run_as(t, NULL, device, dtype, dtype, shift);
    result again = run_as(t, NULL, device, dtype, dtype, shift);
    compare_in(t, &out, &wide, &narrow, dtype);
    for (int j = 0; j < t->count; j++)
        if (t->operand[j].out &&
            memcmp(out.data[j], again.data[j],
                (size_t)t->operand[j].n * element_size(&t->operand[j], dtype)))
            fail_msg("%s (%s): operand %d has other bits the second time", t->name,
                choir_dtype_name(dtype), j);
    free_result(t, &wide);
    free_result(t, &narrow);
    free_result(t, &out);
    free_result(t, &again);
}

static inline void free_values(const trial *t)
{
    for (int j = 0; j < t->count; j++)
        free(t->operand[j].values);
}

/* Returns whether this run makes the trial in dtype on the device. */
static inline bool wanted_in(const trial *t, choir_dtype dtype)
{
    static uint32_t begun[sizeof(choir__kernels) / sizeof(kernel_fn *)]; /* one bit per dtype */
    uint32_t *kernel = &begun[t->kernel / sizeof(kernel_fn *)], bit = 1u << dtype;
    if ((dtype != CHOIR_F32 && dtype != CHOIR_F64 && !is_half(dtype)) ||
        (is_half(dtype) && t->no_half))
        return false;
    bool first = !(*kernel & bit);
    *kernel |= bit;
    return first | sample_one_of(sample_rate());
}

static inline void check(trial t)
{
    static int shift;
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    choir_device *device = test_device();
    shift = (shift + 1) % 3;
    if (device && !device_has(device, t.kernel)) {
        free_values(&t);
        skip();
    }
    for (int dtype = 0; device && dtype < CHOIR_DTYPE_COUNT; dtype++)
        if (wanted_in(&t, (choir_dtype)dtype))
            check_on_device(&t, device, (choir_dtype)dtype, shift);
    if (device) {
        free_values(&t);
        return;
    }
    int count = isa_tables(tables, names);
    result wide = run(&t, &choir__cpu_reference, CHOIR_F64, 0), first = {0};
    result narrow = run(&t, &choir__cpu_reference, CHOIR_F32, 0);
    for (int i = 0; i < count; i++) {
        result out = run(&t, tables[i], CHOIR_F32, shift);
        compare(&t, names[i], &out, &wide, &narrow);
        if (i == 0) {
            first = out;
            continue;
        }
        compare_bits(&t, names[i], names[0], &out, &first);
        free_result(&t, &out);
    }
    free_result(&t, &first);
    free_result(&t, &wide);
    free_result(&t, &narrow);
    free_values(&t);
}

/* Sizes around the widths of vectors, and small ones. */
static const int64_t odd_sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 257, 1025};

#endif
