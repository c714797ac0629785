/* choir tune: what a study's attributes say about its command, and about how trials ended. So a
 * trial that another process ran, or an earlier one, is printed like the others. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/tokenizer/utf8.h"
#include "cli/tune/search.h"

static choir_status note(choir_trial *trial, const char *key, json_t *value)
{
    char *json = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    choir_status status = choir_trial_set_attribute(trial, key, json);
    free(json);
    json_decref(value);
    return status;
}

/* Returns a text as JSON, in which U+FFFD stands for bytes that are not UTF-8. */
static json_t *json_of(const char *text)
{
    char *clean = NULL;
    size_t bytes;
    FILE *out = open_memstream(&clean, &bytes);
    const char *end = text + strlen(text);
    for (int n; text<end; text += n> 0 ? n : 1) {
        uint32_t code;
        n = choir__utf8_decode(text, end, &code);
        fprintf(out, "%.*s", n > 0 ? n : 3, n > 0 ? text : "\xef\xbf\xbd");
    }
    fclose(out);
    json_t *string = json_string(clean);
    free(clean);
    return string;
}

choir_status choir__outcome_note(
    choir_trial *trial, const char *why, int64_t step, double seconds)
{
    choir_status status = note(trial, "seconds", json_real(round(seconds * 1e3) / 1e3));
    if (status == CHOIR_OK && step >= 0)
        status = note(trial, "step", json_integer(step));
    if (status == CHOIR_OK && why)
        status = note(trial, "why", json_of(why));
    return status;
}

static json_t *parsed(const char *json)
{
    return json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
}

choir__outcome choir__outcome_of(const choir_trial *trial)
{
    json_t *why = parsed(choir_trial_attribute(trial, "why"));
    json_t *step = parsed(choir_trial_attribute(trial, "step"));
    json_t *seconds = parsed(choir_trial_attribute(trial, "seconds"));
    choir__outcome o = {.trial = trial,
        .state = choir_trial_result(trial),
        .value = choir_trial_value(trial, 0),
        .step = json_is_integer(step) ? json_integer_value(step) : -1,
        .seconds = json_number_value(seconds)};
    if (json_is_string(why))
        o.why = choir__strdup(json_string_value(why));
    else if (choir_trial_result(trial) == CHOIR_TRIAL_FAIL)
        o.why = choir__strdup("failed");
    json_decref(why);
    json_decref(step);
    json_decref(seconds);
    return o;
}

/* --- the command --- */

static choir_status note_text(choir_study *study, const char *key, json_t *value)
{
    char *json =
        value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : choir__strdup("null");
    const char *there = choir_study_attribute(study, key);
    choir_status status = CHOIR_OK;
    if (!there || strcmp(there, json) != 0)
        status = choir_study_set_attribute(study, key, json);
    free(json);
    json_decref(value);
    return status;
}

/* Values of another metric cannot be compared. */
static choir_status check_metric(const choir_study *study, const char *metric)
{
    json_t *there = parsed(choir_study_attribute(study, "choir:metric"));
    choir_status status = CHOIR_OK;
    if (json_is_string(there) && strcmp(json_string_value(there), metric) != 0)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the study has the metric %s, got %s; choose the same, or another name for the "
            "study",
            json_string_value(there), metric);
    json_decref(there);
    return status;
}

choir_status choir__outcome_note_job(choir_study *study, const choir__trial_job *job)
{
    json_t *words = json_array();
    for (char *const *word = job->command; *word; word++)
        json_array_append_new(words, json_stringn_nocheck(*word, strlen(*word)));
    choir_status status = check_metric(study, job->metric);
    if (status == CHOIR_OK)
        status = note_text(study, "choir:command", json_incref(words));
    json_decref(words);
    if (status == CHOIR_OK)
        status = note_text(study, "choir:metric", json_string(job->metric));
    if (status == CHOIR_OK)
        status = note_text(study, "choir:dir", job->dir ? json_string(job->dir) : NULL);
    return status;
}

bool choir__outcome_job(const choir_study *study, choir__trial_job *job)
{
    json_t *words = parsed(choir_study_attribute(study, "choir:command"));
    json_t *metric = parsed(choir_study_attribute(study, "choir:metric"));
    json_t *dir = parsed(choir_study_attribute(study, "choir:dir"));
    size_t count = json_array_size(words);
    char **command = choir__calloc(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        command[i] = choir__strdup(word ? word : "");
    }
    *job = (choir__trial_job){.command = command, .space = choir_study_space(study)};
    job->metric = choir__strdup(json_is_string(metric) ? json_string_value(metric) : "value");
    if (json_is_string(dir))
        job->dir = choir__strdup(json_string_value(dir));
    json_decref(words);
    json_decref(metric);
    json_decref(dir);
    return count > 0;
}

void choir__outcome_free_job(choir__trial_job *job)
{
    for (char *const *word = job->command; *word; word++)
        free(*word);
    free((void *)(uintptr_t)job->command);
    free((char *)(uintptr_t)job->metric);
    free((char *)(uintptr_t)job->dir);
}
