/* Stored studies whose trials are paused and resumed.
 *
 * A trial's record lists the segments that have ended, each with its last step and the reports
 * that came after the trial was stopped, and names the worker of the next one:
 *
 *     choir:segments  [{"until":4,"seconds":1.5,"late":[[5,"0.25"]]},{"until":16,...}]
 *     choir:worker    a worker's name: it runs segment 2; "paused 2": none does
 *
 * All decisions by the rule of order follow from results. So each worker takes them again,
 * segment by segment, up to the first one that no worker has begun, which it may claim: a pause
 * is replaced by a worker's name once. A trial remains RUNNING for Optuna, for which the other
 * states are final, until nothing is left to be done in the study.
 *
 * A dead worker's segment begins again. A trial whose worker has left is resumed with the
 * reports and the checkpoint that the worker left. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/study_sync_inside.h"
#include "base/number.h"
#include "tune/storage/worker.h"
#include "tune/trial.h"

/* --- reports --- */

static void add_later(choir_trial *t, int64_t step, double value)
{
    CHOIR__GROW(t->later, t->later_count);
    t->later[t->later_count++] = (choir__report){step, value};
}

/* Takes over the reports up to a step, and drops those for a later segment. */
static void take_reports(choir_trial *t, const choir__stored_trial *r, int64_t until)
{
    free(t->reports);
    free(t->later);
    t->later = NULL;
    t->report_count = t->later_count = 0;
    t->reports = choir__alloc((size_t)(r->report_count + 1) * sizeof *t->reports);
    for (int64_t i = 0; i < r->report_count && r->reports[i].step <= until; i++)
        t->reports[t->report_count++] = r->reports[i];
}

/* Takes over the reports that came after a segment, for the next segment, which resumes from a
 * checkpoint after them. */
static void take_late(choir_trial *t, const choir__stored_trial *r, int64_t part)
{
    json_t *list = choir__study_sync_list(&r->attributes), *pair;
    size_t i;
    json_array_foreach(json_object_get(json_array_get(list, (size_t)part), "late"), i, pair)
    {
        const char *value = json_string_value(json_array_get(pair, 1));
        if (value)
            add_later(t, json_integer_value(json_array_get(pair, 0)),
                choir__number_read(value, NULL));
    }
    json_decref(list);
}

/* --- following --- */

/* The segment of a trial without a worker is to be run again. */
static void give_again(choir_study *s, choir_trial *t, const choir__stored_trial *r)
{
    const char *worker = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    int64_t from = t->before ? t->reports[t->before - 1].step : -1;
    t->again = true;
    t->retaken = worker && strcmp(worker, CHOIR__WORKER_LEFT) != 0;
    take_reports(t, r, from);
    for (int64_t i = t->report_count; i < r->report_count && !t->retaken; i++)
        add_later(t, r->reports[i].step, r->reports[i].value);
    choir__study_restart_segment(s, t);
    if (!t->retaken && !t->stop)
        return;
    t->retaken = worker; /* also where it was stopped before: late reports are not there */
    take_reports(t, r, from);
    take_late(t, r, t->parts - 2);
    choir__study_restart_segment(s, t);
}

/* Takes over what a record says about the present segment of another worker's trial. */
static choir_status take_segment(choir_study *s, choir_trial *t, const choir__stored_trial *r)
{
    bool named, abandoned = choir__study_sync_is_abandoned(s, r, &named);
    choir_status status = t->adopted ? CHOIR_OK : choir__study_sync_adopt(s, t, r);
    choir__study_sync_take_attributes(t, r);
    t->closed = r->state != CHOIR_TRIAL_RUNNING && r->state != CHOIR__STORED_WAITING;
    t->again = false;
    choir__study_sync_result end;
    bool ended = choir__study_sync_find_result(r, t->parts - 1, &end);
    t->silent = !ended && abandoned && !named;
    if (t->silent)
        ended = true, end = (choir__study_sync_result){CHOIR_TRIAL_FAIL, INT64_MAX, 0};
    if (!ended && (abandoned || r->state == CHOIR__STORED_WAITING))
        give_again(s, t, r);
    if (!ended)
        return status;
    take_reports(t, r, end.until);
    take_late(t, r, t->parts - 1);
    t->state = end.state;
    if (t->state == CHOIR_TRIAL_COMPLETE && !choir__study_sync_take_values(t, r))
        t->state = CHOIR_TRIAL_FAIL;
    choir__study_sync_note_pause(t);
    choir__study_end_segment(s, t);
    s->segment[t->segment].seconds = end.seconds;
    return status;
}

/* Returns whether a worker has begun segment `part` of a trial. */
static bool has_begun(const choir__stored_trial *r, int64_t part)
{
    choir__study_sync_result ended;
    const char *worker = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    return !part || choir__study_sync_find_result(r, part, &ended) ||
           choir__worker_paused(worker) < 0;
}

/* Returns the record of the next turn's trial if a worker has begun that segment, or NULL. */
static const choir__stored_trial *record_of_turn(
    choir_study *s, const choir__stored_trials *records)
{
    if (choir__study_look_ahead(s) != CHOIR__PROSPECT_TURN)
        return NULL;
    bool is_new = s->turn.kind == CHOIR__TURN_NEW;
    int64_t part = is_new ? 0 : s->trial[s->turn.trial]->parts;
    const choir__stored_trial *r =
        choir__stored_trials_find(records, is_new ? s->count : s->turn.trial);
    return r && has_begun(r, part) ? r : NULL;
}

/* Begins the next turn's segment, which is another worker's. */
static choir_status follow_turn(choir_study *s, const choir__stored_trial *r)
{
    bool is_new = s->turn.kind == CHOIR__TURN_NEW;
    choir_trial *t = is_new ? NULL : s->trial[s->turn.trial];
    if (is_new)
        t = choir__study_append(s);
    else
        choir__study_begin_segment(s, t);
    t->foreign = true;
    choir_status status = take_segment(s, t, r);
    if (is_new && status == CHOIR_OK)
        choir__study_sync_pass_over(s, t);
    return status;
}

choir_status choir__study_sync_follow(choir_study *s, const choir__stored_trials *records)
{
    choir_status status = CHOIR_OK;
    for (int64_t n = s->ended; n < s->segment_count && status == CHOIR_OK; n++) {
        const choir__trial_segment *g = &s->segment[n];
        const choir__stored_trial *r =
            g->trial < 0 || g->ended ? NULL : choir__stored_trials_find(records, g->trial);
        if (r && s->trial[g->trial]->foreign)
            status = take_segment(s, s->trial[g->trial], r);
    }
    for (const choir__stored_trial *r; status == CHOIR_OK && (r = record_of_turn(s, records));)
        status = follow_turn(s, r);
    return status;
}

/* --- this worker's segments --- */

void choir__study_sync_note_pause(choir_trial *t)
{
    char *pause = choir__worker_pause(t->parts);
    choir__attribute_set(&t->attributes, true, CHOIR__WORKER_KEY, pause);
    free(pause);
}

static json_t *late_of(const choir_trial *t)
{
    json_t *late = json_array();
    for (int64_t i = 0; i < t->later_count; i++) {
        char value[32]; /* as text: JSON has no NaN */
        choir__number_print(value, sizeof value, "%.17g", t->later[i].value);
        json_array_append_new(late, json_pack("[I, s]", (json_int_t)t->later[i].step, value));
    }
    return late;
}

void choir__study_sync_note_segment(choir_trial *t)
{
    json_t *list = choir__study_sync_list(&t->attributes);
    while ((int64_t)json_array_size(list) >= t->parts)
        json_array_remove(list, json_array_size(list) - 1);
    int64_t until = t->report_count ? t->reports[t->report_count - 1].step : -1;
    double seconds = t->study->segment[t->segment].seconds;
    json_t *entry = json_pack(
        "{s:I, s:f}", "until", (json_int_t)until, "seconds", round(seconds * 1e3) / 1e3);
    json_array_append_new(list, entry);
    if (t->later_count)
        json_object_set_new(entry, "late", late_of(t));
    char *text = json_dumps(list, JSON_COMPACT);
    choir__attribute_set(&t->attributes, true, CHOIR__SEGMENTS_KEY, text);
    free(text);
    json_decref(list);
}
