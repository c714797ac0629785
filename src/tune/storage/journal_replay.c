/* The state behind a journal's lines: studies by name, trials by their ids over the whole file.
 * A line that changes a trial which has ended, or begins a study twice, is passed over, as
 * Optuna does. */
#include "tune/storage/journal.h"
#include "base/number.h"
#include "tune/python_json.h"
#include "tune/storage/worker.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number_of(const json_t *x)
{
    if (json_is_number(x))
        return json_number_value(x);
    return json_is_string(x) ? choir__number_read(json_string_value(x), NULL) : (double)NAN;
}

static void set_attributes(choir__stored_attributes *to, bool system, const json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        char *json = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        choir__attribute_set(to, system, key, json);
        free(json);
    }
}

static void set_values(choir__stored_trial *r, const json_t *values)
{
    r->value_count = 0;
    for (size_t i = 0; i < json_array_size(values) && i < CHOIR_STUDY_OBJECTIVES; i++)
        r->values[r->value_count++] = number_of(json_array_get(values, i));
}

/* --- studies --- */

int64_t choir__journal_find(const choir__journal *j, const char *name)
{
    int64_t id = choir__map_find(&j->names, name);
    return id >= 0 && !j->study[id].deleted ? id : -1;
}

static bool add_study(choir__journal *j, const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "study_name"));
    const json_t *directions = json_object_get(line, "directions");
    if (!name)
        return false;
    if (choir__journal_find(j, name) >= 0)
        return true; /* two workers began at once: the first counts */
    CHOIR__GROW(j->study, j->study_count);
    choir__journal_study *s = &j->study[j->study_count];
    *s = (choir__journal_study){.about = {.name = choir__strdup(name)}};
    choir__map_put(&j->names, s->about.name, j->study_count++);
    for (size_t i = 0; i < json_array_size(directions) && i < CHOIR_STUDY_OBJECTIVES; i++)
        s->about.most[s->about.objectives++] =
            json_integer_value(json_array_get(directions, i)) == 2;
    return true;
}

/* --- trials --- */

static void fill_trial(choir__stored_trial *r, const json_t *line)
{
    const char *name;
    json_t *value;
    const json_t *dists = json_object_get(line, "distributions");
    const json_t *state = json_object_get(line, "state"), *one = json_object_get(line, "value");
    r->state = json_is_integer(state) ? (int)json_integer_value(state) : CHOIR_TRIAL_RUNNING;
    json_object_foreach(json_object_get(line, "params"), name, value)
    {
        const char *dist = json_string_value(json_object_get(dists, name));
        if (dist)
            choir__stored_trial_param(r, name, dist, number_of(value));
    }
    json_object_foreach(json_object_get(line, "intermediate_values"), name, value)
        choir__stored_trial_report(r, strtoll(name, NULL, 10), number_of(value));
    set_attributes(&r->attributes, false, json_object_get(line, "user_attrs"));
    set_attributes(&r->attributes, true, json_object_get(line, "system_attrs"));
    set_values(r, json_object_get(line, "values"));
    if (one && !json_is_null(one))
        r->values[0] = number_of(one), r->value_count = 1;
}

static void add_trial(choir__journal *j, int64_t study, const json_t *line)
{
    choir__journal_study *s = &j->study[study];
    int64_t number = s->trials.count;
    choir__stored_trial *r = choir__stored_trials_add(&s->trials, number);
    fill_trial(r, line);
    CHOIR__GROW(s->ids, number);
    s->ids[number] = j->trial_count;
    CHOIR__GROW(j->trial, j->trial_count);
    j->trial[j->trial_count++] = (choir__journal_trial){study, number};
}

static void change_trial(choir__stored_trial *r, choir__journal_op op, const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "param_name"));
    const char *dist = json_string_value(json_object_get(line, "distribution"));
    if (op == CHOIR__JOURNAL_PARAM && name && dist)
        choir__stored_trial_param(
            r, name, dist, number_of(json_object_get(line, "param_value_internal")));
    else if (op == CHOIR__JOURNAL_REPORT)
        choir__stored_trial_report(r, json_integer_value(json_object_get(line, "step")),
            number_of(json_object_get(line, "intermediate_value")));
    else if (op == CHOIR__JOURNAL_TRIAL_USER)
        set_attributes(&r->attributes, false, json_object_get(line, "user_attr"));
    else if (op == CHOIR__JOURNAL_TRIAL_SYSTEM)
        set_attributes(&r->attributes, true, json_object_get(line, "system_attr"));
    else if (op == CHOIR__JOURNAL_STATE) {
        r->state = (int)json_integer_value(json_object_get(line, "state"));
        if (json_is_array(json_object_get(line, "values")))
            set_values(r, json_object_get(line, "values"));
    }
}

static bool apply_to_study(choir__journal *j, choir__journal_op op, const json_t *line)
{
    const json_t *id = json_object_get(line, "study_id");
    int64_t i = json_integer_value(id);
    if (!json_is_integer(id))
        return false;
    if (i < 0 || i >= j->study_count || j->study[i].deleted)
        return true;
    if (op == CHOIR__JOURNAL_TRIAL)
        add_trial(j, i, line);
    else if (op == CHOIR__JOURNAL_STUDY_DELETED)
        j->study[i].deleted = true;
    else
        set_attributes(&j->study[i].about.attributes, op == CHOIR__JOURNAL_STUDY_SYSTEM,
            json_object_get(
                line, op == CHOIR__JOURNAL_STUDY_SYSTEM ? "system_attr" : "user_attr"));
    return true;
}

/* Returns whether a trial that was pruned at the end of a study runs again. */
static bool goes_on(const choir__stored_trial *r, choir__journal_op op, const json_t *line)
{
    const char *worker = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    return r->state == CHOIR_TRIAL_PRUNED && choir__worker_paused(worker) >= 0 &&
           op == CHOIR__JOURNAL_STATE &&
           json_integer_value(json_object_get(line, "state")) == CHOIR_TRIAL_RUNNING;
}

static bool apply_to_trial(choir__journal *j, choir__journal_op op, const json_t *line)
{
    const json_t *id = json_object_get(line, "trial_id");
    int64_t i = json_integer_value(id);
    if (!json_is_integer(id))
        return false;
    if (i < 0 || i >= j->trial_count)
        return true;
    choir__stored_trial *r = &j->study[j->trial[i].study].trials.at[j->trial[i].number];
    if (r->state == CHOIR_TRIAL_RUNNING || r->state == CHOIR__STORED_WAITING ||
        goes_on(r, op, line))
        change_trial(r, op, line); /* a trial that has ended stays as it is */
    return true;
}

bool choir__journal_may_skip(const char *text)
{
    int op;
    size_t bytes = strlen(text);
    return sscanf(text, " {\"op_code\" : %d ,", &op) == 1 && text[bytes - 1] == '}' &&
           (op == CHOIR__JOURNAL_STUDY_USER || op == CHOIR__JOURNAL_TRIAL_USER);
}

bool choir__journal_apply(choir__journal *j, const char *text)
{
    json_t *line = choir__python_json(text, false);
    const json_t *op = json_object_get(line, "op_code");
    bool good = json_is_integer(op);
    choir__journal_op kind = (choir__journal_op)json_integer_value(op);
    if (good && kind == CHOIR__JOURNAL_STUDY)
        good = add_study(j, line);
    else if (good && kind <= CHOIR__JOURNAL_TRIAL)
        good = apply_to_study(j, kind, line);
    else if (good && kind <= CHOIR__JOURNAL_TRIAL_SYSTEM)
        good = apply_to_trial(j, kind, line);
    json_decref(line);
    return good;
}

void choir__journal_copy(const choir__stored_trial *from, double now_s, choir__stored_trial *to)
{
    const char *beat = choir__attribute_get(&from->attributes, true, CHOIR__BEAT_KEY);
    to->state = from->state;
    to->silent_s = beat ? now_s - choir__number_read(beat, NULL) : (double)NAN;
    for (int i = 0; i < from->param_count; i++)
        choir__stored_trial_param(
            to, from->params[i].name, from->params[i].dist, from->params[i].value);
    to->value_count = from->value_count;
    memcpy(to->values, from->values, sizeof to->values);
    for (int64_t i = 0; i < from->report_count; i++)
        choir__stored_trial_report(to, from->reports[i].step, from->reports[i].value);
    for (int i = 0; i < from->attributes.count; i++) {
        const choir__stored_attribute *a = &from->attributes.at[i];
        choir__attribute_set(&to->attributes, a->system, a->key, a->json);
    }
}

void choir__journal_clear(choir__journal *j)
{
    for (int64_t i = 0; i < j->study_count; i++) {
        choir__stored_study_free(&j->study[i].about);
        choir__stored_trials_free(&j->study[i].trials);
        free(j->study[i].ids);
    }
    free(j->study);
    free(j->trial);
    choir__map_free(&j->names);
    *j = (choir__journal){0};
}
