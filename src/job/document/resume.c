/* --resume: the options that the command line leaves open are the checkpoint's, from its record
 * (document.h), and those that differ and cannot are refused. The table of options says what
 * happens to each: another strategy is taken, since the bits are the same; another --lr is
 * taken, with a note (changes.c); another --seed is refused. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/files/run_files.h"
#include "base/named.h"
#include "job/document/document.h"
#include "job/edit.h"
#include "line/values.h"

/* --- reading a record --- */

/* Adds an option's text to a record, and frees it. */
static void put(json_t *options, const choir__line_option *o, char *text)
{
    json_object_set_new(options, o->name, json_string(text));
    free(text);
}

/* Returns the options that a checkpoint without a record states by itself. */
static json_t *options_of_state(const choir_train_state *s)
{
    json_t *options = json_object();
    put(options, CHOIR__JOB_OPTION(training.batch_size),
        choir__format("%lld", (long long)s->batch_size));
    put(options, CHOIR__JOB_OPTION(training.microbatches),
        choir__format("%lld", (long long)s->microbatches));
    put(options, CHOIR__JOB_OPTION(training.seed),
        choir__format("%llu", (unsigned long long)s->seed));
    if (*s->optimizer)
        put(options, CHOIR__JOB_OPTION(optim.optimizer), choir__strdup(s->optimizer));
    if (*s->amp)
        put(options, CHOIR__JOB_OPTION(optim.amp), choir__strdup(s->amp));
    if (*s->bits)
        put(options, CHOIR__JOB_OPTION(optim.bits), choir__strdup(s->bits));
    return options;
}

static choir_status parse_record(choir__job_saves *saves, const char *text)
{
    saves->resumed = choir__job_read_record(text);
    return saves->resumed
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: job.json is no record of a job that this Choir reads", saves->resume);
}

/* Reads the record of the checkpoint into j->resumed. */
static choir_status read_record(choir__job_saves *saves)
{
    choir_train_state s;
    char *text = NULL;
    choir_status status =
        choir__is_hub_name(saves->resume) /* nothing is there; and the Hub has no runs */
            ? choir__error(CHOIR_ERR_IO, "cannot open the checkpoint %s: %s", saves->resume,
                  strerror(ENOENT))
            : choir__job_name_saves(saves->resume, choir_training_read(saves->resume, &s));
    if (status == CHOIR_OK && !*s.model)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s is of a model of a program's own, which only that program can train",
            saves->resume);
    if (status == CHOIR_OK)
        status = choir_training_job(saves->resume, &text);
    if (status == CHOIR_OK && text)
        status = parse_record(saves, text);
    else if (status == CHOIR_OK)
        saves->resumed = json_pack("{s:o}", "options", options_of_state(&s));
    saves->resumed_step = s.step;
    saves->resumed_validates = s.eval_due != 0;
    if (status == CHOIR_OK) /* with all sizes, also those that its data determined */
        put(json_object_get(saves->resumed, "options"), CHOIR__JOB_OPTION(model.name),
            choir__strdup(s.model));
    free(text);
    return status;
}

/* --- taking it --- */

/* Refuses an option that the command line gives and the record does not have, or has otherwise,
 * if the checkpoint belongs to the recorded one. before: the recorded job. */
static choir_status compare(
    const choir__job *j, const choir__job *before, const choir__line_option *o)
{
    const char *space = o->argument ? " " : "";
    char *was = choir__job_option_text(before, o, CHOIR__BRIEF),
         *is = choir__job_option_text(j, o, CHOIR__BRIEF); /* NULL: a flag that is off */
    bool cut = o->recorded == CHOIR__RECORDED_CUT && !j->saves.recut;
    bool keeps = o->recorded == CHOIR__RECORDED_KEEPS || cut ||
                 (o->recorded == CHOIR__RECORDED_KIND && was && !choir__job_same_kind(was, is));
    choir_status status = CHOIR_OK;
    if (keeps && (was && is ? strcmp(was, is) != 0 : was != is))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained with%s --%s%s%s: it cannot continue with%s %s%s", j->saves.resume,
            was ? "" : "out", o->name, was ? space : "", was && o->argument ? was : "",
            is ? "" : "out", o->argument && is ? is : "it",
            cut ? ", unless --recut allows that the numbers change" : "");
    free(is);
    free(was);
    return status;
}

static choir_status take(choir__job *j, const choir__job *before, const choir__line_option *o)
{
    json_t *options = json_object_get(j->saves.resumed, "options");
    if (choir__job_was_given(j, o) ||
        choir__job_leaves_out(j, o)) /* choir__job_check_resumed compares a late one */
        return o->late ? CHOIR_OK : compare(j, before, o);
    if (!choir__job_recorded(&j->saves, o->name) && o->unrecorded && o->unrecorded())
        *(const char **)((char *)j + o->at) = o->unrecorded();
    if (!choir__job_recorded(&j->saves, o->name) ||
        !choir__job_takes(j, o, j->saves.resumed, true))
        return CHOIR_OK;
    char *where = choir__format("%s: its record of --%s", j->saves.resume, o->name);
    choir_status status = choir__line_json_take(options, o, j, where);
    free(where);
    return status;
}

/* A checkpoint of a program, or of a Choir that kept fewer options. */
static void note_what_is_missing(choir__job *j)
{
    char list[400] = "";
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (o->recorded == CHOIR__RECORDED_TAKES && !choir__job_was_given(j, o) &&
            !choir__job_recorded(&j->saves, o->name) && !(o->unrecorded && o->unrecorded()))
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s--%s",
                *list ? ", " : "", o->name);
    if (*list)
        choir__job_add_note(&j->saves,
            choir__format("%s does not record all options of its job: these have their "
                          "defaults: %s",
                j->saves.resume, list));
}

/* Returns whether path is a run's folder, not one of its steps. */
static bool is_run(const char *path)
{
    char found[PATH_MAX], itself[PATH_MAX];
    return choir_training_find(path, found) == CHOIR_OK && realpath(path, itself) &&
           strcmp(found, itself) != 0;
}

/* Returns the run's folder that a path names, also as DIR/latest, which is its newest step, or
 * NULL; the caller frees it. */
static char *run_at(const char *path)
{
    static const char latest[] = "/latest";
    size_t bytes = strlen(path);
    if (is_run(path))
        return choir__strdup(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    char *folder = choir__format("%s%.*s", *path == '/' ? "" : "./", (int)bytes, path);
    char *end = strrchr(folder, '/');
    if (end > folder && !strcmp(end, latest))
        *end = '\0';
    if (is_run(folder))
        return folder;
    free(folder);
    return NULL;
}

/* Returns the folder of a run from the path of one of its checkpoints; the caller frees it. */
static char *run_of(const char *checkpoint)
{
    const char *slash = strrchr(checkpoint, '/');
    return choir__format("%.*s", slash ? (int)(slash - checkpoint) : 0, checkpoint);
}

/* A run continues in its folder. From one of its steps another run begins; and what a program
 * keeps in a folder is not for Choir to delete. */
static void take_folder(choir__job_saves *s)
{
    const bool takes = !s->dir && json_object_get(s->resumed, "format");
    char *run = !takes ? NULL : s->rewound ? run_of(s->resume) : run_at(s->resume);
    if (run)
        json_object_set_new(s->resumed, "save", json_string_nocheck(run));
    if (run)
        s->dir = json_string_value(json_object_get(s->resumed, "save"));
    if (!s->dir)
        choir__job_add_note(s, choir__strdup("nothing is saved without --save"));
    free(run);
}

/* --- its logs --- */

bool choir__job_goes_on_in_place(const choir__job_saves *s)
{
    char found[PATH_MAX], folder[PATH_MAX];
    if (!s->resume || !s->dir || choir_training_find(s->resume, found) != CHOIR_OK ||
        !realpath(s->dir, folder))
        return false;
    char *run = run_of(found);
    bool same = !strcmp(run, folder);
    free(run);
    return same;
}

/* Returns "csv:a.csv, tensorboard:b", or NULL for no logs; the caller frees it. */
static char *list_of(const json_t *logs)
{
    char list[512];
    const char **dests = choir__calloc(json_array_size(logs) + 1, sizeof *dests);
    choir__name_table table = {dests, json_array_size(logs), sizeof *dests, false};
    for (size_t i = 0; i < table.count; i++) {
        const char *dest = json_string_value(json_array_get(logs, i));
        dests[i] = dest ? dest : "(no text)";
    }
    choir__list_names(&table, list, sizeof list);
    free(dests);
    return table.count ? choir__strdup(list) : NULL;
}

/* Takes the logs that job.json names, and how often they have histograms. */
static choir_status take_destinations(choir__job *j, json_t *options, const char *path)
{
    const choir__line_option *each = CHOIR__JOB_OPTION(records.log_histograms);
    choir_status status =
        choir__job_take_list(&j->records, CHOIR__JOB_OPTION(records.log), options, path);
    if (status == CHOIR_OK && !choir__job_was_given(j, each) &&
        choir__line_json_text(options, each->name))
        status = choir__line_json_take(options, each, j, path);
    return status;
}

/* A run that continues in its folder also continues the logs of its job.json, unless the
 * command line names others. Another run would write over what the first one has logged, so it
 * has none; that is also a run whose folder --run names and that begins there. */
static choir_status take_logs(choir__job *j)
{
    const choir__line_option *logs = CHOIR__JOB_OPTION(records.log);
    char found[PATH_MAX], *left = NULL;
    if (choir__job_was_given(j, logs) || choir__job_leaves_out(j, logs) ||
        choir_training_find(j->saves.resume, found) != CHOIR_OK)
        return CHOIR_OK;
    char *before = run_of(found),
         *run = choir__strdup(j->records.run ? j->records.run : before);
    char *path = choir__format("%s/" CHOIR__JOB_FILE, run);
    json_t *root = choir__file_json(path, 0, NULL),
           *first = choir__file_json_in(before, CHOIR__JOB_FILE);
    choir_status status = CHOIR_OK;
    if (root && (j->records.run || choir__job_goes_on_in_place(&j->saves)))
        status = take_destinations(j, json_object_get(root, "options"), path);
    else
        left = list_of(json_object_get(json_object_get(first, "options"), logs->name));
    if (left)
        choir__job_add_note(&j->saves,
            choir__format("this run does not continue the logs of %s: %s; --log names its "
                          "own",
                j->saves.resume, left));
    json_decref(root);
    json_decref(first);
    free(left);
    free(path);
    free(run);
    free(before);
    return status;
}

/* A job that an agent has started again continues: its first ranks have gone back. */
static choir_status rewind_run(choir__job *j)
{
    if (!j->saves.rewind || choir__job_is_started_again(j))
        return CHOIR_OK;
    char *run = run_at(j->saves.resume);
    choir_status status = choir__job_rewind(&j->saves, run);
    free(run);
    return status;
}

choir_status choir__job_recall(choir__job *j)
{
    choir_status status = rewind_run(j);
    if (status == CHOIR_OK)
        status = read_record(&j->saves);
    if (status != CHOIR_OK)
        return status;
    const choir__job before = choir__job_of_record(j->command, j->saves.resumed);
    for (const choir__line_option *o = choir__job_options; o->name && status == CHOIR_OK; o++)
        if (o->recorded != CHOIR__NOT_RECORDED)
            status = take(j, &before, o);
    if (status != CHOIR_OK)
        return status;
    if (!j->data.path)
        j->data.path = json_string_value(json_object_get(j->saves.resumed, "data"));
    if (!json_object_get(j->saves.resumed, "format"))
        note_what_is_missing(j);
    take_folder(&j->saves);
    return take_logs(j);
}

/* --- when the data are open --- */

/* Refuses a job that the checkpoint is not a part of. */
choir_status choir__job_check_resumed(const choir__job *j)
{
    const char *model = choir__job_recorded(&j->saves, CHOIR__JOB_OPTION(model.name)->name);
    if (strcmp(model, j->model.info.config) != 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is of the model %s, not %s",
            j->saves.resume, model, j->model.info.config);
    if (j->saves.resumed_step >= j->training.steps + j->saves.resumed_validates)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has done %lld steps already, and the job ends after %lld: name more with --steps",
            j->saves.resume, (long long)j->saves.resumed_step, (long long)j->training.steps);
    return CHOIR_OK;
}
