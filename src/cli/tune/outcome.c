/* choir tune: what a study's attributes say about its command, and about how trials ended. So a
 * trial that another process ran, or an earlier one, is printed like the others. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/secret.h"
#include "cli/tune/search.h"
#include "line/printed.h"
#include "line/say.h"
#include "tune/scheduler/scheduler.h"
#include "tune/segment.h"
#include "record/json_value.h"
#include "tune/trials/ended.h"

#define METRIC  "choir:metric"
#define UNIT    "choir:unit"
#define COMMAND "choir:command"

static json_t *parsed(const char *json)
{
    return json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
}

/* The attributes come from the trial's last part. */
choir__trial_outcome choir__outcome_of(const choir_trial *trial)
{
    json_t *step = parsed(choir_trial_attribute(trial, "step"));
    json_t *seconds = parsed(choir_trial_attribute(trial, "seconds"));
    choir__trial_outcome o = {.trial = trial,
        .state = choir_trial_result(trial),
        .why = choir__trial_why(trial),
        .step = json_is_integer(step) ? json_integer_value(step) : choir_trial_last_step(trial),
        .seconds = json_number_value(seconds)};
    choir__trial_parts(trial, &o.step, &o.seconds);
    for (int i = 0; i < CHOIR_STUDY_OBJECTIVES; i++)
        o.value[i] = choir_trial_value(trial, i);
    if (!o.why && o.state == CHOIR_TRIAL_FAIL)
        o.why = choir__strdup("failed");
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

/* The metrics as JSON: a word, or a list of several. */
static json_t *metrics_json(const choir__trial_job *job)
{
    if (job->metrics == 1)
        return json_string(job->metric[0]);
    json_t *list = json_array();
    for (int i = 0; i < job->metrics; i++)
        json_array_append_new(list, json_string(job->metric[i]));
    return list;
}

/* Returns a word, or the words of a list as "a, b", on the heap. */
static char *metrics_text(const json_t *metrics)
{
    choir__text_buffer text = {0};
    choir__text_buffer_put(&text, json_is_string(metrics) ? json_string_value(metrics) : "");
    for (size_t i = 0; i < json_array_size(metrics); i++) {
        const char *name = json_string_value(json_array_get(metrics, i));
        choir__text_format(&text, "%s%s", i ? ", " : "", name ? name : "?");
    }
    return text.bytes;
}

/* Values of another metric cannot be compared, nor can steps of another unit. */
static choir_status check_same(
    const choir_study *study, const char *key, const char *what, json_t *ours)
{
    json_t *there = parsed(choir_study_attribute(study, key));
    char *old = metrics_text(there), *new = metrics_text(ours);
    choir_status status = CHOIR_OK;
    if (there && !json_equal(there, ours))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the study has the %s %s, got %s; choose the same, or another name for the study",
            what, old, new);
    json_decref(there);
    json_decref(ours);
    free(old);
    free(new);
    return status;
}

/* Returns a word of a command as a note shows it, on the heap. */
static char *shown_word(const json_t *command, size_t i)
{
    enum { MOST = 60 };
    const char *word = json_string_value(json_array_get(command, i));
    char *text = word ? choir__shorten(choir__printed(word), MOST) : NULL;
    char *shown = text ? choir__format("'%s'", text) : choir__strdup("missing");
    free(text);
    return shown;
}

/* Says which word of the command has changed since the study's earlier trials. That is no
 * error: a program may have moved. */
static void tell_new_command(const choir_study *study, const json_t *ours)
{
    json_t *there = parsed(choir_study_attribute(study, COMMAND));
    size_t i = 0, most = choir__max(json_array_size(there), json_array_size(ours));
    while (i < most && json_equal(json_array_get(there, i), json_array_get(ours, i)))
        i++;
    if (json_is_array(there) && i < most && choir_study_count(study)) {
        char *old = shown_word(there, i), *new = shown_word(ours, i);
        char *note = choir__format("the study's earlier trials ran another command: its word "
                                   "%zu was %s, and is %s now",
            i + 1, old, new);
        choir__line_notes("tune", note);
        free(note);
        free(old);
        free(new);
    }
    json_decref(there);
}

choir_status choir__outcome_note_job(choir_study *study, const choir__trial_job *job)
{
    json_t *words = json_array();
    for (char *const *word = job->command; *word; word++) {
        char *shown = choir__hide_passwords(choir__strdup(*word));
        json_array_append_new(words, choir__json_string(shown));
        free(shown);
    }
    choir_status status = check_same(study, METRIC, "metric", metrics_json(job));
    if (status == CHOIR_OK)
        status = check_same(study, UNIT, "unit", json_string(job->unit));
    if (status == CHOIR_OK)
        tell_new_command(study, words);
    if (status == CHOIR_OK)
        status = note_text(study, COMMAND, json_incref(words));
    json_decref(words);
    if (status == CHOIR_OK)
        status = note_text(study, METRIC, metrics_json(job));
    if (status == CHOIR_OK)
        status = note_text(study, UNIT, json_string(job->unit));
    if (status == CHOIR_OK)
        status = note_text(study, "choir:dir", job->dir ? choir__json_string(job->dir) : NULL);
    return status;
}

/* Returns the scheduler of a study that Choir made, or NULL. */
static const choir__scheduler_ops *scheduler_of(const choir_study *study)
{
    json_t *name = parsed(choir_study_attribute(study, "choir:scheduler"));
    const choir__scheduler_ops *scheduler =
        json_is_string(name) ? choir__scheduler_find(json_string_value(name)) : NULL;
    json_decref(name);
    return scheduler;
}

bool choir__outcome_stops(const choir_study *study)
{
    const choir__scheduler_ops *scheduler = scheduler_of(study);
    if (scheduler)
        return scheduler->pauses || scheduler->stops;
    for (int64_t i = 0; i < choir_study_count(study);
         i++) /* Optuna's, whose pruner is unknown */
        if (choir_trial_result(choir_study_trial(study, i)) == CHOIR_TRIAL_PRUNED)
            return true;
    return false;
}

bool choir__outcome_job(const choir_study *study, choir__trial_job *job)
{
    json_t *words = parsed(choir_study_attribute(study, COMMAND));
    json_t *metric = parsed(choir_study_attribute(study, METRIC));
    json_t *unit = parsed(choir_study_attribute(study, UNIT));
    json_t *dir = parsed(choir_study_attribute(study, "choir:dir"));
    size_t count = json_array_size(words);
    char **command = choir__calloc(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        command[i] = choir__strdup(word ? word : "");
    }
    *job = (choir__trial_job){.command = command, .space = choir_study_space(study)};
    const choir__scheduler_ops *scheduler = scheduler_of(study);
    job->pauses = scheduler && scheduler->pauses;
    job->unit = choir__strdup(json_is_string(unit) ? json_string_value(unit) : "step");
    job->metrics = choir_study_objectives(study);
    for (int i = 0; i < job->metrics; i++) {
        const json_t *name = json_is_array(metric) ? json_array_get(metric, (size_t)i) : metric;
        job->metric[i] = json_is_string(name) ? choir__strdup(json_string_value(name))
                                              : choir__format(i ? "value%d" : "value", i);
    }
    if (json_is_string(dir))
        job->dir = choir__strdup(json_string_value(dir));
    json_decref(words);
    json_decref(metric);
    json_decref(unit);
    json_decref(dir);
    return count > 0;
}

void choir__outcome_free_job(choir__trial_job *job)
{
    for (char *const *word = job->command; *word; word++)
        free(*word);
    free((void *)(uintptr_t)job->command);
    for (int i = 0; i < job->metrics; i++)
        free((char *)(uintptr_t)job->metric[i]);
    free((char *)(uintptr_t)job->unit);
    free((char *)(uintptr_t)job->dir);
}
