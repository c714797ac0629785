/* Notes on options that are valid and yet unlikely to be meant, before training starts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "checkpoint/gguf/family.h"
#include "checkpoint/gguf/import.h"
#include "checkpoint/weights/beside_files.h"
#include "data/records.h"
#include "job/job.h"
#include "line/values.h"

/* Returns whether the data are a text by its contents and something else by its name. */
static bool is_table(const choir__job *j)
{
    static const char *const ends[] = {".json", ".xml"};
    const char *dot = j->data.path ? strrchr(j->data.path, '.') : NULL;
    for (size_t i = 0; dot && j->model.info.task == CHOIR_LANGUAGE && i < CHOIR_COUNT(ends);
         i++)
        if (!strcasecmp(dot, ends[i]))
            return !choir__is_array_file(j->data.path);
    return false;
}

/* Returns whether the data have a label per record, and the model, which fills gaps in texts,
 * has no use for it. */
static bool has_unused_labels(const choir__job *j)
{
    choir__data_records records;
    const choir__json *record = NULL;
    const char *path = j->data.path;
    if (!j->model.info.masked || !path || !choir__is_record_file(path))
        return false;
    if (choir__data_records_open(&records, path) != CHOIR_OK ||
        choir__data_records_next(&records, &record) != CHOIR_OK)
        (void)choir_error_message(); /* marks the error as read: the data were opened before */
    bool has =
        record && (choir__json_get(record, "label") || choir__json_get(record, "labels"));
    choir__data_records_close(&records);
    return has;
}

static void say(const choir__job *j, char *text)
{
    choir__job_tell_notes(j, text);
    free(text);
}

/* Returns a device that several ranks share by name, or NULL. */
static const char *shared_device(const choir__job_placement *p)
{
    for (int i = 1; p->devices && i < choir__min(p->device_count, CHOIR__MAX_DEVICES); i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(p->device_names[i], p->device_names[k]))
                return p->device_names[i];
    return NULL;
}

/* Returns whether the job has another value than by default. A job file that --print-job wrote
 * gives all options. */
static bool has_own(const choir__job *j, const choir__line_option *o)
{
    char *text =
        choir__job_was_given(j, o) ? choir__line_text(o, (const char *)j + o->at) : NULL;
    bool own = text && (!o->preset || strcmp(text, o->preset) != 0);
    free(text);
    return own;
}

/* Names the first option without effect for each reason, whose options follow one another.
 * Scripts share options among their jobs, so these are not errors. */
static void note_idle(const choir__job *j)
{
    const char *said = NULL;
    for (const choir__line_option *o = choir__job_options; o->name; o++) {
        const char *why = o->no_effect && has_own(j, o) ? o->no_effect(j) : NULL;
        if (why && why != said)
            say(j, choir__format("%s: --%s has no effect", why, o->name));
        said = why ? why : said;
    }
}

/* Returns whether a GGUF file has the model's matrices transposed, so that frozen ones cannot
 * stay in its blocks. */
static bool is_turned(const choir__job *j)
{
    const char *weights = j->model.weights, *config = j->model.info.config;
    const bool frozen = j->optim.lora || j->optim.freeze;
    if (!frozen || j->optim.base || j->saves.resume || !weights ||
        !choir__is_gguf_file(weights))
        return false;
    char *type = choir__format("%.*s", (int)strcspn(config, ":"), config);
    const choir__gguf_family *family = choir__gguf_family_of(type);
    const choir__gguf_name *n = family ? family->names : NULL;
    while (n && n->published && n->change != CHOIR__GGUF_TRANSPOSED)
        n++;
    free(type);
    return n && n->published;
}

void choir__job_notes(const choir__job *j)
{
    const char *shared = shared_device(&j->placement);
    int64_t warmup = choir__job_warmup(j);
    if (j->ranks.rank > 0)
        return;
    say(j, choir__beside_notes(&(choir__beside_parts){
               j->model.info.config, j->model.beside, j->model.tokenizer, &j->model.classes}));
    if (is_table(j))
        say(j,
            choir__format("%s is trained on as plain text, with its separators", j->data.path));
    if (has_unused_labels(j))
        say(j, choir__format("%s has labels, and this model fills gaps in texts: to train a "
                             "classifier, name the number of classes, such as %.*s:classes=2",
                   j->data.path, (int)strcspn(j->model.name, ":"), j->model.name));
    if (choir_dataset_says(j->data.train))
        say(j, choir__strdup(choir_dataset_says(j->data.train)));
    char *numbers = choir__classes_note(j->data.train, &j->model.classes);
    if (numbers)
        say(j, numbers);
    char *unbalanced = choir__job_strategy_chunks_note(j);
    if (unbalanced)
        say(j, unbalanced);
    if (is_turned(j))
        say(j,
            choir__format("%s has matrices transposed, so frozen ones are held as f32: --base "
                          "names a type of fewer bits",
                j->model.weights));
    note_idle(j);
    if (shared)
        say(j, choir__format(
                   "--devices %s: the ranks on %s take turns", j->placement.devices, shared));
    if (j->optim.swa > j->training.steps && !j->saves.dir) /* a saved job may continue */
        say(j,
            choir__format("--swa %lld with --steps %lld: no step is averaged, so the weights "
                          "are the last step's",
                (long long)j->optim.swa, (long long)j->training.steps));
    if (warmup >= j->training.steps)
        say(j, choir__format(
                   "--schedule %s: a warm-up of %lld steps and --steps %lld: the rate never "
                   "reaches --lr %g",
                   j->optim.schedule, (long long)warmup, (long long)j->training.steps,
                   j->optim.lr));
}
