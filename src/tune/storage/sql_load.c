/* Trials read from Optuna's tables: one statement for each table, and records that its rows
 * fill in. */
#include "tune/storage/sql.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static double number_of(const char *text, const char *kind)
{
    if (text)
        return choir__number_read(text, NULL);
    if (kind && !strcmp(kind, "INF_POS"))
        return (double)INFINITY;
    return kind && !strcmp(kind, "INF_NEG") ? -(double)INFINITY : (double)NAN;
}

static choir__stored_trial *record_of(void *arg, const char *number)
{
    return choir__stored_trials_find(arg, strtoll(number, NULL, 10));
}

static void take_trial(void *arg, const char *const *cells)
{
    choir__stored_trial *r = choir__stored_trials_add(arg, strtoll(cells[0], NULL, 10));
    r->state = choir__stored_state(cells[1]);
    r->silent_s = number_of(cells[2], NULL);
}

static void take_param(void *arg, const char *const *cells)
{
    choir__stored_trial *r = record_of(arg, cells[0]);
    if (r && cells[1] && cells[3])
        choir__stored_trial_param(r, cells[1], cells[3], number_of(cells[2], NULL));
}

static void take_value(void *arg, const char *const *cells)
{
    choir__stored_trial *r = record_of(arg, cells[0]);
    if (r && r->value_count < CHOIR_STUDY_OBJECTIVES)
        r->values[r->value_count++] = number_of(cells[1], cells[2]);
}

static void take_report(void *arg, const char *const *cells)
{
    choir__stored_trial *r = record_of(arg, cells[0]);
    if (r)
        choir__stored_trial_report(
            r, strtoll(cells[1], NULL, 10), number_of(cells[2], cells[3]));
}

static void take_trial_user(void *arg, const char *const *cells)
{
    choir__stored_trial *r = record_of(arg, cells[0]);
    if (r)
        choir__sql_take_user(&r->attributes, cells + 1);
}

static void take_trial_system(void *arg, const char *const *cells)
{
    choir__stored_trial *r = record_of(arg, cells[0]);
    if (r)
        choir__sql_take_system(&r->attributes, cells + 1);
}

/* Rows of a table about trials, from a number on, by the number. */
#define OF_TRIALS(columns, table, order)                                                       \
    "SELECT t.number, " columns " FROM trials t JOIN " table                                   \
    " x ON x.trial_id = t.trial_id WHERE t.study_id = $1 AND t.number >= $2 "                  \
    "ORDER BY t.number, " order

choir_status choir__sql_load(
    choir__study_backend *b, int64_t from, choir__stored_trials *records)
{
    choir__sql *db = (choir__sql *)(void *)b;
    char number[CHOIR__SQL_NUMBER];
    const char *const values[] = {db->study_id, choir__sql_whole(number, from)};
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
    if (status == CHOIR_OK)
        status = choir__sql_check_study(db, false);
    for (size_t i = 0; i < CHOIR_COUNT(calls) && status == CHOIR_OK; i++) {
        calls[i].count = 2;
        calls[i].values = values;
        calls[i].arg = records;
        status = db->dialect->run(db, &calls[i]);
    }
    return choir__sql_end(db, status);
}
