/* Counting of an evaluation's targets and predictions.
 *
 *   accuracy    targets with the largest score                / targets
 *   top5        targets with one of the five largest scores   / targets
 *   precision   of a class: its correct predictions           / its predictions
 *   recall      of a class: its correct predictions           / its targets
 *   F1          of a class: 2 correct / (predictions + targets)
 *
 * The mean F1 equals scikit-learn's f1_score(average="macro", zero_division=0): over the
 * classes that some target or some prediction names. */
#include "parallel/tally.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/tensor.h"

enum { TARGETS, PREDICTIONS, CORRECT, COUNTS }; /* the counts of a class */
enum { TOP = 5 };

void choir__tally_init(choir__tally *t, const choir_model_info *info)
{
    *t = (choir__tally){0};
    if (info->task != CHOIR_CLASSIFICATION)
        return;
    t->classes = info->classes;
    t->counts = choir__calloc((size_t)t->classes * COUNTS + 1, sizeof *t->counts);
}

void choir__tally_free(choir__tally *t)
{
    free(t->counts);
}

static void add_best(choir__tally *t, const int64_t *best, const int64_t *y, int64_t count,
    int64_t ignored, bool again, choir__batch_sums *s)
{
    for (int64_t i = 0; i < count; i++) {
        if (y[i] == ignored)
            continue;
        s->best += best[i] == y[i];
        if (!t->counts || again)
            continue;
        t->counts[y[i] * COUNTS + TARGETS]++;
        t->counts[best[i] * COUNTS + PREDICTIONS]++;
        t->counts[y[i] * COUNTS + CORRECT] += best[i] == y[i];
    }
}

/* Returns the number of classes that come before the target in the order of scores; of equal
 * scores the lower class comes first, as in choir_argmax. */
static int64_t rank_of(const float *scores, int64_t classes, int64_t target)
{
    int64_t before = 0;
    for (int64_t c = 0; c < classes; c++)
        before += scores[c] > scores[target] || (scores[c] == scores[target] && c < target);
    return before;
}

/* Scores of a strategy that distributes the classes cannot be read as a whole. */
static choir_status add_top5(choir__tally *t, choir_tensor *scores, const int64_t *y,
    int64_t count, int64_t ignored, choir__batch_sums *s)
{
    if (!t->counts || scores->split)
        return CHOIR_OK;
    t->ranked = true;
    size_t bytes = (size_t)(count * t->classes) * sizeof(float);
    float *all = choir__alloc(bytes + 1); /* (count, classes) */
    choir_status status = choir_read(choir_cast(scores, CHOIR_F32), all, bytes);
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++)
        s->top5 += y[i] != ignored && rank_of(all + i * t->classes, t->classes, y[i]) < TOP;
    free(all);
    return status;
}

choir_status choir__tally_add(choir__tally *t, choir_tensor *scores, choir_tensor *y,
    int64_t ignored, bool again, choir__batch_sums *s)
{
    int64_t count = choir_tensor_count(y);
    size_t bytes = (size_t)count * sizeof(int64_t);
    int64_t *best = choir__alloc(bytes + 1), *targets = choir__alloc(bytes + 1);
    choir_status status = choir_read(choir_argmax(scores), best, bytes);
    if (status == CHOIR_OK)
        status = choir_read(y, targets, bytes);
    if (status == CHOIR_OK)
        add_best(t, best, targets, count, ignored, again, s);
    if (status == CHOIR_OK)
        status = add_top5(t, scores, targets, count, ignored, s);
    free(best);
    free(targets);
    return status;
}

choir_status choir__tally_gather(choir__tally *t, choir_group *group)
{
    if (!t->counts)
        return CHOIR_OK;
    return choir_group_all_reduce(
        group, t->counts, t->classes * COUNTS, CHOIR_I64, CHOIR_SUM, NULL);
}

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static choir_class_score score_class(const int64_t counts[COUNTS])
{
    int64_t correct = counts[CORRECT];
    return (choir_class_score){
        .samples = counts[TARGETS],
        .predictions = counts[PREDICTIONS],
        .precision = share(correct, counts[PREDICTIONS]),
        .recall = share(correct, counts[TARGETS]),
        .f1 = share(2 * correct, counts[PREDICTIONS] + counts[TARGETS]),
    };
}

static double mean_f1(const choir__tally *t)
{
    double sum = 0;
    int64_t named = 0;
    for (int64_t c = 0; c < t->classes; c++) {
        const int64_t *counts = t->counts + c * COUNTS;
        sum += score_class(counts).f1;
        named += counts[TARGETS] + counts[PREDICTIONS] > 0;
    }
    return sum / (double)named;
}

void choir__tally_score(const choir__tally *t, const choir_model_info *info,
    const choir__batch_sums *s, int64_t count, choir_score *score, choir_class_score *per_class)
{
    choir__batch_sums total = {0};
    const double none = (double)NAN;
    for (int64_t i = 0; i < count; i++) {
        total.loss += s[i].loss;
        total.rows += s[i].rows;
        total.best += s[i].best;
        total.top5 += s[i].top5;
    }
    double rows = (double)total.rows;
    score->targets = total.rows;
    bool classes = info->task != CHOIR_REGRESSION;
    score->loss = total.loss / rows;
    score->accuracy = classes ? (double)total.best / rows : none;
    score->perplexity = classes ? exp(score->loss) : none;
    score->top5 = t->ranked ? (double)total.top5 / rows : none;
    score->f1 = t->counts ? mean_f1(t) : none;
    for (int64_t c = 0; per_class && c < t->classes; c++)
        per_class[c] = score_class(t->counts + c * COUNTS);
}
