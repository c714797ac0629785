/* Memory of stored trials: growing lists of parameters, reports and attributes. An attribute is
 * found by its key in a map, a trial by its number. */
#include "tune/storage/stored_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const states[] = {"RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"};

const char *choir__stored_state_name(int state)
{
    return states[state];
}

int choir__stored_state(const char *name)
{
    for (size_t i = 0; i < CHOIR_COUNT(states); i++)
        if (!strcmp(states[i], name))
            return (int)i;
    return -1;
}

/* --- attributes --- */

static choir__stored_attribute *find(
    const choir__stored_attributes *a, bool system, const char *key)
{
    int64_t place = choir__map_find(&a->places[system], key);
    return place < 0 ? NULL : &a->at[place];
}

void choir__attribute_set(
    choir__stored_attributes *a, bool system, const char *key, const char *json)
{
    choir__stored_attribute *old = find(a, system, key);
    if (old) {
        free(old->json);
        old->json = choir__strdup(json);
        return;
    }
    CHOIR__GROW(a->at, a->count);
    a->at[a->count] = (choir__stored_attribute){
        .key = choir__strdup(key), .json = choir__strdup(json), .system = system};
    choir__map_put(&a->places[system], a->at[a->count].key, a->count);
    a->count++;
}

const char *choir__attribute_get(
    const choir__stored_attributes *a, bool system, const char *key)
{
    const choir__stored_attribute *at = find(a, system, key);
    return at ? at->json : NULL;
}

void choir__attributes_free(choir__stored_attributes *a)
{
    for (int i = 0; i < a->count; i++) {
        free(a->at[i].key);
        free(a->at[i].json);
    }
    free(a->at);
    choir__map_free(&a->places[0]);
    choir__map_free(&a->places[1]);
    *a = (choir__stored_attributes){0};
}

void choir__stored_study_free(choir__stored_study *s)
{
    free(s->name);
    choir__attributes_free(&s->attributes);
    *s = (choir__stored_study){0};
}

/* --- records --- */

static void free_params(choir__stored_param *params, int count)
{
    for (int i = 0; i < count; i++) {
        free(params[i].name);
        free(params[i].dist);
    }
    free(params);
}

static void clear_record(choir__stored_trial *r)
{
    free_params(r->params, r->param_count);
    free(r->reports);
    choir__attributes_free(&r->attributes);
    *r = (choir__stored_trial){0};
}

choir__stored_trial *choir__stored_trials_add(choir__stored_trials *r, int64_t number)
{
    CHOIR__GROW(r->at, r->count);
    r->at[r->count] = (choir__stored_trial){.number = number, .silent_s = (double)NAN};
    return &r->at[r->count++];
}

choir__stored_trial *choir__stored_trials_find(const choir__stored_trials *r, int64_t number)
{
    int64_t low = 0, high = r->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (r->at[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->count && r->at[low].number == number ? &r->at[low] : NULL;
}

void choir__stored_trials_free(choir__stored_trials *r)
{
    for (int64_t i = 0; i < r->count; i++)
        clear_record(&r->at[i]);
    free(r->at);
    *r = (choir__stored_trials){0};
}

void choir__stored_trial_param(
    choir__stored_trial *r, const char *name, const char *dist, double value)
{
    CHOIR__GROW(r->params, r->param_count);
    r->params[r->param_count++] = (choir__stored_param){
        .name = choir__strdup(name), .dist = choir__strdup(dist), .value = value};
}

void choir__stored_trial_report(choir__stored_trial *r, int64_t step, double value)
{
    size_t n = (size_t)r->report_count;
    if (n && r->reports[n - 1].step == step) {
        r->reports[n - 1].value = value;
        return;
    }
    r->mixed |= n && r->reports[n - 1].step > step;
    CHOIR__GROW(r->reports, n);
    r->reports[r->report_count++] = (choir__report){step, value};
}

typedef struct placed_report {
    choir__report report;
    int64_t place;
} placed_report;

static int by_step_then_place(const void *a, const void *b)
{
    const placed_report *x = a, *y = b;
    return x->report.step != y->report.step ? (x->report.step < y->report.step ? -1 : 1)
                                            : (x->place < y->place ? -1 : 1);
}

void choir__stored_trial_settle(choir__stored_trial *r)
{
    if (!r->mixed)
        return;
    int64_t count = r->report_count;
    placed_report *all = choir__alloc((size_t)count * sizeof *all);
    for (int64_t i = 0; i < count; i++)
        all[i] = (placed_report){r->reports[i], i};
    qsort(all, (size_t)count, sizeof *all, by_step_then_place);
    r->mixed = false;
    r->report_count = 0;
    for (int64_t i = 0; i < count; i++)
        choir__stored_trial_report(r, all[i].report.step, all[i].report.value);
    free(all);
}

/* --- changes --- */

choir__change *choir__change_new(choir__change_kind kind, int64_t number)
{
    choir__change *c = choir__calloc(1, sizeof *c);
    c->kind = kind;
    c->number = number;
    return c;
}

void choir__change_free(choir__change *c)
{
    if (!c)
        return;
    free(c->worker);
    free(c->former);
    free(c->given);
    free(c->after);
    free(c->segments);
    free_params(c->params, c->param_count);
    free(c->attribute.key);
    free(c->attribute.json);
    free(c);
}
