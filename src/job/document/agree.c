/* The job after its data are open: its record, and the agreement of ranks that were started one
 * by one, which compare the options that are recorded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "job/document/document.h"
#include "line/say.h"

/* --- the record --- */

static choir_status check_word(const char *what, const char *text)
{
    if (!text || choir__is_utf8(text, strlen(text)))
        return CHOIR_OK;
    char *clean = choir__clean(choir__strdup(text));
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT,
        "%s '%s' is not UTF-8: a record of the job, which is JSON, cannot have it", what,
        clean);
    free(clean);
    return status;
}

static choir_status check_words(const choir__job *j)
{
    choir_status status = check_word("the path of the data", j->data.path);
    char *all = choir__strdup(j->records.logs ? j->records.logs : ""), *rest = all, *line;
    while (status == CHOIR_OK && (line = strsep(&rest, "\n"))) /* the option has the last one */
        status = check_word("--log", line);
    free(all);
    for (const choir__line_option *o = choir__job_options; o->name && status == CHOIR_OK; o++) {
        char *name = choir__format("--%s", o->name);
        char *text =
            o->type == CHOIR__STRING ? choir__line_text(o, (const char *)j + o->at) : NULL;
        status = check_word(name, text);
        free(text);
        free(name);
    }
    return status;
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
            "%s: '%s' is not the data of this job (SHA-256 %.12s..., expected "
            "%.12s...)" CHOIR__OTHER_DATA,
            j->document.path, j->data.path ? j->data.path : "the text that comes with Choir",
            *j->data.sha256 ? j->data.sha256 : "none", was);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s is not the data that %s was trained on (SHA-256 %.12s..., expected %.12s...): name the "
        "same data, or begin another run from its weights by --weights %s/latest",
        j->data.path ? j->data.path : "the text that comes with Choir", j->saves.resume,
        *j->data.sha256 ? j->data.sha256 : "none", *was ? was : "none", j->saves.resume);
}

choir_status choir__job_note(choir__job *j)
{
    if (!j->saves.dir && !j->records.run && !j->saves.resume && !j->ranks.launched &&
        !j->document.sha256 && !j->records.print_job)
        return CHOIR_OK;
    choir_status status = check_words(j);
    if (status == CHOIR_OK && j->saves.resumed)
        status = choir__job_check_resumed(j);
    if (status == CHOIR_OK && j->saves.resumed)
        status = choir__job_check_cut(j);
    if (status == CHOIR_OK && !j->data.stream)
        status = choir_data_sha256(j->data.path, &j->model.info, j->data.sha256);
    if (status == CHOIR_OK)
        status = check_data(j);
    if (status != CHOIR_OK)
        return status;
    if (j->saves.resumed)
        choir__job_note_changes(j);
    if (j->saves.notes && j->ranks.rank == 0)
        choir__job_tell_notes(j, j->saves.notes);
    j->saves.record = choir__job_record_text(j);
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
    choir_status status = choir_group_agree(group, "the build", "Choir " CHOIR_VERSION);
    for (const choir__line_option *o = choir__job_options; o->name && status == CHOIR_OK; o++) {
        if (!o->recorded || o->of_a_rank)
            continue;
        char *name = choir__format("--%s", o->name),
             *text = choir__job_option_text(j, o, CHOIR__BRIEF);
        status = choir_group_agree(group, name, text);
        free(name);
        free(text);
    }
    if (status == CHOIR_OK &&
        !choir__job_strategy_alone(&j->placement)) /* all ranks take part in a save */
        status = choir_group_agree(group, "--save", j->saves.dir ? "a folder" : "unspecified");
    if (status == CHOIR_OK)
        status = agree_on_weights(j, group);
    return status == CHOIR_OK ? agree_on_data(j, group) : status;
}

choir_status choir__job_agree(const choir__job *j, choir_group *group)
{
    choir_status status = agree(j, group);
    return status == CHOIR_ERR_MISMATCH && j->ranks.nameless ? perhaps_two_jobs(status)
                                                             : status;
}
