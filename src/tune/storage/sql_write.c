/* Changes of trials in Optuna's tables.
 *
 * A batch of changes is one transaction. Each statement may be repeated: a trial is begun if
 * its number is free, ended if it runs, and values that are there stay or are replaced. */
#include "tune/storage/sql.h"
#include "base/number.h"
#include "tune/storage/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Optuna's columns of a number: NULL and its kind if it is not finite. */
static const char *real(char text[CHOIR__SQL_NUMBER], double x, const char **kind)
{
    *kind = isnan(x) ? "NAN" : x > 0 ? "INF_POS" : "INF_NEG";
    if (!isfinite(x))
        return NULL;
    *kind = "FINITE";
    choir__number_print(text, CHOIR__SQL_NUMBER, "%.17g", x);
    return text;
}

/* Now, as Optuna writes it: local time, without a zone. */
static const char *now(char text[CHOIR__SQL_NUMBER])
{
    struct timespec t;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &t);
    localtime_r(&t.tv_sec, &local);
    size_t n = strftime(text, CHOIR__SQL_NUMBER, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(text + n, CHOIR__SQL_NUMBER - n, ".%06ld", t.tv_nsec / 1000);
    return text;
}

#define TRIAL "(SELECT trial_id FROM trials WHERE study_id = $1 AND number = $2)"

static void take_text(void *arg, const char *const *cells)
{
    free(*(char **)arg);
    *(char **)arg = choir__strdup(cells[0] ? cells[0] : "");
}

/* Reads the trial's worker into *worker, on the heap, NULL: it has none. */
static choir_status read_worker(choir__sql *db, const char *number, char **worker)
{
    const char *const values[] = {db->study_id, number};
    *worker = NULL;
    choir__sql_call call = {
        .text = "SELECT value_json FROM trial_system_attributes WHERE \"key\" = "
                "'" CHOIR__WORKER_KEY "' AND trial_id = " TRIAL,
        .count = 2,
        .values = values,
        .row = take_text,
        .arg = worker};
    return db->dialect->run(db, &call);
}

static choir_status set_attribute(
    choir__sql *db, const char *number, bool system, const char *key, const char *json)
{
#define SET_ATTRIBUTE(of, kind, id, which)                                                     \
    "INSERT INTO " of "_" kind "_attributes (" of "_id, \"key\", value_json) VALUES (" which   \
    ") ON CONFLICT (" id ", \"key\") DO UPDATE SET value_json = excluded.value_json"
    if (!number)
        return CHOIR__SQL_RUN(db, NULL,
            SET_ATTRIBUTE("study", "user", "study_id", "$1, $2, $3"), db->study_id, key, json);
    return CHOIR__SQL_RUN(db, NULL,
        system ? SET_ATTRIBUTE("trial", "system", "trial_id", TRIAL ", $3, $4")
               : SET_ATTRIBUTE("trial", "user", "trial_id", TRIAL ", $3, $4"),
        db->study_id, number, key, json);
}

/* Another worker has the trial, unless this is a repeated call. */
static choir_status check_lost(choir__sql *db, choir__change *c, const char *number)
{
    char *worker;
    choir_status status = read_worker(db, number, &worker);
    c->lost = !worker || strcmp(worker, c->worker) != 0;
    free(worker);
    return status;
}

/* Uses the database's clock, since the machines' clocks may differ. */
static choir_status beat(choir__sql *db, const char *number)
{
    return CHOIR__SQL_RUN(db, NULL,
        "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (" TRIAL
        ", CURRENT_TIMESTAMP) ON CONFLICT (trial_id) DO UPDATE SET heartbeat = "
        "CURRENT_TIMESTAMP",
        db->study_id, number);
}

static choir_status begin_trial(choir__sql *db, choir__change *c, const char *number)
{
    char time[CHOIR__SQL_NUMBER], value[CHOIR__SQL_NUMBER];
    const char *kind;
    int64_t begun = 0;
    now(time);
    choir_status status = CHOIR__SQL_RUN(db, &begun,
        c->waits ? "UPDATE trials SET state = 'RUNNING', datetime_start = $3 WHERE study_id = "
                   "$1 AND number = $2 AND state = 'WAITING'"
                 : "INSERT INTO trials (study_id, number, state, datetime_start) VALUES ($1, "
                   "$2, 'RUNNING', $3) ON CONFLICT DO NOTHING",
        db->study_id, number, time);
    if (status != CHOIR_OK || !begun)
        return status == CHOIR_OK ? check_lost(db, c, number) : status;
    for (int i = 0; i < c->param_count && status == CHOIR_OK; i++)
        status = CHOIR__SQL_RUN(db, NULL,
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
            "VALUES (" TRIAL ", $3, $4, $5) ON CONFLICT DO NOTHING",
            db->study_id, number, c->params[i].name, real(value, c->params[i].value, &kind),
            c->params[i].dist);
    if (status == CHOIR_OK)
        status = set_attribute(db, number, true, CHOIR__WORKER_KEY, c->worker);
    if (status == CHOIR_OK && c->given)
        status = set_attribute(db, number, true, CHOIR__GIVEN_KEY, "true");
    if (status == CHOIR_OK && c->given)
        status = set_attribute(db, number, true, CHOIR__FIXED_KEY, c->given);
    return status == CHOIR_OK ? beat(db, number) : status;
}

/* Replaces the trial's worker; *changed: it was `from`. */
static choir_status replace_worker(
    choir__sql *db, const char *number, const char *from, const char *to, int64_t *changed)
{
    return CHOIR__SQL_RUN(db, changed,
        "UPDATE trial_system_attributes SET value_json = $3 WHERE \"key\" = "
        "'" CHOIR__WORKER_KEY "' AND value_json = $4 AND trial_id = " TRIAL,
        db->study_id, number, to, from);
}

/* A trial that was pruned at the end of a study is resumed, since the study has more trials
 * now. */
static choir_status reopen(choir__sql *db, const choir__change *c, const char *number)
{
    int64_t changed = 0;
    choir_status status = CHOIR__SQL_RUN(db, &changed,
        "UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE study_id = $1 AND "
        "number = $2 AND state = 'PRUNED' AND EXISTS (SELECT 1 FROM trial_system_attributes a "
        "WHERE a.trial_id = trials.trial_id AND a.\"key\" = '" CHOIR__WORKER_KEY
        "' AND a.value_json = $3)",
        db->study_id, number, c->former);
    if (status == CHOIR_OK && changed)
        status = CHOIR__SQL_RUN(
            db, NULL, "DELETE FROM trial_values WHERE trial_id = " TRIAL, db->study_id, number);
    return status;
}

static choir_status take_over(choir__sql *db, choir__change *c, const char *number)
{
    int64_t changed = 0;
    choir_status status = CHOIR_OK;
    if (choir__worker_paused(c->former) >= 0)
        status = reopen(db, c, number);
    if (status == CHOIR_OK)
        status = CHOIR__SQL_RUN(db, &changed, /* the trial must not have ended just before */
            "UPDATE trial_system_attributes SET value_json = $3 WHERE \"key\" = "
            "'" CHOIR__WORKER_KEY
            "' AND value_json = $4 AND trial_id = (SELECT trial_id FROM trials "
            "WHERE study_id = $1 AND number = $2 AND state = 'RUNNING') AND "
            "COALESCE((SELECT value_json FROM trial_system_attributes WHERE \"key\" = "
            "'" CHOIR__SEGMENTS_KEY "' AND trial_id = " TRIAL "), '') = $5",
            db->study_id, number, c->worker, c->former, c->segments ? c->segments : "");
    if (status == CHOIR_OK)
        status = changed ? beat(db, number) : check_lost(db, c, number);
    return status;
}

static choir_status pause_trial(choir__sql *db, const choir__change *c, const char *number)
{
    int64_t ours = 0;
    choir_status status = replace_worker(db, number, c->worker, c->after, &ours);
    if (status != CHOIR_OK || !ours)
        return status;
    return set_attribute(db, number, true, CHOIR__SEGMENTS_KEY, c->segments);
}

static choir_status report(choir__sql *db, const choir__change *c, const char *number)
{
    char step[CHOIR__SQL_NUMBER], value[CHOIR__SQL_NUMBER];
    const char *kind, *text = real(value, c->values[0], &kind);
    return CHOIR__SQL_RUN(db, NULL,
        "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "
        "intermediate_value_type) VALUES (" TRIAL ", $3, $4, $5) ON CONFLICT (trial_id, step) "
        "DO UPDATE SET intermediate_value = excluded.intermediate_value, "
        "intermediate_value_type = excluded.intermediate_value_type",
        db->study_id, number, choir__sql_whole(step, c->step), text, kind);
}

static choir_status end_trial(choir__sql *db, const choir__change *c, const char *number)
{
    char time[CHOIR__SQL_NUMBER], objective[CHOIR__SQL_NUMBER], value[CHOIR__SQL_NUMBER];
    int64_t ours = 1, ended = 0;
    choir_status status = CHOIR_OK;
    if (c->worker)
        status = replace_worker(db, number, c->worker, c->worker, &ours);
    if (status != CHOIR_OK || !ours)
        return status;
    status = CHOIR__SQL_RUN(db, &ended,
        "UPDATE trials SET state = $3, datetime_complete = $4 WHERE study_id = $1 AND number = "
        "$2 AND state = 'RUNNING'",
        db->study_id, number, choir__stored_state_name(c->state), now(time));
    for (int i = 0; i < c->value_count && ended && status == CHOIR_OK; i++) {
        const char *kind, *text = real(value, c->values[i], &kind);
        status = CHOIR__SQL_RUN(db, NULL,
            "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES "
            "(" TRIAL ", $3, $4, $5) ON CONFLICT DO NOTHING",
            db->study_id, number, choir__sql_whole(objective, i), text, kind);
    }
    if (status == CHOIR_OK && ended && c->segments)
        status = set_attribute(db, number, true, CHOIR__SEGMENTS_KEY, c->segments);
    return status;
}

static choir_status write_change(choir__sql *db, choir__change *c)
{
    char text[CHOIR__SQL_NUMBER], *number = c->number < 0 ? NULL : text;
    choir__sql_whole(text, c->number);
    c->lost = false; /* a batch may be repeated, with the flag of its last try */
    switch (c->kind) {
    case CHOIR__CHANGE_BEGIN: return begin_trial(db, c, number);
    case CHOIR__CHANGE_TAKE: return take_over(db, c, number);
    case CHOIR__CHANGE_REPORT: return report(db, c, number);
    case CHOIR__CHANGE_PAUSE: return pause_trial(db, c, number);
    case CHOIR__CHANGE_END: return end_trial(db, c, number);
    case CHOIR__CHANGE_ATTRIBUTE:
        return set_attribute(
            db, number, c->attribute.system, c->attribute.key, c->attribute.json);
    case CHOIR__CHANGE_BEAT: return beat(db, number);
    case CHOIR__CHANGE_LEAVE:
        return replace_worker(db, number, c->worker, CHOIR__WORKER_LEFT, NULL);
    }
    return CHOIR_OK;
}

/* After a loss of power no process runs the trials that had begun: only ends wait for the disk.
 */
choir_status choir__sql_write(choir__study_backend *b, choir__change *const *changes, int count)
{
    choir__sql *db = (choir__sql *)(void *)b;
    bool ends = false;
    for (int i = 0; i < count; i++)
        ends = ends || changes[i]->kind == CHOIR__CHANGE_END ||
               changes[i]->kind == CHOIR__CHANGE_PAUSE || changes[i]->number < 0;
    choir_status status = CHOIR_OK;
    if (db->dialect->durable)
        status = db->dialect->durable(db, ends);
    if (status == CHOIR_OK)
        status = choir__sql_run(db, db->dialect->begin_write);
    if (status == CHOIR_OK) /* first, so that no two writers wait for each other */
        status = choir__sql_check_study(db, true);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = write_change(db, changes[i]);
    return choir__sql_end(db, status);
}
