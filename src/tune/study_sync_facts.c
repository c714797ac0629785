/* Facts of stored studies: the space, the sampler, the seed and the window. */
#include "tune/study_sync_inside.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tune/storage/distribution.h"

#define SPACE   "choir:space"
#define REQUIRE "choir:require"

static void take_attributes(choir_study *s, const choir__stored_study *stored)
{
    for (int i = 0; i < stored->attributes.count; i++) {
        const choir__stored_attribute *a = &stored->attributes.at[i];
        choir__attribute_set(&s->attributes, a->system, a->key, a->json);
    }
}

/* --- agreement --- */

static char *dump(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    return text;
}

static char *space_json(const choir_space *space)
{
    json_t *object = json_object();
    for (int i = 0; i < space->count; i++)
        json_object_set_new(object, space->param[i].name,
            json_stringn_nocheck(space->param[i].text, strlen(space->param[i].text)));
    return dump(object);
}

static char *require_json(const choir_space *space)
{
    json_t *list = json_array();
    for (int i = 0; i < space->require_count; i++)
        json_array_append_new(
            list, json_stringn_nocheck(space->require_text[i], strlen(space->require_text[i])));
    return dump(list);
}

static choir_status read_space(choir_space *space, const char *params, const char *require)
{
    json_t *object = json_loads(params, 0, NULL), *list = json_loads(require, 0, NULL), *value;
    const char *name;
    size_t i;
    choir_status status = CHOIR_OK;
    json_object_foreach(object, name, value)
    {
        if (status == CHOIR_OK && json_is_string(value))
            status = choir_space_add(space, name, json_string_value(value));
    }
    json_array_foreach(list, i, value)
    {
        if (status == CHOIR_OK && json_is_string(value))
            status = choir_space_require(space, json_string_value(value));
    }
    json_decref(object);
    json_decref(list);
    return status;
}

/* Compares one of the two texts of a space: the parameters, or the conditions. */
static bool same_space(
    const choir__stored_study *stored, const choir_space *space, bool conditions)
{
    const char *params = choir__attribute_get(&stored->attributes, false, SPACE);
    const char *require = choir__attribute_get(&stored->attributes, false, REQUIRE);
    choir_space *there = choir_space_new();
    choir_status status =
        read_space(there, params ? params : "{}", conditions && require ? require : "[]");
    bool same = status == CHOIR_OK && (conditions ? choir__space_requires_same(there, space)
                                                  : choir__space_same(there, space));
    choir_space_free(there);
    return same;
}

static bool same_json(const char *a, const char *b)
{
    json_t *x = json_loads(a, JSON_DECODE_ANY, NULL), *y = json_loads(b, JSON_DECODE_ANY, NULL);
    bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

/* A study whose first search was refused has facts and no trial. */
static bool has_trials(choir__study_store *store)
{
    choir__stored_trials records = {0};
    choir_status status = choir__study_store_load(store, 0, &records);
    bool some = status != CHOIR_OK || records.count > 0;
    choir__stored_trials_free(&records);
    return some;
}

static choir_status agree(choir_study *s, const choir__stored_study *stored,
    choir__study_store *store, const char *what, const char *key, const char *json)
{
    const char *there = choir__attribute_get(&stored->attributes, false, key);
    bool params = !strcmp(key, SPACE), conditions = !strcmp(key, REQUIRE);
    bool same = there && (params || conditions ? same_space(stored, s->space, conditions)
                                               : same_json(there, json));
    if (there && !same && has_trials(store))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: study '%s' has the %s %s, got %s; choose the same, or another name for the "
            "study",
            choir__study_store_place(store), stored->name, what, there, json);
    choir__attribute_set(&s->attributes, false, key, json);
    if (!same) {
        choir__change *c = choir__change_new(CHOIR__CHANGE_ATTRIBUTE, -1);
        c->attribute.key = choir__strdup(key);
        c->attribute.json = choir__strdup(json);
        choir__study_store_send(store, c);
    }
    return CHOIR_OK;
}

static choir_status same_directions(
    const choir_study *s, const choir__stored_study *stored, const choir__study_store *store)
{
    bool same = s->objectives == stored->objectives;
    for (int i = 0; i < s->objectives && same; i++)
        same = stored->most[i] == (s->sign[i] < 0);
    if (same)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: study '%s' has another direction (%d, the first is %s); choose the same, or "
        "another name for the study",
        choir__study_store_place(store), stored->name, stored->objectives,
        stored->most[0] ? "maximize" : "minimize");
}

choir_status choir__facts_agree(choir_study *s, const choir__stored_study *stored,
    const choir_study_opts *opts, choir__study_store *store)
{
    take_attributes(s, stored);
    char *texts[] = {space_json(s->space), require_json(s->space),
        dump(json_stringn_nocheck(opts->sampler, strlen(opts->sampler))),
        dump(json_stringn_nocheck(opts->scheduler, strlen(opts->scheduler))),
        choir__format("%llu", (unsigned long long)opts->seed),
        choir__format("%lld", (long long)opts->window),
        choir__strdup(opts->free ? "\"free\"" : "\"fixed\"")};
    static const char *const keys[] = {SPACE, REQUIRE, "choir:sampler", "choir:scheduler",
        "choir:seed", "choir:window", "choir:order"};
    static const char *const whats[] = {
        "space", "conditions", "sampler", "scheduler", "seed", "window", "order"};
    choir_status status = same_directions(s, stored, store);
    for (size_t i = 0; i < CHOIR_COUNT(texts) && status == CHOIR_OK; i++)
        status = agree(s, stored, store, whats[i], keys[i], texts[i]);
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++)
        free(texts[i]);
    return status;
}

/* --- looking --- */

/* Adds the parameters that trials have and the space lacks: Optuna's are only there. */
static choir_status gather_space(choir_space *space, choir__study_store *store)
{
    choir__stored_trials records = {0};
    choir_status status = choir__study_store_load(store, 0, &records);
    for (int64_t k = 0; k < records.count; k++)
        for (int i = 0; i < records.at[k].param_count && status == CHOIR_OK; i++) {
            const choir__stored_param *p = &records.at[k].params[i];
            if (choir__space_find(space, p->name) >= 0)
                continue;
            choir__dist dist;
            char *text = choir__dist_text_of_json(p->dist);
            status = choir__dist_of_json(p->name, p->dist, &dist);
            if (status == CHOIR_OK)
                status = choir__space_take(space, p->name, text, &dist);
            choir__dist_free(&dist);
            free(text);
        }
    choir__stored_trials_free(&records);
    return status;
}

choir_status choir__facts_take(
    choir_study *s, const choir__stored_study *stored, choir__study_store *store)
{
    if (stored->objectives < 1)
        return choir__error(CHOIR_ERR_FORMAT, "%s: the study '%s' has no direction",
            choir__study_store_place(store), stored->name);
    take_attributes(s, stored);
    s->objectives = stored->objectives;
    for (int i = 0; i < s->objectives; i++)
        s->sign[i] = stored->most[i] ? -1 : 1;
    s->space = choir_space_new();
    const char *params = choir__attribute_get(&stored->attributes, false, SPACE);
    const char *require = choir__attribute_get(&stored->attributes, false, REQUIRE);
    choir_status status =
        params ? read_space(s->space, params, require ? require : "[]") : CHOIR_OK;
    return status == CHOIR_OK ? gather_space(s->space, store) : status;
}
