/* The record of a job: job.json in a checkpoint, with the options that decide its numbers, so
 * that `choir train --resume DIR` needs no other argument.
 *
 *     {"format": "choir-job", "version": 1, "data": "/data/text", "data_sha256": "...",
 *      "options": {"model": "gpt2:...", "lr": 0.001, "strategy": "ddp", ...},
 *      "device": "cpu",                                  kind of its devices
 *      "classes": ["down", "up"]}                        of a classifier (model/classes.c)
 *
 * The table of options says which of them are recorded, and what happens to one that the
 * command line gives otherwise: another strategy is taken, since the bits are the same; another
 * --lr is taken, with a note (changes.c); another --seed is refused. The ranks of a job
 * that were started one by one compare the same options. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "job/document/values.h"
#include "line/say.h"
#include "device/cpu/context.h"

enum { VERSION = 1 };

static const void *value_of(const choir__job *j, const choir__cli_option *o)
{
    return (const char *)j + o->at;
}

/* --- reading a record --- */

/* Returns the options that a checkpoint without a record states by itself. */
static json_t *options_of_state(const choir_train_state *s)
{
    json_t *options = json_object();
    char *numbers[] = {choir__format("%lld", (long long)s->batch_size),
        choir__format("%lld", (long long)s->microbatches),
        choir__format("%llu", (unsigned long long)s->seed)};
    static const char *const names[] = {"batch-size", "microbatches", "seed"};
    for (int i = 0; i < 3; i++) {
        json_object_set_new(options, names[i], json_string(numbers[i]));
        free(numbers[i]);
    }
    if (*s->optimizer)
        json_object_set_new(options, "optimizer", json_string(s->optimizer));
    if (*s->amp)
        json_object_set_new(options, "amp", json_string(s->amp));
    return options;
}

/* Makes a number or a boolean the text that the command line would have, which an older
 * version's record has. Returns whether it is of such a type. */
static bool as_text(json_t *options, const char *name, const json_t *value)
{
    char *text =
        json_is_integer(value)   ? choir__format("%lld", (long long)json_integer_value(value))
        : json_is_real(value)    ? choir__cli_number_text(json_real_value(value))
        : json_is_boolean(value) ? choir__strdup(json_is_true(value) ? "true" : "false")
                                 : NULL;
    const bool is = text != NULL;
    if (is) /* the key is there, so this may be done while visiting all of them */
        json_object_set_new(options, name, json_string(text));
    free(text);
    return is;
}

static choir_status parse_record(choir__job *j, const char *text)
{
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    const char *format = json_string_value(json_object_get(root, "format"));
    json_t *options = json_object_get(root, "options"), *value;
    const char *name;
    bool good = format && !strcmp(format, "choir-job") && json_is_object(options) &&
                json_integer_value(json_object_get(root, "version")) == VERSION;
    json_object_foreach(options, name, value)
    {
        good = good && (json_is_string(value) || as_text(options, name, value));
    }
    if (good)
        j->saves.resumed = root;
    else
        json_decref(root);
    return good ? CHOIR_OK
                : choir__error(CHOIR_ERR_FORMAT,
                      "%s: job.json is no record of a job that this Choir reads",
                      j->saves.resume);
}

/* Reads the record of the checkpoint into j->resumed. */
static choir_status read_record(choir__job *j)
{
    choir_train_state s;
    char *text = NULL;
    choir_status status = choir_training_read(j->saves.resume, &s);
    if (status == CHOIR_OK && !*s.model)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s is of a model of a program's own, which only that program can train",
            j->saves.resume);
    if (status == CHOIR_OK)
        status = choir_training_job(j->saves.resume, &text);
    if (status == CHOIR_OK && text)
        status = parse_record(j, text);
    else if (status == CHOIR_OK)
        j->saves.resumed = json_pack("{s:o}", "options", options_of_state(&s));
    j->saves.resumed_step = s.step;
    j->saves.resumed_validates = s.eval_due != 0;
    if (status == CHOIR_OK) /* with all sizes, also those that its data determined */
        json_object_set_new(
            json_object_get(j->saves.resumed, "options"), "model", json_string(s.model));
    free(text);
    return status;
}

/* --- taking it --- */

static bool same_kind(const char *a, const char *b)
{
    size_t n = strcspn(a, ":");
    return n == strcspn(b, ":") && !strncmp(a, b, n);
}

/* Refuses an option that the command line gives and the record does not have, or has otherwise,
 * if the checkpoint belongs to the recorded one. NULL: a flag that is off. */
static choir_status compare(
    const choir__job *j, const choir__cli_option *o, const char *was, const char *is)
{
    const char *space = o->argument ? " " : "";
    bool keeps = o->recorded == CHOIR__RECORDED_KEEPS ||
                 (o->recorded == CHOIR__RECORDED_KIND && was && !same_kind(was, is));
    if (!keeps || (was && is ? !strcmp(was, is) : was == is) ||
        !strcmp(o->name, "model")) /* check_resumed compares it with all sizes */
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s was trained with%s --%s%s%s: it cannot go on with%s %s", j->saves.resume,
        was ? "" : "out", o->name, was ? space : "", was && o->argument ? was : "",
        is ? "" : "out", o->argument && is ? is : "it");
}

/* Returns whether a place of work, of the job's record or file, gives way to one on the command
 * line that stands before it in the table, as a mesh belongs to its strategy, and a number of
 * ranks to both. */
static bool is_displaced_place(const choir__job *j, const char *name)
{
    bool before = false;
    for (const choir__cli_option *o = choir__job_options; o->name; o++) {
        if (o->recorded != CHOIR__RECORDED_PLACE)
            continue;
        if (!strcmp(o->name, name))
            return before || (!strcmp(name, "nproc") &&
                                 (j->placement.launched || choir__job_was_given(j, "devices")));
        before |= choir__job_was_given(j, o->name);
    }
    return false;
}

bool choir__job_is_displaced(const choir__job *j, const char *name)
{
    if (!strcmp(name, "eval-every") && choir__job_was_given(j, "eval-epochs"))
        return true;
    if (!strcmp(name, "eval-epochs") && choir__job_was_given(j, "eval-every"))
        return true;
    return is_displaced_place(j, name) || (!strcmp(name, "steps") && j->training.epochs);
}

static choir_status take(choir__job *j, const choir__cli_option *o)
{
    const char *was = choir__job_recorded(j, o->name);
    if (!choir__job_was_given(j, o->name)) {
        if (!was || choir__job_is_displaced(j, o->name))
            return CHOIR_OK;
        choir_status status = choir__cli_set(o, (char *)j + o->at, was);
        if (status == CHOIR_OK)
            return CHOIR_OK;
        char *why = choir__strdup(choir_error_message());
        choir__error(status, "%s: its record of --%s: %s", j->saves.resume, o->name, why);
        free(why);
        return status;
    }
    char *given = choir__cli_text(o, value_of(j, o)), *is = choir__job_located(o, given),
         *before = choir__job_located(o, was);
    choir_status status = compare(j, o, before, is);
    free(before);
    free(is);
    free(given);
    return status;
}

/* A checkpoint of a program, or of a Choir that kept fewer options. */
static void note_what_is_missing(choir__job *j)
{
    char list[400] = "";
    for (const choir__cli_option *o = choir__job_options; o->name; o++)
        if (o->recorded == CHOIR__RECORDED_TAKES && !choir__job_was_given(j, o->name) &&
            !choir__job_recorded(j, o->name))
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s--%s",
                *list ? ", " : "", o->name);
    if (*list)
        choir__job_add_note(
            j, choir__format("%s does not record all options of its job: these have their "
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

/* A run goes on in its folder. From one of its steps another run begins; and what a program
 * keeps in a folder is not for Choir to delete. */
static void take_folder(choir__job *j)
{
    char *run = !j->saves.dir && json_object_get(j->saves.resumed, "format")
                    ? run_at(j->saves.resume)
                    : NULL;
    if (run)
        json_object_set_new(j->saves.resumed, "save", json_string_nocheck(run));
    if (run)
        j->saves.dir = json_string_value(json_object_get(j->saves.resumed, "save"));
    if (!j->saves.dir)
        choir__job_add_note(j, choir__strdup("nothing is saved without --save"));
    free(run);
}

/* A run that goes on in its folder goes on in its logs, unless the command line names others.
 * Another run would write over what the first one has logged, so it has none. */
static choir_status take_logs(choir__job *j)
{
    char *left = NULL;
    choir_status status = choir__job_recall_logs(j, &left);
    if (left)
        choir__job_add_note(
            j, choir__format("this run does not go on in the logs of %s: %s; --log names its "
                             "own",
                   j->saves.resume, left));
    free(left);
    return status;
}

int choir__job_recall(choir__job *j)
{
    choir_status status = read_record(j);
    if (status != CHOIR_OK)
        return choir__cli_fail();
    for (const choir__cli_option *o = choir__job_options; o->name && status == CHOIR_OK; o++)
        if (o->recorded != CHOIR__NOT_RECORDED)
            status = take(j, o);
    if (status != CHOIR_OK)
        return choir__cli_fail();
    if (!j->data.path)
        j->data.path = json_string_value(json_object_get(j->saves.resumed, "data"));
    if (!json_object_get(j->saves.resumed, "format"))
        note_what_is_missing(j);
    take_folder(j);
    return take_logs(j) == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

/* --- writing it --- */

/* Refuses a job that the checkpoint is not a part of. */
static choir_status check_resumed(const choir__job *j)
{
    const char *model = choir__job_recorded(j, "model");
    if (strcmp(model, j->model.info.config) != 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is of the model %s, not %s",
            j->saves.resume, model, j->model.info.config);
    if (j->saves.resumed_step >= j->training.steps + j->saves.resumed_validates)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has done %lld steps already, and the job ends after %lld: name more with --steps",
            j->saves.resume, (long long)j->saves.resumed_step, (long long)j->training.steps);
    return CHOIR_OK;
}

static choir_status check_data(const choir__job *j)
{
    const char *was = j->saves.resumed
                          ? json_string_value(json_object_get(j->saves.resumed, "data_sha256"))
                          : j->document.sha256;
    if (!was || !strcmp(was, j->data.sha256) || (!j->saves.resumed && !*was))
        return CHOIR_OK;
    if (!j->saves.resumed)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: '%s' is not the data of this job (SHA-256 %.12s..., expected %.12s...); naming "
            "them on the command line takes them as they are",
            j->document.path, j->data.path ? j->data.path : "the text that comes with Choir",
            *j->data.sha256 ? j->data.sha256 : "none", was);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s is not the data that %s was trained on (SHA-256 %.12s..., expected %.12s...): name the "
        "same data, or begin another run from its weights by --weights %s/latest",
        j->data.path ? j->data.path : "the text that comes with Choir", j->saves.resume,
        *j->data.sha256 ? j->data.sha256 : "none", *was ? was : "none", j->saves.resume);
}

static void write_record(choir__job *j)
{
    json_t *options = json_object(), *root;
    for (const choir__cli_option *o = choir__job_options; o->name; o++) {
        json_t *value = o->recorded ? choir__job_value(j, o) : NULL;
        if (value && !json_is_false(value) &&
            (strcmp(o->name, "eval-every") != 0 || !j->training.eval_epochs))
            json_object_set(options, o->name, value);
        json_decref(value);
    }
    json_object_set_new(options, "model", json_string(j->model.info.config));
    root = json_pack("{s:s, s:i, s:s, s:o, s:o}", "format", "choir-job", "version", VERSION,
        "data_sha256", j->data.sha256, "options", options, "device", choir__job_device(j));
    char *place = j->data.path ? choir__job_place(j->data.path) : NULL;
    if (place)
        json_object_set_new(root, "data", json_string(place));
    free(place);
    choir__record_classes(root, &j->model.classes);
    j->saves.record = choir__job_exact_text(root);
    json_decref(root);
}

choir_status choir__job_note(choir__job *j)
{
    if (!j->saves.dir && !j->records.run && !j->saves.resume && !j->placement.launched &&
        !j->document.sha256 && !j->records.print_job)
        return CHOIR_OK;
    choir_status status = choir__job_check_words(j);
    if (status == CHOIR_OK && j->saves.resumed)
        status = check_resumed(j);
    if (status == CHOIR_OK && !j->data.stream)
        status = choir_data_sha256(j->data.path, &j->model.info, j->data.sha256);
    if (status == CHOIR_OK)
        status = check_data(j);
    if (status != CHOIR_OK)
        return status;
    if (j->saves.resumed)
        choir__job_note_changes(j);
    if (j->saves.notes && j->placement.rank == 0)
        choir__cli_notes(j->command, j->saves.notes);
    write_record(j);
    return CHOIR_OK;
}

/* --- the ranks --- */

static size_t bytes_of(choir_dtype dtype, choir_shape shape)
{
    size_t bytes = choir_dtype_size(dtype);
    for (int i = 0; i < shape.ndim; i++)
        bytes *= (size_t)shape.dim[i];
    return bytes;
}

/* Compares the files, and the first sample, which shows another tokenizer or preparation. */
static choir_status agree_on_data(const choir__job *j, choir_group *group)
{
    choir_dataset *d = j->data.train;
    size_t x_bytes = bytes_of(d->x_dtype, d->x_shape),
           y_bytes = bytes_of(d->y_dtype, d->y_shape);
    char *sample = choir__calloc(1, x_bytes + y_bytes + 1), text[24];
    choir_status status = choir_group_agree(group, "the data, by its SHA-256", j->data.sha256);
    if (status == CHOIR_OK)
        status = choir_dataset_get(d, 0, sample, sample + x_bytes);
    snprintf(text, sizeof text, "%016llx",
        (unsigned long long)choir__hash_bytes(CHOIR__HASH_SEED, sample, x_bytes + y_bytes));
    if (status == CHOIR_OK)
        status = choir_group_agree(group, "the first sample of the data, by its hash", text);
    free(sample);
    return status;
}

/* Compares published weights, which lie under other paths on other machines. */
static choir_status agree_on_weights(const choir__job *j, choir_group *group)
{
    char hex[65] = "none";
    choir_status status = CHOIR_OK;
    if (j->model.weights && !j->saves.resume)
        status = choir_weight_files_sha256(j->model.weights, hex);
    return status == CHOIR_OK
               ? choir_group_agree(group, "the initial weights, by their SHA-256", hex)
               : status;
}

/* Without a name two jobs on one port may exchange ranks. */
static choir_status perhaps_two_jobs(choir_status status)
{
    char *sentence = choir__strdup(choir_error_message());
    choir__error(status,
        "%s; if these are ranks of two jobs, give each its own port or CHOIR_JOB", sentence);
    free(sentence);
    return status;
}

static choir_status agree(const choir__job *j, choir_group *group)
{
    char *build =
        choir__format("Choir %s with products by %s", CHOIR_VERSION, choir__cpu_multiplier());
    choir_status status = choir_group_agree(group, "the build", build);
    free(build);
    for (const choir__cli_option *o = choir__job_options; o->name && status == CHOIR_OK; o++) {
        if (!o->recorded || o->of_a_rank)
            continue;
        char *name = choir__format("--%s", o->name), *text = choir__cli_text(o, value_of(j, o));
        bool model = !strcmp(o->name, "model"); /* with all sizes */
        status = choir_group_agree(group, name, model ? j->model.info.config : text);
        free(name);
        free(text);
    }
    if (status == CHOIR_OK && !j->placement.strategy->meet) /* all ranks take part in a save */
        status = choir_group_agree(group, "--save", j->saves.dir ? "a folder" : "unspecified");
    if (status == CHOIR_OK)
        status = agree_on_weights(j, group);
    return status == CHOIR_OK ? agree_on_data(j, group) : status;
}

choir_status choir__job_agree(const choir__job *j, choir_group *group)
{
    choir_status status = agree(j, group);
    return status == CHOIR_ERR_MISMATCH && j->placement.nameless ? perhaps_two_jobs(status)
                                                                 : status;
}

/* --- the newest checkpoint --- */

uint64_t choir__job_checkpoint(const choir__job *j)
{
    char found[PATH_MAX];
    struct stat folder;
    if (!j->saves.dir || choir_training_find(j->saves.dir, found) != CHOIR_OK ||
        stat(found, &folder) < 0)
        return 0;
    uint64_t made =
        (uint64_t)folder.st_mtim.tv_sec * 1000000000u + (uint64_t)folder.st_mtim.tv_nsec;
    return (uint64_t)folder.st_ino * 31 + made; /* each save makes a folder of its own */
}
