/* Evaluation: runs the dataset in order, in batches, which are distributed over the ranks in
 * contiguous runs. Each batch's sums are gathered and added in order in f64, so the result does
 * not depend on the number of ranks. */
#include <choir/evaluate.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/floats.h"
#include "base/math/functions.h"
#include "checkpoint/agree.h"
#include "base/tree.h"
#include "nn/module.h"
#include "parallel/batches.h"
#include "parallel/context_parallel/context_parallel.h"
#include "tensor/handle.h"
#include "tensor/scope.h"
#include "tensor/sequence.h"
#include "tensor/strategy.h"
#include "tensor/tensor.h"

/* --- counting ---
 *
 * A batch's loss is summed over its rows, and its targets are counted; for classifiers each
 * class is counted, too. Counts are integers, so their sum over ranks has no order; the losses
 * of the batches are added in the order of the batches.
 *
 *   accuracy    targets with the largest score                / targets
 *   top5        targets with one of the five largest scores   / targets
 *   precision   of a class: its correct predictions           / its predictions
 *   recall      of a class: its correct predictions           / its targets
 *   F1          of a class: 2 correct / (predictions + targets)
 *
 * Where a sample may have several classes, those whose score is above 0 are predicted, and a
 * sample is right if all of its classes are.
 *
 * The mean F1 equals scikit-learn's f1_score(average="macro", zero_division=0): over the
 * classes that some target or some prediction names. */

/* The sums of one batch. Where ranks share sequences, each counts best and top5 among its own
 * tokens; the end adds them. */
typedef struct batch_sums {
    double loss;        /* mean times rows */
    int64_t rows;       /* targets that count */
    int64_t best, top5; /* targets with the largest score, with one of the five largest */
} batch_sums;

/* Counts of each class over all batches of a rank. counts: (classes, COUNTS). NULL: the
 * model is not a classifier. */
typedef struct tally {
    int64_t classes;
    int64_t *counts;
    bool ranked; /* top5 was counted, since the scores cover all classes */
} tally;

enum { TARGETS, PREDICTIONS, CORRECT, COUNTS }; /* the counts of a class */
enum { TOP = 5 };

static void tally_init(tally *t, const choir_model_info *info)
{
    *t = (tally){0};
    if (!choir_task_has_classes(info->task))
        return;
    t->classes = info->classes;
    t->counts = choir__calloc((size_t)t->classes * COUNTS + 1, sizeof *t->counts);
}

static void tally_free(tally *t)
{
    free(t->counts);
}

static void add_best(tally *t, const int64_t *best, const int64_t *y, int64_t count,
    int64_t ignored, bool again, batch_sums *s)
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
static choir_status add_top5(tally *t, choir_tensor *scores, const int64_t *y, int64_t count,
    int64_t ignored, batch_sums *s)
{
    if (!t->counts || choir__is_part(scores))
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

/* Adds the rows of a batch to its sums, and, unless `again`, to the counts of the classes. A
 * rank sets `again` for a batch that another rank counts. scores: the model's outputs; y:
 * targets, whose values `ignored` do not count. */
static choir_status tally_add(
    tally *t, choir_tensor *scores, choir_tensor *y, int64_t ignored, bool again, batch_sums *s)
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

/* Like tally_add, for samples that may have several classes: y (n, classes) is 0 or 1. */
static choir_status tally_several(
    tally *t, choir_tensor *scores, const float *y, int64_t n, bool again, batch_sums *s)
{
    size_t bytes = (size_t)(n * t->classes) * sizeof(float);
    float *all = choir__alloc(bytes + 1); /* (n, classes) */
    choir_status status = choir_read(choir_cast(scores, CHOIR_F32), all, bytes);
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++) {
        bool right = true;
        for (int64_t c = 0; c < t->classes; c++) {
            int64_t *counts = t->counts + c * COUNTS, at = i * t->classes + c;
            bool has = y[at] > 0, says = all[at] > 0;
            right &= has == says;
            counts[TARGETS] += has && !again;
            counts[PREDICTIONS] += says && !again;
            counts[CORRECT] += has && says && !again;
        }
        s->best += right;
    }
    free(all);
    return status;
}

/* Adds the counts of all ranks. Collective. */
static choir_status tally_gather(tally *t, choir_group *group)
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

static double mean_f1(const tally *t)
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

/* Computes the score, and the classes' own scores unless per_class is NULL. */
static void tally_score(const tally *t, const choir_model_info *info, const batch_sums *s,
    int64_t count, choir_score *score, choir_class_score *per_class)
{
    batch_sums total = {0};
    const double none = (double)NAN;
    for (int64_t i = 0; i < count; i++) {
        total.loss += s[i].loss;
        total.rows += s[i].rows;
        total.best += s[i].best;
        total.top5 += s[i].top5;
    }
    double rows = (double)total.rows;
    score->targets = total.rows;
    score->loss = total.loss / rows;
    score->accuracy = info->task != CHOIR_REGRESSION ? (double)total.best / rows : none;
    score->perplexity = choir_task_has_ids(info->task) ? choir__exp(score->loss) : none;
    score->top5 = t->ranked ? (double)total.top5 / rows : none;
    score->f1 = t->counts ? mean_f1(t) : none;
    for (int64_t c = 0; per_class && c < t->classes; c++)
        per_class[c] = score_class(t->counts + c * COUNTS);
}

/* Returns the target value that is ignored. */
static int64_t ignored_by(const choir_model_info *info)
{
    return info->task == CHOIR_IMAGE_TO_TEXT ? info->pad : CHOIR_IGNORED;
}

/* Returns the number of rows whose targets are not ignored. */
static int64_t rows_of(
    const choir_model_info *info, int64_t n, const choir_tensor *y, const int64_t *targets)
{
    int64_t rows = 0;
    if (!choir_task_has_ids(info->task))
        return n;
    for (int64_t i = 0; i < choir_tensor_count(y); i++)
        rows += targets[i] != ignored_by(info);
    return rows;
}

/* The sums of a rank's batches, and the model that runs them. */
typedef struct evaluation {
    choir_module *net;
    const choir_model_info *info;
    choir__batches batches;
    int64_t mine; /* batches that this rank counts; others it runs for other ranks' sake */
    tally tally;
    batch_sums *sums; /* (batches.count) */
    const choir_eval_opts *opts;
    choir__strategy *shares; /* the strategy whose ranks share the sequences; NULL: none */
    int64_t asked;           /* calls of opts->between */
    choir_status agreed;     /* an error that all ranks have, or know of */
} evaluation;

/* Asks whether the evaluation continues. */
static choir_status ask(void *arg, choir_status mine)
{
    evaluation *e = arg;
    e->asked++;
    return e->agreed = e->opts->between(e->opts->arg, mine);
}

/* Ends the ranks' batches together. With a question each rank asks it `rounds` times, whatever
 * the number of its batches, unless an answer has ended them. A failed forward is known to its
 * rank alone: where ranks wait for one another in forwards, the others wait in one. */
static choir_status end_batches(
    evaluation *e, choir_group *group, int64_t rounds, choir_status status)
{
    bool waited_for = choir_module_collective(e->net) || choir__strategies_wait(e->net->run);
    if (e->agreed != CHOIR_OK || (status != CHOIR_OK && waited_for))
        return status;
    if (!e->opts->between)
        return choir__agree(group, status);
    while (e->agreed == CHOIR_OK && e->asked < rounds)
        ask(e, status);
    return status == CHOIR_OK ? e->agreed : status;
}

/* Where sequences are cut, the loss is the loss of all tokens, and `out` has this rank's. */
static choir_status run_batch(void *arg, choir_scope *step, const choir__read_batch *b)
{
    evaluation *e = arg;
    int64_t number = (e->batches.first + b->position) % e->batches.count;
    batch_sums *s = &e->sums[number];
    choir_tensor *out = choir_model_forward(e->info, e->net, b->x, b->y);
    choir_tensor *loss = choir_model_loss(e->info, out, b->y);
    s->rows = rows_of(e->info, b->n, b->y, b->targets);
    s->loss = s->rows ? choir_item(loss) * (double)s->rows : 0;
    choir_status status = choir__scope_status(step);
    bool again = b->position >= e->mine;
    if (status == CHOIR_OK && e->info->task == CHOIR_MULTI_LABEL)
        status = tally_several(&e->tally, out, b->targets, b->n, again, s);
    else if (status == CHOIR_OK && choir_task_has_ids(e->info->task))
        status = tally_add(
            &e->tally, out, choir__sequence_own(step, b->y, 1), ignored_by(e->info), again, s);
    if (status == CHOIR_OK && e->opts->scored && !again)
        status = e->opts->scored(e->opts->scored_arg, number * e->batches.batch, b->n,
            choir__sequence_in_order(step, out, 1), b->y);
    return status;
}

/* Adds what the ranks that share the sequences have counted among their own tokens. Collective
 * over them. */
static choir_status add_shares(evaluation *e)
{
    const int64_t batches = e->mine,
                  of_classes = e->tally.counts ? e->tally.classes * COUNTS : 0;
    int64_t count = 2 * batches + of_classes;
    int64_t *all = choir__alloc((size_t)(count + 1) * sizeof *all);
    batch_sums *s = e->sums + e->batches.first;
    for (int64_t i = 0; i < batches; i++)
        all[2 * i] = s[i].best, all[2 * i + 1] = s[i].top5;
    if (of_classes)
        memcpy(all + 2 * batches, e->tally.counts, (size_t)of_classes * sizeof *all);
    choir_status status = e->shares->ops->chunks->count(e->shares, all, count);
    for (int64_t i = 0; i < batches; i++)
        s[i].best = all[2 * i], s[i].top5 = all[2 * i + 1];
    if (of_classes)
        memcpy(e->tally.counts, all + 2 * batches, (size_t)of_classes * sizeof *all);
    free(all);
    return status;
}

static void sync_buffer(const char *name, choir_tensor *t, void *arg)
{
    choir_device *device = t->storage ? choir__device_of(t) : NULL;
    (void)name;
    /* parameters are equal already; running statistics are taken from rank 0 */
    if (t->param || !device || device->away)
        return;
    (void)!choir_device_sync(device);
    (void)!choir_group_broadcast(
        arg, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, NULL);
}

/* Gathers the sums of all batches, in order. mine: this rank's batches [lo, hi) of `count`. */
static choir_status gather(
    choir_group *group, const batch_sums *mine, batch_sums *all, int64_t count)
{
    int world = choir_group_world(group);
    int64_t each = (count + world - 1) / world;
    batch_sums *padded = choir__calloc((size_t)(each * (world + 1)), sizeof *padded);
    int64_t lo, hi;
    choir__tree_run(count, choir_group_rank(group), world, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        padded[i - lo] = mine[i];
    choir_status status = choir_group_all_gather(
        group, padded, padded + each, each * (int64_t)sizeof *padded, CHOIR_U8, NULL);
    for (int r = 0; r < world; r++) {
        choir__tree_run(count, r, world, &lo, &hi);
        for (int64_t i = lo; i < hi; i++)
            all[i] = padded[each * (r + 1) + i - lo];
    }
    free(padded);
    return status;
}

choir_eval_opts choir_eval_defaults(void)
{
    return (choir_eval_opts){.batch_size = 32, .workers = 1};
}

static choir_status check(
    const choir_model_info *info, const choir_dataset *data, const choir_eval_opts *opts)
{
    if (!data || opts->batch_size < 1 || opts->max_batches < 0 || opts->workers < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "evaluate: expected a dataset, batches of 1 or more and 1 worker or more, got "
            "%lld and %d; begin with choir_eval_defaults()",
            (long long)opts->batch_size, opts->workers);
    if (choir_dataset_length(data) < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "evaluate: the dataset has no samples");
    if (opts->per_class && !choir_task_has_classes(info->task))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "evaluate: %s has no classes: per_class is for classifiers", info->config);
    return CHOIR_OK;
}

/* Chooses the batches of this rank; returns the number of forwards that it makes. */
static int64_t take_share(evaluation *e, choir_group *group, int64_t max_batches)
{
    choir__batches *b = &e->batches;
    b->count = (b->samples + b->batch - 1) / b->batch;
    if (max_batches && max_batches < b->count)
        b->count = max_batches;
    int64_t lo = 0, hi = b->count;
    if (group)
        choir__tree_run(b->count, choir_group_rank(group), choir_group_world(group), &lo, &hi);
    b->first = lo;
    e->mine = hi - lo;
    if (!group || !choir_module_collective(e->net))
        return e->mine;
    /* All ranks run equally many collective forwards, so some run a batch once more. */
    return (b->count + choir_group_world(group) - 1) / choir_group_world(group);
}

/* Returns how often a rank asks: before each of the batches of the one that has most, and once
 * behind them. */
static int64_t rounds_of(int64_t count, choir_group *group)
{
    int world = group ? choir_group_world(group) : 1;
    return (count + world - 1) / world + 1;
}

choir_status choir_evaluate(choir_scope *run, choir_module *net, const choir_model_info *info,
    choir_dataset *data, choir_eval_opts opts, choir_score *score)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use_run = choir__use_scope(run, __func__);
    if (use_run != CHOIR_OK)
        return use_run;
    choir_status use_net = choir__use_module(net, __func__);
    if (use_net != CHOIR_OK)
        return use_net;
    if (!info)
        return choir__missing(__func__, "model info");
    if (!data)
        return choir__missing(__func__, "dataset");
    if (!score)
        return choir__missing(__func__, "score");
    *score = (choir_score){NAN, NAN, NAN, NAN, NAN, 0, 0};
    choir_status status = check(info, data, &opts);
    if (status != CHOIR_OK)
        return status;
    choir_group *group = opts.group && choir_group_world(opts.group) > 1 ? opts.group : NULL;
    int64_t samples = choir_dataset_length(data);
    evaluation e = {.net = net,
        .info = info,
        .opts = &opts,
        .batches = {
            .data = data, .batch = choir__min(opts.batch_size, samples), .samples = samples}};
    if (opts.between) {
        e.batches.read = ask;
        e.batches.arg = &e;
    }
    int64_t forwards = take_share(&e, group, opts.max_batches), count = e.batches.count;
    e.sums = choir__calloc((size_t)count + 1, sizeof *e.sums);
    tally_init(&e.tally, info);
    status = choir_device_sync(run->device);
    if (group && status == CHOIR_OK)
        choir_module_visit(net, true, sync_buffer, group);
    choir_module_train(net, false);
    choir__cp_cut_evaluation(net, opts.chunks);
    e.shares = opts.chunks ? choir__cp_shares(net) : NULL;
    if (status == CHOIR_OK)
        status = choir__batches_each(run, &e.batches, forwards, opts.workers, run_batch, &e);
    choir__cp_cut_evaluation(net, false);
    choir_module_train(net, true);
    if (e.shares && status == CHOIR_OK)
        status = add_shares(&e);
    status = end_batches(&e, group, rounds_of(count, group), status);
    if (group && status == CHOIR_OK)
        status = gather(group, e.sums, e.sums, count);
    if (group && status == CHOIR_OK)
        status = tally_gather(&e.tally, group);
    score->samples = choir__min(samples, count * e.batches.batch);
    if (status == CHOIR_OK)
        tally_score(&e.tally, info, e.sums, count, score, opts.per_class);
    tally_free(&e.tally);
    free(e.sums);
    return status;
}
