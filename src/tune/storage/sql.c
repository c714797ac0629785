/* Studies in Optuna's tables. Trials are read by sql_load.c and written by sql_write.c. */
#include "tune/storage/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

choir_status choir__sql_run_with(
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
    return choir__sql_run_with(db, NULL, text, 0, NULL);
}

choir_status choir__sql_end(choir__sql *db, choir_status status)
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

const char *choir__sql_whole(char text[CHOIR__SQL_NUMBER], int64_t x)
{
    snprintf(text, CHOIR__SQL_NUMBER, "%lld", (long long)x);
    return text;
}

/* --- the study --- */

static void take_name(void *arg, const char *const *cells)
{
    choir__study_names_add(arg, cells[0]);
}

choir_status choir__sql_list(choir__study_backend *b, choir__study_names *names)
{
    choir__sql *db = (choir__sql *)(void *)b;
    choir__sql_call call = {.text = "SELECT study_name FROM studies ORDER BY study_id",
        .row = take_name,
        .arg = names};
    return db->dialect->run(db, &call);
}

static void take_id(void *arg, const char *const *cells)
{
    snprintf(arg, CHOIR__SQL_NUMBER, "%s", cells[0]);
}

static void take_direction(void *arg, const char *const *cells)
{
    choir__stored_study *s = arg;
    if (s->objectives < CHOIR_STUDY_OBJECTIVES)
        s->most[s->objectives++] = !strcmp(cells[0], "MAXIMIZE");
}

void choir__sql_take_user(void *arg, const char *const *cells)
{
    choir__attribute_set(arg, false, cells[0], cells[1] ? cells[1] : "null");
}

void choir__sql_take_system(void *arg, const char *const *cells)
{
    choir__attribute_set(arg, true, cells[0], cells[1] ? cells[1] : "null");
}

static choir_status make_study(choir__sql *db, const choir__stored_study *s)
{
    char objective[CHOIR__SQL_NUMBER];
    choir_status status = choir__sql_run(db, db->dialect->begin_write);
    int64_t made = 0;
    if (status == CHOIR_OK)
        status = CHOIR__SQL_RUN(db, &made,
            "INSERT INTO studies (study_name) VALUES ($1) ON CONFLICT DO NOTHING", s->name);
    for (int i = 0; i < s->objectives && made && status == CHOIR_OK; i++)
        status = CHOIR__SQL_RUN(db, NULL,
            "INSERT INTO study_directions (direction, study_id, objective) VALUES ($1, "
            "(SELECT study_id FROM studies WHERE study_name = $2), $3)",
            s->most[i] ? "MAXIMIZE" : "MINIMIZE", s->name, choir__sql_whole(objective, i));
    return choir__sql_end(db, status);
}

/* Finds the study's row. */
static choir_status find_study(choir__sql *db, const choir__stored_study *s, bool *there)
{
    const char *const name[] = {s->name};
    choir__sql_call call = {.text = "SELECT study_id FROM studies WHERE study_name = $1",
        .count = 1,
        .values = name,
        .row = take_id,
        .arg = db->study_id};
    db->study_id[0] = '\0';
    choir_status status = db->dialect->run(db, &call);
    *there = db->study_id[0] != '\0';
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
            .row = choir__sql_take_user,
            .arg = &s->attributes},
        {.text = "SELECT \"key\", value_json FROM study_system_attributes WHERE study_id = $1",
            .row = choir__sql_take_system,
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
    free(db->study_name);
    db->study_name = choir__strdup(study->name);
    return read_study(db, study);
}

choir_status choir__sql_check_study(choir__sql *db, bool writes)
{
    char id[CHOIR__SQL_NUMBER] = "";
    const char *const values[] = {db->study_id, db->study_name};
    const char *text = "SELECT study_id, study_name FROM studies WHERE study_id = $1 AND "
                       "study_name = $2";
    choir__sql_call call = {.text = writes && db->dialect->lock ? db->dialect->lock : text,
        .count = 2,
        .values = values,
        .row = take_id,
        .arg = id};
    choir_status status = db->dialect->run(db, &call);
    if (status == CHOIR_OK && !*id)
        status = choir__backend_deleted(&db->base, db->study_name);
    return status;
}

void choir__sql_close(choir__study_backend *b)
{
    choir__sql *db = (choir__sql *)(void *)b;
    db->dialect->close(db);
    free(db->load_trials);
    free(db->study_name);
    free(b->place);
    free(db);
}
