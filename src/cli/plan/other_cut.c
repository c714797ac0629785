/* Another cut: the best strategy with other numbers of micro-batches. They have other bits, so
 * a plan tells of one and never takes it. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A plan tells of a cut whose step takes at most this share of the time. */
static const double GAIN = 0.95;

static void set(const choir__plan_entry *e, choir__job *j)
{
    j->training.microbatches = e->times;
}

static bool is_tried(const choir__planning *p, const choir__plan_entry *best, int64_t m)
{
    return m > 0 && m != best->microbatches && p->job.training.batch_size % m == 0;
}

void choir__plan_other_cut(choir__planning *p)
{
    const choir__plan_entry *best = choir__plan_best(p);
    choir__plan_entry found = {.price.ms = best ? GAIN * best->price.ms : 0};
    bool any = false;
    if (!best || !isfinite(best->price.ms))
        return;
    const int64_t m = best->microbatches, cuts[] = {1, m / 4, m / 2, 2 * m, 4 * m, best->ranks};
    for (size_t i = 0; i < CHOIR_COUNT(cuts); i++) {
        choir__plan_entry tried = {.change = set, .times = cuts[i]};
        if (!is_tried(p, best, cuts[i]))
            continue;
        memcpy(tried.text, best->text, sizeof tried.text);
        memcpy(tried.mesh, best->mesh, sizeof tried.mesh);
        choir__plan_foresee(p, &tried);
        choir__rehearsal_free(&tried.rehearsal);
        if (!tried.planned || !tried.fits || !(tried.price.ms < found.price.ms))
            continue;
        found = tried;
        any = true;
    }
    if (!any)
        return;
    p->other_cut = found.microbatches;
    p->other_ms = found.price.ms;
    p->other = choir__format(
        "Another cut would be faster, with other numbers: %lld micro-batches of %lld samples take "
        "%.0f %% less time.",
        (long long)found.microbatches,
        (long long)(p->job.training.batch_size / found.microbatches),
        100 * (1 - found.price.ms / best->price.ms));
    p->other_command = choir__plan_command(p, &found, "");
}
