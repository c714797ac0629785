/* Attributes of studies and trials for programs: JSON under a key. A value is checked, made
 * one line, as journals need it, and goes to the study in memory and to its storage; a trial
 * in a fork sends it to the process that has the study. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/utf8.h"
#include "tune/program/link.h"
#include "tune/study.h"
#include "tune/trial.h"

/* Checks an attribute, and stores its value on one line, as journals need it, in *line, for the
 * caller to free. */
static choir_status check(const char *key, const char *json, const char *function, char **line)
{
    *line = NULL;
    if (choir__lacks(key, function, "key") || choir__lacks(json, function, "json"))
        return CHOIR_ERR_ARGUMENT;
    if (!choir__is_utf8(key, strlen(key)))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a key in UTF-8, as storages keep it, got '%s'", function, key);
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    if (!value)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "attribute %s: expected JSON, got '%s'", key, json);
    *line = strpbrk(json, "\r\n") ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY)
                                  : choir__strdup(json);
    json_decref(value);
    return CHOIR_OK;
}

choir_status choir_trial_set_attribute(choir_trial *t, const char *key, const char *json)
{
    if (choir__lacks(t, __func__, "trial"))
        return CHOIR_ERR_ARGUMENT;
    char *line;
    choir_status status = check(key, json, __func__, &line);
    if (status != CHOIR_OK)
        return status;
    if (t->link) {
        status = choir__link_set_attribute(t, key, line);
        free(line);
        return status;
    }
    pthread_mutex_lock(&t->study->lock);
    if (t->state != CHOIR_TRIAL_RUNNING)
        status =
            choir__error(CHOIR_ERR_STATE, "trial %lld has ended before", (long long)t->number);
    else
        choir__attribute_set(&t->attributes, false, key, line);
    if (status == CHOIR_OK && t->study->kept)
        choir__study_sync_set_attribute(t->study->kept, t, key, line);
    pthread_mutex_unlock(&t->study->lock);
    free(line);
    return status;
}

choir_status choir_study_set_attribute(choir_study *s, const char *key, const char *json)
{
    if (choir__lacks(s, __func__, "study"))
        return CHOIR_ERR_ARGUMENT;
    if (s->forked)
        return choir__link_refuses(__func__);
    char *line;
    choir_status status = check(key, json, __func__, &line);
    if (status != CHOIR_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    choir__attribute_set(&s->attributes, false, key, line);
    if (s->kept)
        choir__study_sync_set_attribute(s->kept, NULL, key, line);
    pthread_mutex_unlock(&s->lock);
    free(line);
    return CHOIR_OK;
}

const char *choir_trial_attribute(const choir_trial *t, const char *key)
{
    if (choir__lacks(t, __func__, "trial") || choir__lacks(key, __func__, "key"))
        return NULL;
    return choir__attribute_get(&t->attributes, false, key);
}

const char *choir_study_attribute(const choir_study *s, const char *key)
{
    if (choir__lacks(s, __func__, "study") || choir__lacks(key, __func__, "key"))
        return NULL;
    return choir__attribute_get(&s->attributes, false, key);
}

const choir_space *choir_study_space(const choir_study *s)
{
    return choir__lacks(s, __func__, "study") ? NULL : s->space;
}

bool choir_trial_is_ours(const choir_trial *t)
{
    return !choir__lacks(t, __func__, "trial") && !t->foreign;
}
