/* Studies and trials in Optuna's tables.
 *
 * A batch of changes is one transaction. Each statement may be repeated: a trial is begun if
 * its number is free, ended if it runs, and values that are there stay or are replaced. */
#include "tune/storage/sql.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NUMBER_TEXT = 32 };

/* Runs a statement with these values. */
#define RUN(db, changed, text, ...)                                                            \
    run_with(db, changed, text,                                                                \
        (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                    \
        (const char *const[]){__VA_ARGS__})

static choir_status run_with(
    choir__sql *db, int64_t *changed, const char *text, int count, const char *const *values)
{
    choir__sql_call call = {.text = text, .count = count, .values = values};
    choir_status status = db->dialect->run(db, &call);
    if (changed)
        *changed = call.changed;
    return status;
}

choir_status choir__sql_run(choir__sql *db, const char *text)
{
    return run_with(db, NULL, text, 0, NULL);
}

/* Ends a transaction, and keeps the first error's message. */
static choir_status end(choir__sql *db, choir_status status)
{
    if (status == CHOIR_OK)
        return choir__sql_run(db, "COMMIT");
    char *why = choir__strdup(choir__message());
    if (status != CHOIR_ERR_PEER_LOST)
        (void)!choir__sql_run(db, "ROLLBACK");
    choir__set_message(why);
    free(why);
    return status;
}

static const char *whole(char text[NUMBER_TEXT], int64_t x)
{
    snprintf(text, NUMBER_TEXT, "%lld", (long long)x);
    return text;
}

/* Optuna's columns of a number: NULL and its kind if it is not finite. */
static const char *real(char text[NUMBER_TEXT], double x, const char **kind)
{
    *kind = isnan(x) ? "NAN" : x > 0 ? "INF_POS" : "INF_NEG";
    if (!isfinite(x))
        return NULL;
    *kind = "FINITE";
    snprintf(text, NUMBER_TEXT, "%.17g", x);
    return text;
}

static double number_of(const char *text, const char *kind)
{
    if (text)
        return strtod(text, NULL);
    if (kind && !strcmp(kind, "INF_POS"))
        return (double)INFINITY;
    return kind && !strcmp(kind, "INF_NEG") ? -(double)INFINITY : (double)NAN;
}

/* Now, as Optuna writes it: local time, without a zone. */
static const char *now(char text[NUMBER_TEXT])
{
    struct timespec t;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &t);
    localtime_r(&t.tv_sec, &local);
    size_t n = strftime(text, NUMBER_TEXT, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(text + n, NUMBER_TEXT - n, ".%06ld", t.tv_nsec / 1000);
    return text;
}

/* --- the study --- */

typedef struct found {
    char id[24];
    char *names;
    int count;
} found;

static void take_study(void *arg, const char *const *cells)
{
    found *f = arg;
    snprintf(f->id, sizeof f->id, "%s", cells[0]);
    char *names =
        f->names ? choir__format("%s, %s", f->names, cells[1]) : choir__strdup(cells[1]);
    free(f->names);
    f->names = names;
    f->count++;
}

static void take_direction(void *arg, const char *const *cells)
{
    choir__stored_study *s = arg;
    if (s->objectives < CHOIR_STUDY_OBJECTIVES)
        s->most[s->objectives++] = !strcmp(cells[0], "MAXIMIZE");
}

static void take_user(void *arg, const char *const *cells)
{
    choir__attribute_set(arg, false, cells[0], cells[1] ? cells[1] : "null");
}

static void take_system(void *arg, const char *const *cells)
{
    choir__attribute_set(arg, true, cells[0], cells[1] ? cells[1] : "null");
}

static choir_status make_study(choir__sql *db, const choir__stored_study *s)
{
    char objective[NUMBER_TEXT];
    choir_status status = choir__sql_run(db, db->dialect->begin_write);
    int64_t made = 0;
    if (status == CHOIR_OK)
        status = RUN(db, &made,
            "INSERT INTO studies (study_name) VALUES ($1) ON CONFLICT DO NOTHING", s->name);
    for (int i = 0; i < s->objectives && made && status == CHOIR_OK; i++)
        status = RUN(db, NULL,
            "INSERT INTO study_directions (direction, study_id, objective) VALUES ($1, "
            "(SELECT study_id FROM studies WHERE study_name = $2), $3)",
            s->most[i] ? "MAXIMIZE" : "MINIMIZE", s->name, whole(objective, i));
    return end(db, status);
}

/* Finds the study's row. */
static choir_status find_study(choir__sql *db, choir__stored_study *s, bool *there)
{
    found f = {.count = 0};
    const char *const name[] = {s->name};
    choir__sql_call named = {.text = "SELECT study_id, study_name FROM studies WHERE "
                                     "study_name = $1",
        .count = 1,
        .values = name,
        .row = take_study,
        .arg = &f};
    choir__sql_call any = {.text = "SELECT study_id, study_name FROM studies ORDER BY study_id",
        .row = take_study,
        .arg = &f};
    choir_status status = db->dialect->run(db, s->name ? &named : &any);
    *there = f.count == 1;
    memcpy(db->study_id, f.id, sizeof f.id);
    if (status == CHOIR_OK && !s->name && f.count > 1)
        status = choir__backend_several(&db->base, f.names);
    else if (status == CHOIR_OK && !s->name && f.count == 1)
        s->name = choir__strdup(f.names);
    free(f.names);
    return status;
}

static choir_status read_study(choir__sql *db, choir__stored_study *s)
{
    const char *const id[] = {db->study_id};
    choir__sql_call calls[] = {
        {.text =
                "SELECT direction FROM study_directions WHERE study_id = $1 ORDER BY objective",
            .row = take_direction,
            .arg = s},
        {.text = "SELECT \"key\", value_json FROM study_user_attributes WHERE study_id = $1",
            .row = take_user,
            .arg = &s->attributes},
        {.text = "SELECT \"key\", value_json FROM study_system_attributes WHERE study_id = $1",
            .row = take_system,
            .arg = &s->attributes},
    };
    s->objectives = 0;
    choir__attributes_free(&s->attributes);
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(calls) && status == CHOIR_OK; i++) {
        calls[i].count = 1;
        calls[i].values = id;
        status = db->dialect->run(db, &calls[i]);
    }
    return status;
}

choir_status choir__sql_study(choir__study_backend *b, bool create, choir__stored_study *study)
{
    choir__sql *db = (choir__sql *)(void *)b;
    bool there;
    choir_status status = find_study(db, study, &there);
    if (status == CHOIR_OK && !there && create) {
        status = make_study(db, study);
        if (status == CHOIR_OK)
            status = find_study(db, study, &there);
    }
    if (status != CHOIR_OK)
        return status;
    if (!there)
        return choir__backend_none(b, study->name);
    return read_study(db, study);
}

/* --- reading --- */

static choir__record *record_of(void *arg, const char *number)
{
    return choir__records_find(arg, strtoll(number, NULL, 10));
}

static void take_trial(void *arg, const char *const *cells)
{
    choir__record *r = choir__records_add(arg, strtoll(cells[0], NULL, 10));
    r->state = choir__stored_state(cells[1]);
    r->silent_s = number_of(cells[2], NULL);
}

static void take_param(void *arg, const char *const *cells)
{
    choir__record *r = record_of(arg, cells[0]);
    if (r && cells[1] && cells[3])
        choir__record_param(r, cells[1], cells[3], number_of(cells[2], NULL));
}

static void take_value(void *arg, const char *const *cells)
{
    choir__record *r = record_of(arg, cells[0]);
    if (r && r->value_count < CHOIR_STUDY_OBJECTIVES)
        r->values[r->value_count++] = number_of(cells[1], cells[2]);
}

static void take_report(void *arg, const char *const *cells)
{
    choir__record *r = record_of(arg, cells[0]);
    if (r)
        choir__record_report(r, strtoll(cells[1], NULL, 10), number_of(cells[2], cells[3]));
}

static void take_trial_user(void *arg, const char *const *cells)
{
    choir__record *r = record_of(arg, cells[0]);
    if (r)
        take_user(&r->attributes, cells + 1);
}

static void take_trial_system(void *arg, const char *const *cells)
{
    choir__record *r = record_of(arg, cells[0]);
    if (r)
        take_system(&r->attributes, cells + 1);
}

/* Rows of a table about trials, from a number on, by the number. */
#define OF_TRIALS(columns, table, order)                                                       \
    "SELECT t.number, " columns " FROM trials t JOIN " table                                   \
    " x ON x.trial_id = t.trial_id WHERE t.study_id = $1 AND t.number >= $2 "                  \
    "ORDER BY t.number, " order

choir_status choir__sql_load(choir__study_backend *b, int64_t from, choir__records *records)
{
    choir__sql *db = (choir__sql *)(void *)b;
    char number[NUMBER_TEXT];
    const char *const values[] = {db->study_id, whole(number, from)};
    if (!db->load_trials)
        db->load_trials = choir__format(
            "SELECT t.number, t.state, %s FROM trials t LEFT JOIN trial_heartbeats h "
            "ON h.trial_id = t.trial_id WHERE t.study_id = $1 AND t.number >= $2 "
            "ORDER BY t.number",
            db->dialect->silent_s);
    choir__sql_call calls[] = {
        {.text = db->load_trials, .row = take_trial},
        {.text = OF_TRIALS(
             "x.param_name, x.param_value, x.distribution_json", "trial_params", "x.param_id"),
            .row = take_param},
        {.text = OF_TRIALS("x.value, x.value_type", "trial_values", "x.objective"),
            .row = take_value},
        {.text = OF_TRIALS("x.step, x.intermediate_value, x.intermediate_value_type",
             "trial_intermediate_values", "x.step"),
            .row = take_report},
        {.text = OF_TRIALS("x.\"key\", x.value_json", "trial_user_attributes", "x.\"key\""),
            .row = take_trial_user},
        {.text = OF_TRIALS("x.\"key\", x.value_json", "trial_system_attributes", "x.\"key\""),
            .row = take_trial_system},
    };
    choir_status status = choir__sql_run(db, db->dialect->begin_read);
    for (size_t i = 0; i < CHOIR_COUNT(calls) && status == CHOIR_OK; i++) {
        calls[i].count = 2;
        calls[i].values = values;
        calls[i].arg = records;
        status = db->dialect->run(db, &calls[i]);
    }
    return end(db, status);
}

/* --- writing --- */

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
        return RUN(db, NULL, SET_ATTRIBUTE("study", "user", "study_id", "$1, $2, $3"),
            db->study_id, key, json);
    return RUN(db, NULL,
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

/* The database's clock, since those of the machines may differ. */
static choir_status beat(choir__sql *db, const char *number)
{
    return RUN(db, NULL,
        "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (" TRIAL
        ", CURRENT_TIMESTAMP) ON CONFLICT (trial_id) DO UPDATE SET heartbeat = "
        "CURRENT_TIMESTAMP",
        db->study_id, number);
}

static choir_status begin_trial(choir__sql *db, choir__change *c, const char *number)
{
    char time[NUMBER_TEXT], value[NUMBER_TEXT];
    const char *kind;
    int64_t begun = 0;
    now(time);
    choir_status status = RUN(db, &begun,
        c->waits ? "UPDATE trials SET state = 'RUNNING', datetime_start = $3 WHERE study_id = "
                   "$1 AND number = $2 AND state = 'WAITING'"
                 : "INSERT INTO trials (study_id, number, state, datetime_start) VALUES ($1, "
                   "$2, 'RUNNING', $3) ON CONFLICT DO NOTHING",
        db->study_id, number, time);
    if (status != CHOIR_OK || !begun)
        return status == CHOIR_OK ? check_lost(db, c, number) : status;
    for (int i = 0; i < c->param_count && status == CHOIR_OK; i++)
        status = RUN(db, NULL,
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
            "VALUES (" TRIAL ", $3, $4, $5) ON CONFLICT DO NOTHING",
            db->study_id, number, c->params[i].name, real(value, c->params[i].value, &kind),
            c->params[i].dist);
    if (status == CHOIR_OK)
        status = set_attribute(db, number, true, CHOIR__WORKER_KEY, c->worker);
    if (status == CHOIR_OK && c->given)
        status = set_attribute(db, number, true, CHOIR__GIVEN_KEY, "true");
    return status == CHOIR_OK ? beat(db, number) : status;
}

static choir_status take_over(choir__sql *db, choir__change *c, const char *number)
{
    int64_t changed = 0;
    choir_status status = RUN(db, &changed, /* of a trial that has not ended just before */
        "UPDATE trial_system_attributes SET value_json = $3 WHERE \"key\" = "
        "'" CHOIR__WORKER_KEY
        "' AND value_json = $4 AND trial_id = (SELECT trial_id FROM trials "
        "WHERE study_id = $1 AND number = $2 AND state = 'RUNNING')",
        db->study_id, number, c->worker, c->former);
    if (status == CHOIR_OK)
        status = changed ? beat(db, number) : check_lost(db, c, number);
    return status;
}

static choir_status leave(choir__sql *db, const choir__change *c, const char *number)
{
    return RUN(db, NULL,
        "UPDATE trial_system_attributes SET value_json = $3 WHERE \"key\" = "
        "'" CHOIR__WORKER_KEY "' AND value_json = $4 AND trial_id = " TRIAL,
        db->study_id, number, CHOIR__WORKER_LEFT, c->worker);
}

static choir_status report(choir__sql *db, const choir__change *c, const char *number)
{
    char step[NUMBER_TEXT], value[NUMBER_TEXT];
    const char *kind, *text = real(value, c->values[0], &kind);
    return RUN(db, NULL,
        "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "
        "intermediate_value_type) VALUES (" TRIAL ", $3, $4, $5) ON CONFLICT (trial_id, step) "
        "DO UPDATE SET intermediate_value = excluded.intermediate_value, "
        "intermediate_value_type = excluded.intermediate_value_type",
        db->study_id, number, whole(step, c->step), text, kind);
}

static choir_status end_trial(choir__sql *db, const choir__change *c, const char *number)
{
    char time[NUMBER_TEXT], objective[NUMBER_TEXT], value[NUMBER_TEXT];
    int64_t ended = 0;
    choir_status status = RUN(db, &ended,
        "UPDATE trials SET state = $3, datetime_complete = $4 WHERE study_id = $1 AND number = "
        "$2 AND state = 'RUNNING'",
        db->study_id, number, choir__stored_state_name(c->state), now(time));
    for (int i = 0; i < c->value_count && ended && status == CHOIR_OK; i++) {
        const char *kind, *text = real(value, c->values[i], &kind);
        status = RUN(db, NULL,
            "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES "
            "(" TRIAL ", $3, $4, $5) ON CONFLICT DO NOTHING",
            db->study_id, number, whole(objective, i), text, kind);
    }
    return status;
}

static choir_status write_change(choir__sql *db, choir__change *c)
{
    char text[NUMBER_TEXT], *number = c->number < 0 ? NULL : text;
    whole(text, c->number);
    switch (c->kind) {
    case CHOIR__CHANGE_BEGIN: return begin_trial(db, c, number);
    case CHOIR__CHANGE_TAKE: return take_over(db, c, number);
    case CHOIR__CHANGE_REPORT: return report(db, c, number);
    case CHOIR__CHANGE_END: return end_trial(db, c, number);
    case CHOIR__CHANGE_ATTRIBUTE:
        return set_attribute(
            db, number, c->attribute.system, c->attribute.key, c->attribute.json);
    case CHOIR__CHANGE_BEAT: return beat(db, number);
    case CHOIR__CHANGE_LEAVE: return leave(db, c, number);
    }
    return CHOIR_OK;
}

/* After a loss of power no process runs the trials that had begun: only ends wait for the disk.
 */
choir_status choir__sql_write(choir__study_backend *b, choir__change *const *changes, int count)
{
    choir__sql *db = (choir__sql *)(void *)b;
    bool ends = false, begins = false;
    for (int i = 0; i < count; i++) {
        ends = ends || changes[i]->kind == CHOIR__CHANGE_END || changes[i]->number < 0;
        begins = begins || changes[i]->kind == CHOIR__CHANGE_BEGIN;
    }
    choir_status status = CHOIR_OK;
    if (db->dialect->durable)
        status = db->dialect->durable(db, ends);
    if (status == CHOIR_OK)
        status = choir__sql_run(db, db->dialect->begin_write);
    if (status == CHOIR_OK && begins && db->dialect->lock)
        status = RUN(db, NULL, db->dialect->lock, db->study_id);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = write_change(db, changes[i]);
    return end(db, status);
}

void choir__sql_close(choir__study_backend *b)
{
    choir__sql *db = (choir__sql *)(void *)b;
    db->dialect->close(db);
    free(db->load_trials);
    free(b->place);
    free(db);
}
