/* Changes that --resume makes. Two jobs are compared, the one that the checkpoint records and
 * the one that begins: options by the table of options, and the place of work by the strategies
 * and their tables of keys, which have the same column. So a note names exactly the changes
 * that make the numbers differ from an uninterrupted job's. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/text/corpus.h"
#include "device/cpu/multiplier.h"
#include "job/document/document.h"
#include "job/trainer/eval_policy.h"
#include "line/say.h"

/* --- options --- */

/* Returns the job that the checkpoint records. The caller frees its composition. */
static choir__job recorded_job(const choir__job *j)
{
    choir__job before = choir__job_of_record(j->command, j->saves.resumed);
    choir__job_training *t = &before.training;
    if (t->eval_epochs &&
        __builtin_mul_overflow(t->eval_epochs, j->training.epoch_steps, &t->eval_every))
        t->eval_every = 0; /* never, as by default */
    if (t->epochs && __builtin_mul_overflow(t->epochs, j->training.epoch_steps, &t->steps))
        t->steps = 0;
    const char *strategy =
        choir__job_recorded(&j->saves, CHOIR__JOB_OPTION(placement.strategy_text)->name);
    if (strategy &&
        choir__composition_parse(strategy, &before.placement.composition) == CHOIR_OK &&
        before.placement.mesh)
        (void)!choir__composition_mesh(&before.placement.composition, before.placement.mesh);
    return before;
}

static bool has_changed(
    const choir__job *j, const choir__job *before, const choir__line_option *o)
{
    char *was = choir__job_option_text(before, o, CHOIR__COMPARED),
         *is = choir__job_option_text(j, o, CHOIR__COMPARED);
    bool same = was && is ? !strcmp(was, is) : was == is;
    free(was);
    free(is);
    return !same;
}

/* Returns whether numbers of one of the two jobs, or its judgement, depend on the option. */
static bool matters(const choir__job *j, const choir__job *before, const choir__line_option *o)
{
    bool noted = o->recorded == CHOIR__RECORDED_JUDGES ||
                 o->recorded == CHOIR__RECORDED_TAKES || o->recorded == CHOIR__RECORDED_KIND ||
                 (o->recorded == CHOIR__RECORDED_CUT && j->saves.recut);
    return noted && (!o->matters || o->matters(j) || o->matters(before));
}

/* Returns what the command line gives, such as "--epochs 2, 120 steps,"; the caller frees it.
 */
static char *given_text(const choir__job *j, const choir__line_option *o)
{
    char *text = choir__line_text(o, (const char *)j + o->at);
    const char *is = text ? text : "false"; /* a flag */
    const choir__line_option *by = choir__job_filled_by(j, o);
    char *filling = by ? choir__job_option_text(j, by, CHOIR__BRIEF) : NULL;
    char *given = by ? choir__format("--%s %s, %s steps,", by->name, filling, is)
                     : choir__format("--%s %s", o->name, is);
    free(filling);
    free(text);
    return given;
}

static void note_option(choir__job *j, const choir__job *before, const choir__line_option *o)
{
    char *was = choir__line_text(o, (const char *)before + o->at), *given = given_text(j, o);
    const char *cut =
        o->recorded == CHOIR__RECORDED_CUT ? ": the numbers from here on are others" : "";
    choir__job_add_note(
        &j->saves, was ? choir__format("%s replaces the checkpoint's %s%s", given, was, cut)
                       : choir__format("%s is new: the checkpoint has none%s", given, cut));
    free(given);
    free(was);
}

/* --- strategies --- */

/* Strategies that have the bits of `single` replace each other without a word. */
static void note_strategy(choir__job *j, choir__job *before)
{
    choir__composition_settle(&before->placement.composition, NULL,
        (int)choir__max(before->placement.nproc, 1), before->training.microbatches);
    char *was = choir__composition_numbers(&before->placement.composition,
             before->placement.nproc, before->training.microbatches),
         *is = choir__composition_numbers(
             &j->placement.composition, j->placement.nproc, j->training.microbatches);
    if (before->placement.composition.count && strcmp(was, is) != 0)
        choir__job_add_note(&j->saves,
            choir__format("strategy %s replaces the checkpoint's %s: the numbers from here on "
                          "are others",
                *is ? is : j->placement.strategy_text,
                *was ? was : before->placement.strategy_text));
    free(was);
    free(is);
    const char *forgotten = choir__job_strategy_forgets(&j->placement);
    if (forgotten)
        choir__job_add_note(&j->saves,
            choir__format("strategy %s: %s; the numbers from here on may be others than "
                          "those of an uninterrupted run",
                j->placement.strategy->name, forgotten));
}

/* --- devices --- */

/* Kernels of another kind of device add in other orders. */
static void note_device(choir__job *j)
{
    const char *was = json_string_value(json_object_get(j->saves.resumed, "device"));
    char *is = choir__job_device(&j->placement);
    if (was && strcmp(was, is) != 0)
        choir__job_add_note(
            &j->saves, choir__format("device %s replaces the checkpoint's %s: the "
                                     "numbers from here on are others",
                           is, was));
    free(is);
}

/* --- builds --- */

/* Returns the number of the way of the build that wrote the record. */
static int64_t way(const choir__job_saves *saves, const char *of)
{
    const json_t *was = json_object_get(saves->resumed, of);
    return was ? json_integer_value(was) : 1;
}

/* Builds before arithmetic 2 added the terms of 3x3 convolutions in another order. */
static void note_arithmetic(choir__job *j)
{
    const char *device = json_string_value(json_object_get(j->saves.resumed, "device"));
    char *is = choir__job_device(&j->placement);
    if (device && !strcmp(device, "cpu") && !strcmp(is, device) &&
        j->model.info.input.ndim == 3 && way(&j->saves, "arithmetic") < CHOIR__ARITHMETIC)
        choir__job_add_note(
            &j->saves, choir__strdup("the checkpoint is from a build that adds the terms of "
                                     "3x3 convolutions in another order: the numbers from "
                                     "here on may be others"));
    free(is);
}

/* Builds before documents 2 wrote no token in front of a text. */
static void note_documents(choir__job *j)
{
    const choir_tokenizer *t = j->model.tokenizer;
    if (t && t->begin > 0 && j->model.info.task == CHOIR_LANGUAGE &&
        (j->data.stream || choir_data_has_documents(j->data.path)) &&
        way(&j->saves, "documents") < CHOIR__DOCUMENTS)
        choir__job_add_note(
            &j->saves, choir__format("the checkpoint is from a build that puts no %s in front "
                                     "of documents: their numbers from here on are others",
                           choir_tokenizer_decode(t, t->begin - 1)));
}

/* --- the end --- */

/* A run that --patience has ended has nothing left to do, unless it gets more patience. */
static void note_end(choir__job *j)
{
    choir_train_state s;
    choir__eval_policy judge;
    if (choir_training_read(j->saves.resume, &s) != CHOIR_OK)
        return;
    choir__eval_policy_from_state(&judge, j, &s, true);
    if (choir__eval_policy_patience_is_over(&judge, &j->training))
        choir__job_add_note(&j->saves,
            choir__format("%s has ended by --patience %lld after step %lld: nothing is left to "
                          "train; give it a larger --patience",
                j->saves.resume, (long long)j->training.patience,
                (long long)j->saves.resumed_step));
}

choir_status choir__job_check_cut(const choir__job *j)
{
    choir__job before = recorded_job(j);
    choir_status status = choir__job_strategy_check_recut(j, &before.placement.composition);
    choir__composition_free(&before.placement.composition);
    return status;
}

void choir__job_note_changes(choir__job *j)
{
    choir__job before = recorded_job(j);
    bool has_record = json_object_get(j->saves.resumed, "format") != NULL;
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if ((has_record || choir__job_recorded(&j->saves, o->name)) && matters(j, &before, o) &&
            has_changed(j, &before, o))
            note_option(j, &before, o);
    note_strategy(j, &before);
    note_device(j);
    note_arithmetic(j);
    note_documents(j);
    note_end(j);
    choir__composition_free(&before.placement.composition);
}

/* --- what the tables say --- */

static void print_row(const char *of, const char *between, const choir__line_option *o)
{
    static const char *const words[] = {[CHOIR__NOT_RECORDED] = "unrecorded",
        [CHOIR__RECORDED_FREE] = "no",
        [CHOIR__RECORDED_PLACE] = "by strategy",
        [CHOIR__RECORDED_JUDGES] = "judges",
        [CHOIR__RECORDED_TAKES] = "yes",
        [CHOIR__RECORDED_KIND] = "yes",
        [CHOIR__RECORDED_KEEPS] = "refused",
        [CHOIR__RECORDED_CUT] = "refused"};
    printf("%s%s%s %s%s\n", of, between, o->name, words[o->recorded],
        o->matters ? " sometimes" : "");
}

void choir__job_print_numbers(void)
{
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        print_row("", "--", o);
    for (int i = 0; choir__job_strategies[i]; i++)
        for (const choir__line_option *k = choir__job_strategies[i]->keys; k && k->name; k++)
            print_row(choir__job_strategies[i]->name, ":", k);
}
