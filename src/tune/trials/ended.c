/* Notes about trials that have ended, as attributes in JSON: seconds over all parts, the last
 * step, why it failed. Text of other programs becomes UTF-8. */
#include "tune/trials/ended.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "record/json_value.h"
#include "tune/segment.h"

static choir_status note(choir_trial *trial, const char *key, json_t *value)
{
    char *json = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    choir_status status = choir_trial_set_attribute(trial, key, json);
    free(json);
    json_decref(value);
    return status;
}

/* Returns the seconds of a trial's earlier parts. */
static double seconds_before(const choir_trial *trial)
{
    const char *text = choir_trial_attribute(trial, "seconds");
    json_t *there = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    double seconds = json_number_value(there);
    int64_t step = -1;
    json_decref(there);
    choir__trial_parts(trial, &step, &seconds);
    return seconds;
}

choir_status choir__trial_note_end(
    choir_trial *trial, const char *why, int64_t step, double seconds)
{
    seconds += seconds_before(trial);
    choir_status status = note(trial, "seconds", json_real(round(seconds * 1e3) / 1e3));
    if (status == CHOIR_OK && step >= 0)
        status = note(trial, "step", json_integer(step));
    if (status == CHOIR_OK && why)
        status = note(trial, "why", choir__json_string(why));
    return status;
}

char *choir__trial_why(const choir_trial *trial)
{
    const char *text = choir_trial_attribute(trial, "why");
    json_t *there = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    char *why = json_is_string(there) ? choir__strdup(json_string_value(there)) : NULL;
    json_decref(there);
    return why || !trial->silent
               ? why
               : choir__strdup("runs in another program, which shows no sign of life");
}

char *choir__trial_no_number(const char *metric, double value)
{
    return choir__format(
        "printed a line in which %s is %s", metric, isinf(value) ? "infinite" : "not a number");
}
