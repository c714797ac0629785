/* Each schedule's order on a device, as arithmetic on ranks.
 *
 * With p devices, m micro-batches and device d:
 *
 *    1f1b         p - 1 - d forwards to warm up, then F B F B ..., then the remaining B. So
 *                 device d holds at most p - d micro-batches.
 *    zero-bubble  as 1f1b, and after each B the W of d micro-batches before: delaying a W lets
 * the earlier devices continue sooner. So all hold at most p, and the last W, on which no
 * action depends, fill the idle time at the end. interleaved  micro-batches pass the chunks in
 * rounds, p (or somewhat more) at a time; (v - 1) p + 2 (p - 1 - d) forwards to warm up.
 *
 * Written from the papers: GPipe (Huang et al. 2018), PipeDream (2019), Megatron-LM (Narayanan
 * et al. 2021), Zero Bubble Pipeline Parallelism (Qi et al. 2023). */
#include "base/base.h"
#include "parallel/plan/pipeline_plan.h"

static void put(choir_action **at, choir_action_kind kind, int stage, int64_t micro)
{
    *(*at)++ = (choir_action){kind, stage, micro};
}

void choir__pipeline_plan_sequential(
    const choir_pipeline_plan *plan, int device, choir_action *actions)
{
    const int p = plan->devices;
    for (int64_t i = 0; i < plan->micros; i++) {
        for (int s = device; s < plan->stages; s += p)
            put(&actions, CHOIR_FORWARD, s, i);
        for (int s = device + (plan->chunks - 1) * p; s >= 0; s -= p)
            put(&actions, CHOIR_BACKWARD, s, i);
    }
}

void choir__pipeline_plan_gpipe(
    const choir_pipeline_plan *plan, int device, choir_action *actions)
{
    for (int64_t i = 0; i < plan->micros; i++)
        put(&actions, CHOIR_FORWARD, device, i);
    for (int64_t i = 0; i < plan->micros; i++)
        put(&actions, CHOIR_BACKWARD, device, i);
}

void choir__pipeline_plan_1f1b(
    const choir_pipeline_plan *plan, int device, choir_action *actions)
{
    const int64_t m = plan->micros, warmup = choir__min(m, plan->devices - 1 - device);
    for (int64_t i = 0; i < warmup; i++)
        put(&actions, CHOIR_FORWARD, device, i);
    for (int64_t i = 0; i < m; i++) {
        if (i + warmup < m)
            put(&actions, CHOIR_FORWARD, device, i + warmup);
        put(&actions, CHOIR_BACKWARD, device, i);
    }
}

/* Writes 1f1b with a W after each B: the W of `lag` micro-batches before. */
static void split(const choir_pipeline_plan *plan, int device, int lag, choir_action *actions)
{
    const int64_t m = plan->micros, warmup = choir__min(m, plan->devices - 1 - device);
    for (int64_t i = 0; i < warmup; i++)
        put(&actions, CHOIR_FORWARD, device, i);
    for (int64_t i = 0; i < m + lag; i++) { /* the i-th B, and the actions around it */
        if (i + warmup < m)
            put(&actions, CHOIR_FORWARD, device, i + warmup);
        if (i < m)
            put(&actions, CHOIR_BACKWARD_INPUT, device, i);
        if (i >= lag)
            put(&actions, CHOIR_BACKWARD_WEIGHT, device, i - lag);
    }
}

void choir__pipeline_plan_zero_bubble(
    const choir_pipeline_plan *plan, int device, choir_action *actions)
{
    split(plan, device, device, actions);
}

void choir__pipeline_plan_split_1f1b(
    const choir_pipeline_plan *plan, int device, choir_action *actions)
{
    split(plan, device, 0, actions);
}

/* --- interleaved --- */

/* A position in the order (round, chunk, micro-batch of the round). Rounds have p micro-batches
 * or somewhat more; their sizes differ by at most 1, the larger ones first. So the forwards of
 * the first round fill the pipeline, and no round is too short to keep it full. */
typedef struct walk {
    int64_t rounds, round, first, in_round; /* first: first micro-batch of the round */
    int chunk, from, step; /* chunks ascend in forwards, and descend in backwards */
} walk;

static int64_t round_size(const choir_pipeline_plan *plan, const walk *w)
{
    return plan->micros / w->rounds + (w->round < plan->micros % w->rounds);
}

static walk walk_of(const choir_pipeline_plan *plan, bool forward)
{
    walk w = {.rounds = choir__max(1, plan->micros / plan->devices)};
    w.from = forward ? 0 : plan->chunks - 1;
    w.step = forward ? 1 : -1;
    w.chunk = w.from;
    return w;
}

static void walk_on(const choir_pipeline_plan *plan, walk *w)
{
    if (++w->in_round < round_size(plan, w))
        return;
    w->in_round = 0;
    w->chunk += w->step;
    if (w->chunk >= 0 && w->chunk < plan->chunks)
        return;
    w->chunk = w->from;
    w->first += round_size(plan, w);
    w->round++;
}

void choir__pipeline_plan_interleaved(
    const choir_pipeline_plan *plan, int device, choir_action *actions)
{
    const int p = plan->devices;
    const int64_t all = plan->chunks * plan->micros;
    walk f = walk_of(plan, true), b = walk_of(plan, false);
    int64_t warmup = (plan->chunks - 1) * round_size(plan, &f) + 2 * (p - 1 - device);
    if (plan->chunks == 1)
        warmup = p - 1 - device; /* as in 1f1b */
    warmup = choir__min(warmup, all);
    for (int64_t i = -warmup; i < all; i++) { /* the i-th B, after the forward before it */
        if (i + warmup < all) {
            put(&actions, CHOIR_FORWARD, f.chunk * p + device, f.first + f.in_round);
            walk_on(plan, &f);
        }
        if (i >= 0) {
            put(&actions, CHOIR_BACKWARD, b.chunk * p + device, b.first + b.in_round);
            walk_on(plan, &b);
        }
    }
}
