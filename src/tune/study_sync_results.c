/* Records of trials that are paused and resumed: the results of their segments. */
#include "tune/study_sync_inside.h"
#include "tune/storage/worker.h"
#include "tune/trial.h"

json_t *choir__study_sync_list(const choir__stored_attributes *a)
{
    const char *text = choir__attribute_get(a, true, CHOIR__SEGMENTS_KEY);
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    return list ? list : json_array();
}

bool choir__study_sync_find_result(
    const choir__stored_trial *r, int64_t part, choir__study_sync_result *found)
{
    json_t *list = choir__study_sync_list(&r->attributes);
    const json_t *entry = json_array_get(list, (size_t)part);
    int64_t count = (int64_t)json_array_size(list);
    bool failed = r->state == CHOIR_TRIAL_FAIL || r->state < 0;
    bool over = failed || r->state == CHOIR_TRIAL_COMPLETE;
    *found = (choir__study_sync_result){.state = CHOIR_TRIAL_PRUNED};
    if (entry) {
        found->until = json_integer_value(json_object_get(entry, "until"));
        found->seconds = json_number_value(json_object_get(entry, "seconds"));
    } else { /* another program ended it: one that it stopped has no result */
        found->until = over ? INT64_MAX : -1;
    }
    bool waited = /* another program ended it while it did */
        choir__worker_paused(choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY)) >=
        0;
    if (over && part + 1 >= count + waited)
        found->state = failed ? CHOIR_TRIAL_FAIL : CHOIR_TRIAL_COMPLETE;
    json_decref(list);
    return entry || over || (!count && r->state == CHOIR_TRIAL_PRUNED);
}

int64_t choir__study_sync_last_step(const choir__stored_trial *r)
{
    json_t *list = choir__study_sync_list(&r->attributes);
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    int64_t step = last ? json_integer_value(json_object_get(last, "until")) : -1;
    json_decref(list);
    return step;
}

void choir__trial_parts(const choir_trial *trial, int64_t *step, double *seconds)
{
    json_t *list = choir__study_sync_list(&trial->attributes), *part;
    size_t i;
    double sum = 0;
    json_array_foreach(list, i, part)
    {
        int64_t until = json_integer_value(json_object_get(part, "until"));
        *step = until > *step ? until : *step;
        sum += json_number_value(json_object_get(part, "seconds"));
    }
    if (json_array_size(list))
        *seconds = sum;
    json_decref(list);
}
