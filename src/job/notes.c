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

/* A resumed job has said so already. */
static bool never_saves(const choir__job *j)
{
    return !j->saves.dir && !j->saves.resume;
}

static bool never_validates(const choir__job *j)
{
    return j->training.no_eval && !j->training.eval_every && !j->training.eval_epochs;
}

static bool is_alone(const choir__job *j)
{
    return !j->ranks.launched && j->placement.nproc == 1;
}

/* Options that do nothing without another one. Scripts share options among their jobs, so these
 * are not errors. */
static const struct {
    bool (*idle)(const choir__job *j);
    const char *why;
    const char *options[5];
} idles[] = {
    {never_saves, "nothing is saved without --save",
        {"save-every", "save-keep", "save-warn", "grace"}},
    {never_validates, "nothing is validated with --no-eval",
        {"eval-batches", "metric", "best"}},
    {is_alone, "one process meets no others", {"backend", "key-file"}},
};

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

/* Names the first such option that the job has, of each kind. */
static void note_idle(const choir__job *j)
{
    for (size_t i = 0; i < CHOIR_COUNT(idles); i++) {
        const choir__line_option *o = NULL;
        for (const char *const *name = idles[i].options; *name && !o; name++) {
            o = choir__line_named(choir__job_options, *name);
            o = has_own(j, o) ? o : NULL;
        }
        if (o && idles[i].idle(j))
            say(j, choir__format("%s: --%s has no effect", idles[i].why, o->name));
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
