/* Points: parameters that choir_study_enqueue gives for a later trial.
 *
 * A study has each point once, as with Optuna's enqueue_trial(skip_if_exists=True). So a
 * continued search, and each of several that share a study, may be given the same list again;
 * only new points are added. A trial keeps its point as Optuna does, as JSON:
 *
 *     fixed_params  {"lr":0.1,"optimizer":"sgd"}  */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "tune/program/link.h"
#include "tune/python_json.h"
#include "tune/storage/distribution.h"
#include "tune/study.h"
#include "tune/trial.h"

void choir__study_drop_given(choir_study *s)
{
    choir__given *g = s->queue;
    s->queue = g->next;
    free(g->params);
    free(g);
}

/* --- as JSON --- */

static json_t *value_json(const choir__dist *d, double x)
{
    if (d->kind == CHOIR__CHOICE)
        return choir__choice_json(&d->choices[(int)x]);
    bool whole = d->kind == CHOIR__INTEGER && fabs(x) < 0x1p53;
    return whole ? json_integer((json_int_t)x) : json_real(x);
}

char *choir__point_json(const choir_space *space, const double *point)
{
    json_t *object = json_object();
    for (int i = 0; i < space->count; i++)
        if (!isnan(point[i]))
            json_object_set_new(
                object, space->param[i].name, value_json(&space->param[i].dist, point[i]));
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text ? text : choir__strdup("{}");
}

choir_status choir__point_read(
    const choir_space *space, const char *json, double *point, bool *others)
{
    json_t *object = choir__python_json(json, false), *value;
    const char *name;
    choir_status status = CHOIR_OK;
    *others = false;
    for (int i = 0; i < space->count; i++)
        point[i] = (double)NAN;
    json_object_foreach(object, name, value)
    {
        int i = choir__space_find(space, name);
        choir_status taken = CHOIR_OK;
        if (i >= 0)
            taken = choir__dist_take_json(&space->param[i].dist, name, value, &point[i]);
        status = status == CHOIR_OK ? taken : status;
        *others = *others || i < 0;
    }
    json_decref(object);
    return status;
}

void choir__trial_give(choir_trial *t, char *point)
{
    double *fixed = NULL;
    bool others = false;
    if (point) {
        fixed = choir__alloc((size_t)t->study->space->count * sizeof *fixed);
        if (choir__point_read(t->study->space, point, fixed, &others) != CHOIR_OK || others) {
            free(fixed);
            fixed = NULL;
        }
    }
    free(t->point);
    free(t->fixed);
    t->point = point;
    t->fixed = fixed;
}

/* --- each point once --- */

static bool same(const choir_space *space, const double *a, const double *b)
{
    for (int i = 0; i < space->count; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Returns whether a trial was given this point, or, if none was given for it, has it by chance.
 * A study that an earlier Choir stored says only that a point was given: then it is this one if
 * the trial has its values. */
static bool has_point(const choir_trial *t, const double *point)
{
    const choir_space *space = t->study->space;
    if (!t->point && !t->given)
        return same(space, t->params, point);
    if (t->point)
        return t->fixed && same(space, t->fixed, point);
    for (int i = 0; i < space->count; i++)
        if (!isnan(point[i]) && !isnan(t->params[i]) && point[i] != t->params[i])
            return false;
    return true;
}

static bool is_there(const choir_study *s, const double *point)
{
    for (const choir__given *g = s->queue; g; g = g->next)
        if (same(s->space, g->params, point))
            return true;
    for (int64_t i = 0; i < s->count; i++)
        if (has_point(s->trial[i], point))
            return true;
    return false;
}

void choir__study_forget_given(choir_study *s, const choir_trial *t)
{
    for (choir__given **g = &s->queue; *g;) {
        choir__given *one = *g;
        if (!has_point(t, one->params)) {
            g = &one->next;
            continue;
        }
        *g = one->next;
        free(one->params);
        free(one);
    }
}

static choir__given *given_of(const choir_space *space)
{
    choir__given *g = choir__calloc(1, sizeof *g);
    g->params = choir__alloc((size_t)space->count * sizeof(double));
    for (int i = 0; i < space->count; i++)
        g->params[i] = (double)NAN;
    return g;
}

void choir__study_give_back(choir_study *s, const choir_trial *t)
{
    choir__given *g = given_of(s->space);
    if (t->fixed)
        memcpy(g->params, t->fixed, (size_t)s->space->count * sizeof(double));
    g->next = s->queue;
    s->queue = g;
}

/* --- choir_study_enqueue --- */

/* Returns the quote around a whole value that begins at `text`, up to a comma or the end, and
 * stores its end; 0: no quote. */
static char quote_of(char *text, char **close)
{
    char quote = *text == '"' || *text == '\'' ? *text : 0;
    *close = quote ? strchr(text + 1, quote) : NULL;
    return *close && ((*close)[1] == ',' || !(*close)[1]) ? quote : 0;
}

/* Cuts the next "name=value" off; a value in quotes may have commas. */
static char *next_pair(char **rest)
{
    char *pair = *rest, *close;
    if (!pair)
        return NULL;
    char *comma = strchr(pair, ','), *equals = strchr(pair, '=');
    if (equals && (!comma || equals < comma) && quote_of(equals + 1, &close))
        comma = close[1] ? close + 1 : NULL;
    if (comma)
        *comma = '\0';
    *rest = comma ? comma + 1 : NULL;
    return pair;
}

/* Reads a value as it stands, or without the quotes around it, as choice() reads its values. */
static choir_status read_value(
    const choir__dist *dist, const char *name, char *text, double *value)
{
    char *close;
    choir_status status = choir__dist_read(dist, name, text, value);
    if (status == CHOIR_OK || !quote_of(text, &close))
        return status;
    *close = '\0';
    return choir__dist_read(dist, name, text + 1, value);
}

/* Reads one "name=value". */
static choir_status read_given(const choir_space *space, char *pair, double *params)
{
    char *equals = strchr(pair, '=');
    if (!equals)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected PARAMETER=VALUE, got '%s'", pair);
    *equals = '\0';
    int i = choir__space_find(space, pair);
    if (i < 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "the space has no parameter '%s'", pair);
    if (!isnan(params[i]))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parameter %s is given twice in one trial; give each trial separately", pair);
    return read_value(&space->param[i].dist, pair, equals + 1, &params[i]);
}

/* Checks a point as far as it is known: that the trial will have the given parameters and, if
 * it says all of them, that the conditions allow it. */
static choir_status check_point(
    const choir_space *space, const double *point, const char *parameters)
{
    double *values = choir__alloc((size_t)space->count * sizeof *values);
    choir_status status = CHOIR_OK;
    bool known = true;
    for (int i = 0; i < space->count && known && status == CHOIR_OK; i++) {
        bool active = choir__space_active(space, i, values);
        values[i] = active ? point[i] : (double)NAN;
        known = !active || !isnan(point[i]);
        if (!active && !isnan(point[i]))
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "trial %s: it has no parameter %s, which is %s", parameters,
                space->param[i].name, space->param[i].text);
    }
    int broken = known && status == CHOIR_OK ? choir__space_broken(space, values) : -1;
    if (broken >= 0)
        status =
            choir__error(CHOIR_ERR_ARGUMENT, "trial %s: it does not fulfil the condition %s",
                parameters, space->require_text[broken]);
    free(values);
    return status;
}

/* Appends a point that is new. */
static choir_status append(choir_study *s, choir__given *g, const char *parameters)
{
    choir__given **last = &s->queue;
    int64_t trials = s->count + 1;
    for (; *last; last = &(*last)->next)
        trials++;
    if (s->trials && trials > s->trials)
        return choir__error(CHOIR_ERR_END,
            "trial %s: the study of %lld trials has no room for it; choose more trials",
            parameters, (long long)s->trials);
    *last = g;
    return CHOIR_OK;
}

choir_status choir_study_enqueue(choir_study *s, const char *parameters)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(s, __func__, "study") || choir__lacks(parameters, __func__, "parameters"))
        return CHOIR_ERR_ARGUMENT;
    if (s->forked)
        return choir__link_refuses(__func__);
    choir__given *g = given_of(s->space);
    char *copy = choir__strdup(parameters), *rest = copy, *pair;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (pair = next_pair(&rest)))
        status = read_given(s->space, pair, g->params);
    free(copy);
    if (status == CHOIR_OK)
        status = check_point(s->space, g->params, parameters);
    pthread_mutex_lock(&s->lock);
    bool added = false;
    if (status == CHOIR_OK && !is_there(s, g->params)) {
        status = append(s, g, parameters);
        added = status == CHOIR_OK;
    }
    pthread_mutex_unlock(&s->lock);
    if (!added) {
        free(g->params);
        free(g);
    }
    return status;
}
