/* Plans on several cores, with the bits of one.
 *
 * oneDNN divides a primitive's work by rules of its own. Where each thread computes its part of
 * the result, the bits equal one core's. In some shapes, such as the gradient of a small
 * matrix out of many rows, the threads share a sum instead, and then they are not. oneDNN does
 * not say which it does, but the order of its additions depends on shapes alone, never on
 * values. So a new plan for several cores runs once on random operands, beside the plan for one
 * core. It is kept if every bit of the results is the same; else one core computes the shape.
 */
#include "device/cpu/onednn/onednn.h"

#include <stdlib.h>
#include <string.h>

/* Fills with numbers of 0.5 to 1 and either sign, as f32 and as bf16 alike. */
static void fill(uint16_t *p, size_t bytes)
{
    uint64_t seed = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < bytes / sizeof *p; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        p[i] = (uint16_t)(0x3f00 | (seed >> 40 & 0x807f));
    }
}

/* Runs the plan on fresh operands, one after the other in memory that the caller frees; NULL if
 * that failed. */
static char *trial(choir__onednn *cache, choir__onednn_plan *plan,
    const choir__onednn_kind *kind, const void *problem, size_t *bytes)
{
    void *data[4];
    *bytes = 0;
    for (int i = 0; i < 4; i++)
        *bytes += (plan->plain[i] + 63) & ~(size_t)63;
    char *operands = aligned_alloc(64, *bytes + !*bytes * 64), *at = operands;
    char *scratch = aligned_alloc(64, (choir__onednn_scratch(plan) + 127) & ~(size_t)63);
    bool ok = operands && scratch;
    if (ok)
        fill((uint16_t *)operands, *bytes);
    for (int i = 0; i < 4; i++) {
        data[i] = at;
        at += (plan->plain[i] + 63) & ~(size_t)63;
    }
    ok = ok && kind->run(cache, plan, problem, data, scratch);
    free(scratch);
    if (ok)
        return operands;
    free(operands);
    return NULL;
}

static bool same_bits(choir__onednn *cache, choir__onednn_plan *alone,
    choir__onednn_plan *together, const choir__onednn_kind *kind, const void *problem)
{
    size_t bytes = 0;
    char *a = trial(cache, alone, kind, problem, &bytes),
         *b = a ? trial(cache, together, kind, problem, &bytes) : NULL;
    bool same = a && b && !memcmp(a, b, bytes);
    free(a);
    free(b);
    return same;
}

void choir__onednn_settle(choir__onednn *cache, choir__onednn_plan *plan,
    const choir__onednn_kind *kind, const void *problem)
{
    int threads = choir__cpu_context_threads(choir__cpu_context_current());
    choir__onednn_plan alone = {0}, together = {0};
    choir__dnnl_set_team(1);
    kind->build(cache, &alone, problem);
    *plan = alone;
    if (threads == 1 || !alone.op.primitive)
        return;
    choir__dnnl_set_team(threads);
    kind->build(cache, &together, problem);
    bool same = together.op.primitive && same_bits(cache, &alone, &together, kind, problem);
    *plan = same ? together : alone;
    choir__onednn_plan_free(same ? &alone : &together);
}
