/* The collectives that `choir bench` measures, and the check of their results.
 *
 * Each rank's data repeat a short sequence, shifted from rank to rank. The values are small
 * whole numbers, so that results are exact in every type (a mean: nearly), and the expected
 * result repeats a short sequence, too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/half.h"
#include "cli/bench/bench.h"

/* --- the calls --- */

static char *part(const choir__station *s, char *data, int rank, int64_t count)
{
    return data + (size_t)rank * (size_t)count * choir_dtype_size(s->b->dtype);
}

static choir_status all_reduce(const choir__station *s, int64_t count)
{
    return choir_group_all_reduce(s->group, s->out, count, s->b->dtype, s->b->op, NULL);
}

static choir_status reduce(const choir__station *s, int64_t count)
{
    return choir_group_reduce(s->group, s->out, count, s->b->dtype, s->b->op, 0, NULL);
}

static choir_status broadcast(const choir__station *s, int64_t count)
{
    return choir_group_broadcast(s->group, s->out, count, s->b->dtype, 0, NULL);
}

static choir_status all_gather(const choir__station *s, int64_t count)
{
    return choir_group_all_gather(
        s->group, part(s, s->out, s->rank, count), s->out, count, s->b->dtype, NULL);
}

static choir_status reduce_scatter(const choir__station *s, int64_t count)
{
    return choir_group_reduce_scatter(
        s->group, s->in, s->out, count, s->b->dtype, s->b->op, NULL);
}

static choir_status gather(const choir__station *s, int64_t count)
{
    return choir_group_gather(
        s->group, s->in, s->rank ? NULL : s->out, count, s->b->dtype, 0, NULL);
}

static choir_status scatter(const choir__station *s, int64_t count)
{
    return choir_group_scatter(
        s->group, s->rank ? NULL : s->in, s->out, count, s->b->dtype, 0, NULL);
}

static choir_status all_to_all(const choir__station *s, int64_t count)
{
    return choir_group_all_to_all(s->group, s->in, s->out, count, s->b->dtype, NULL);
}

/* Sends to the next rank and receives from the previous one at the same time, as in a ring. */
static choir_status sendrecv(const choir__station *s, int64_t count)
{
    const int next = (s->rank + 1) % s->world, before = (s->rank + s->world - 1) % s->world;
    choir_group_batch_begin(s->group);
    choir_status sent = choir_group_send(s->group, s->in, count, s->b->dtype, next, NULL);
    choir_status received =
        choir_group_receive(s->group, s->out, count, s->b->dtype, before, NULL);
    choir_status status = choir_group_batch_end(s->group, NULL);
    return sent ? sent : received ? received : status;
}

static choir_status barrier(const choir__station *s, int64_t count)
{
    (void)count;
    return choir_group_barrier(s->group, NULL);
}

static const choir__bench_collective collectives[] = {
    {"all_reduce", CHOIR__ALL_REDUCE, all_reduce, false, false, true, true, false,
        CHOIR__BUS_TWICE},
    {"all_gather", CHOIR__ALL_GATHER, all_gather, false, true, true, false, false,
        CHOIR__BUS_PART},
    {"reduce_scatter", CHOIR__REDUCE_SCATTER, reduce_scatter, true, false, false, true, false,
        CHOIR__BUS_PART},
    {"broadcast", CHOIR__BROADCAST, broadcast, false, false, true, false, true,
        CHOIR__BUS_ONCE},
    {"reduce", CHOIR__REDUCE, reduce, false, false, true, true, true, CHOIR__BUS_ONCE},
    {"gather", CHOIR__GATHER, gather, false, true, false, false, true, CHOIR__BUS_PART},
    {"scatter", CHOIR__SCATTER, scatter, true, false, false, false, true, CHOIR__BUS_PART},
    {"all_to_all", CHOIR__ALL_TO_ALL, all_to_all, true, true, false, false, false,
        CHOIR__BUS_PART},
    {"sendrecv", CHOIR__SEND, sendrecv, false, false, false, false, false, CHOIR__BUS_ONCE},
    {"barrier", CHOIR__BARRIER, barrier, false, false, true, false, false, CHOIR__BUS_NONE},
};

const choir__bench_collective *choir__bench_collective_find(const char *name)
{
    for (size_t i = 0; i < CHOIR_COUNT(collectives); i++)
        if (strcmp(name, collectives[i].name) == 0)
            return &collectives[i];
    return NULL;
}

const char *choir__bench_collective_name(size_t i)
{
    return i < CHOIR_COUNT(collectives) ? collectives[i].name : NULL;
}

/* --- numbers --- */

enum { PERIOD = 11, SHIFT = 3 };

/* A sequence in the benchmark's dtype: the elements given by a rank, and those expected of a
 * reduction. */
typedef struct sequence {
    size_t size; /* bytes of an element */
    int period;
    char given[PERIOD][8], wanted[PERIOD][8];
    double exact[PERIOD]; /* wanted */
} sequence;

static void encode(choir_dtype dtype, double value, char element[8])
{
    int64_t whole = (int64_t)value;
    float f32 = (float)value;
    uint16_t half;
    uint8_t byte = dtype == CHOIR_BOOL ? whole != 0 : (uint8_t)whole;
    int32_t i32 = (int32_t)whole;
    switch (dtype) {
    case CHOIR_F32: memcpy(element, &f32, 4); break;
    case CHOIR_F64: memcpy(element, &value, 8); break;
    case CHOIR_BF16:
    case CHOIR_F16:
        half = dtype == CHOIR_F16 ? choir__f16_from_f32(f32) : choir__bf16_from_f32(f32);
        memcpy(element, &half, 2);
        break;
    case CHOIR_I64: memcpy(element, &whole, 8); break;
    case CHOIR_I32: memcpy(element, &i32, 4); break;
    default: memcpy(element, &byte, 1); break;
    }
}

/* Decodes floats only, because means are inexact only in these types. */
static double decode(choir_dtype dtype, const char *element)
{
    float f32;
    double f64;
    uint16_t half;
    switch (dtype) {
    case CHOIR_F32: memcpy(&f32, element, 4); return (double)f32;
    case CHOIR_F64: memcpy(&f64, element, 8); return f64;
    default: memcpy(&half, element, 2);
    }
    f32 = dtype == CHOIR_F16 ? choir__f32_from_f16(half) : choir__f32_from_bf16(half);
    return (double)f32;
}

/* Chooses powers of two for products, and values whose sums need no rounding. */
static int value(choir_reduce_op op, int code)
{
    return op == CHOIR_PRODUCT ? 1 + (code == 0) : code;
}

static int64_t combine(choir_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case CHOIR_MIN: return choir__min(a, b);
    case CHOIR_MAX: return choir__max(a, b);
    case CHOIR_PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case CHOIR_BAND: return a & b;
    case CHOIR_BOR: return a | b;
    case CHOIR_BXOR: return a ^ b;
    default: return a + b;
    }
}

static bool is_float(choir_dtype dtype)
{
    return dtype == CHOIR_F32 || dtype == CHOIR_F64 || dtype == CHOIR_BF16 ||
           dtype == CHOIR_F16;
}

static sequence sequence_of(const choir__station *s)
{
    const choir_reduce_op op = s->b->op;
    const choir_dtype dtype = s->b->dtype;
    sequence q = {.size = choir_dtype_size(dtype), .period = PERIOD};
    q.period = op == CHOIR_PRODUCT ? 8 : q.size == 1 ? 2 : PERIOD;
    for (int i = 0; i < q.period; i++) {
        int64_t all = value(op, i);
        for (int r = 1; r < s->world; r++)
            all = combine(op, all, value(op, (i + r * SHIFT) % q.period));
        q.exact[i] = (double)all;
        if (op == CHOIR_MEAN)
            q.exact[i] = is_float(dtype) ? q.exact[i] / s->world : (double)(all / s->world);
        encode(dtype, value(op, i), q.given[i]);
        encode(dtype, q.exact[i], q.wanted[i]);
    }
    return q;
}

/* Fills data with `count` elements of the rank's data, from its element `first` on. */
static void fill(const sequence *q, char *data, int rank, int64_t first, int64_t count)
{
    int code = (int)((first + (int64_t)rank * SHIFT) % q->period);
    for (int64_t i = 0; i < count; i++, code = code + 1 == q->period ? 0 : code + 1)
        memcpy(data + (size_t)i * q->size, q->given[code], q->size);
}

/* Counts the elements of data that differ from the rank's data, from element `first` on. If
 * rank < 0, compares with the reduction over all ranks. */
static int64_t differ(const choir__station *s, const sequence *q, const char *data, int rank,
    int64_t first, int64_t count)
{
    const double tolerance = q->size == 2 ? 1.0 / 128 : q->size == 4 ? 1e-6 : 1e-14;
    const bool mean = rank < 0 && s->b->op == CHOIR_MEAN && is_float(s->b->dtype);
    int64_t wrong = 0;
    int code = (int)((first + choir__max(rank, 0) * SHIFT) % q->period);
    for (int64_t i = 0; i < count; i++, code = code + 1 == q->period ? 0 : code + 1) {
        const char *want = rank < 0 ? q->wanted[code] : q->given[code];
        const char *got = data + (size_t)i * q->size;
        if (memcmp(got, want, q->size) == 0)
            continue;
        double exact = q->exact[code];
        wrong += !mean || !(fabs(decode(s->b->dtype, got) - exact) <= tolerance * exact);
    }
    return wrong;
}

/* Runs the collective. If the data are on a device, copies them from and to `here`, on the
 * host. */
static void run_there(const choir__station *s, const choir__station *here, int64_t count)
{
    const size_t size = choir_dtype_size(s->b->dtype) * (size_t)count;
    const size_t in = s->b->what->parts_in ? size * (size_t)s->world : size;
    const size_t out = s->b->what->parts_out ? size * (size_t)s->world : size;
    if (s->device && size && s->in != s->out)
        choir_check(s->device->far->put(s->in, here->in, in));
    if (s->device && size)
        choir_check(s->device->far->put(s->out, here->out, out));
    choir_check(s->b->what->run(s, count));
    if (s->device && size)
        choir_check(s->device->far->get(here->out, s->out, out));
}

/* Runs the collective on known data and returns the number of wrong elements. `here` is the
 * ranks' memory, or its copy on the host. */
static int64_t check(const choir__station *s, const choir__station *here, int64_t count)
{
    const choir__bench_collective *what = s->b->what;
    const sequence q = sequence_of(s);
    const int64_t in = what->parts_in ? count * s->world : count;
    const int64_t out = what->parts_out ? count * s->world : count;
    const int before = (s->rank + s->world - 1) % s->world;
    int64_t wrong = 0;
    if (!what->in_place) /* an element that is not written must be wrong */
        memset(here->out, 0x5a, (size_t)out * q.size);
    fill(&q, what->kind == CHOIR__ALL_GATHER ? part(s, here->out, s->rank, count) : here->in,
        s->rank, 0, in);
    run_there(s, here, count);
    switch (what->kind) {
    case CHOIR__BROADCAST: return differ(s, &q, here->out, 0, 0, count);
    case CHOIR__SCATTER: return differ(s, &q, here->out, 0, s->rank * count, count);
    case CHOIR__SEND: return differ(s, &q, here->out, before, 0, count);
    case CHOIR__ALL_REDUCE: return differ(s, &q, here->out, -1, 0, count);
    case CHOIR__REDUCE: return s->rank ? 0 : differ(s, &q, here->out, -1, 0, count);
    case CHOIR__REDUCE_SCATTER: return differ(s, &q, here->out, -1, s->rank * count, count);
    case CHOIR__BARRIER: return 0;
    case CHOIR__GATHER:
        if (s->rank)
            return 0;
        break;
    default: break;
    }
    for (int r = 0; r < s->world; r++)
        wrong += differ(s, &q, part(s, here->out, r, count), r,
            what->parts_in ? s->rank * count : 0, count);
    return wrong;
}

int64_t choir__bench_check(const choir__station *s, int64_t count)
{
    choir__station here = *s;
    if (!s->device)
        return check(s, s, count);
    size_t room = (size_t)count * choir_dtype_size(s->b->dtype) * (size_t)s->world + 1;
    here.out = choir__calloc(room, 1);
    here.in = s->b->what->in_place ? here.out : choir__calloc(room, 1);
    int64_t wrong = check(s, &here, count);
    if (here.in != here.out)
        free(here.in);
    free(here.out);
    return wrong;
}
