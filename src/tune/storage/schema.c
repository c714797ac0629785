/* Optuna's tables (schema version 12, of Optuna 5.0), written down once for both dialects.
 *
 * In the text, {id} is the type of a primary key, {real} and {time} are types, and {e:NAME:N}
 * is the enumeration NAME, or N characters where the database has none. An index of our own
 * makes a trial's number unique in its study, so that no two workers can begin it; Optuna
 * numbers its trials in the same way and does not notice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/storage/sql.h"

enum { VERSION = 12, MOST_REVISION = 33 };
#define REVISION "v3.2.0.a" /* Alembic's name for it */
#define LIBRARY  "5.0.0"

static const char *const types[] = {
    "CREATE TYPE studydirection AS ENUM ('NOT_SET', 'MINIMIZE', 'MAXIMIZE')",
    "CREATE TYPE trialstate AS ENUM ('RUNNING', 'COMPLETE', 'PRUNED', 'FAIL', 'WAITING')",
    "CREATE TYPE trialintermediatevaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG', 'NAN')",
    "CREATE TYPE trialvaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG')",
};

#define ATTRIBUTES(of, kind, id)                                                               \
    "CREATE TABLE " of "_" kind "_attributes (" of "_" kind "_attribute_id {id}, " id          \
    " INTEGER, \"key\" VARCHAR(512), value_json TEXT, PRIMARY KEY (" of "_" kind               \
    "_attribute_id), UNIQUE (" id ", \"key\"), "

static const char *const tables[] = {
    "CREATE TABLE studies (study_id {id}, study_name VARCHAR(512) NOT NULL, "
    "PRIMARY KEY (study_id))",
    "CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name)",
    "CREATE TABLE version_info (version_info_id INTEGER NOT NULL, schema_version INTEGER, "
    "library_version VARCHAR(256), PRIMARY KEY (version_info_id), CHECK (version_info_id=1))",
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))",
    "CREATE TABLE study_directions (study_direction_id {id}, "
    "direction {e:studydirection:8} NOT NULL, study_id INTEGER NOT NULL, "
    "objective INTEGER NOT NULL, PRIMARY KEY (study_direction_id), "
    "UNIQUE (study_id, objective), FOREIGN KEY(study_id) REFERENCES studies (study_id))",
    ATTRIBUTES("study", "system", "study_id") "FOREIGN KEY(study_id) REFERENCES studies "
                                              "(study_id))",
    ATTRIBUTES("study", "user", "study_id") "FOREIGN KEY(study_id) REFERENCES studies "
                                            "(study_id))",
    "CREATE TABLE trials (trial_id {id}, number INTEGER, study_id INTEGER, "
    "state {e:trialstate:8} NOT NULL, datetime_start {time}, datetime_complete {time}, "
    "PRIMARY KEY (trial_id), FOREIGN KEY(study_id) REFERENCES studies (study_id))",
    "CREATE INDEX ix_trials_study_id ON trials (study_id)",
    "CREATE TABLE trial_heartbeats (trial_heartbeat_id {id}, trial_id INTEGER NOT NULL, "
    "heartbeat {time} NOT NULL, PRIMARY KEY (trial_heartbeat_id), UNIQUE (trial_id), "
    "FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE trial_intermediate_values (trial_intermediate_value_id {id}, "
    "trial_id INTEGER NOT NULL, step INTEGER NOT NULL, intermediate_value {real}, "
    "intermediate_value_type {e:trialintermediatevaluetype:7} NOT NULL, "
    "PRIMARY KEY (trial_intermediate_value_id), UNIQUE (trial_id, step), "
    "FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE trial_params (param_id {id}, trial_id INTEGER, param_name VARCHAR(512), "
    "param_value {real}, distribution_json TEXT, PRIMARY KEY (param_id), "
    "UNIQUE (trial_id, param_name), FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    ATTRIBUTES("trial", "system", "trial_id") "FOREIGN KEY(trial_id) REFERENCES trials "
                                              "(trial_id))",
    ATTRIBUTES("trial", "user", "trial_id") "FOREIGN KEY(trial_id) REFERENCES trials "
                                            "(trial_id))",
    "CREATE TABLE trial_values (trial_value_id {id}, trial_id INTEGER NOT NULL, "
    "objective INTEGER NOT NULL, value {real}, value_type {e:trialvaluetype:7} NOT NULL, "
    "PRIMARY KEY (trial_value_id), UNIQUE (trial_id, objective), "
    "FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "INSERT INTO version_info (version_info_id, schema_version, library_version) "
    "VALUES (1, 12, '" LIBRARY "')",
    "INSERT INTO alembic_version (version_num) VALUES ('" REVISION "')",
};

/* Writes one {word} as the dialect has it, and returns the text behind it. */
static const char *write_word(FILE *out, const choir__sql_dialect *d, const char *word)
{
    char name[32];
    int width;
    if (!strncmp(word, "{id}", 4))
        fputs(d->id, out);
    else if (!strncmp(word, "{real}", 6))
        fputs(d->real, out);
    else if (!strncmp(word, "{time}", 6))
        fputs(d->time, out);
    else if (sscanf(word, "{e:%31[a-z]:%d}", name, &width) == 2) {
        if (d->enums)
            fputs(name, out);
        else
            fprintf(out, "VARCHAR(%d)", width);
    }
    return strchr(word, '}') + 1;
}

static choir_status make(choir__sql *db, const char *pattern)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    while (*pattern)
        if (*pattern == '{')
            pattern = write_word(out, db->dialect, pattern);
        else
            fputc(*pattern++, out);
    fclose(out);
    choir__sql_call call = {.text = text, .once = true};
    choir_status status = db->dialect->run(db, &call);
    free(text);
    return status;
}

static void note_row(void *arg, const char *const *cells)
{
    (void)cells;
    *(bool *)arg = true;
}

static void note_number(void *arg, const char *const *cells)
{
    *(int *)arg = cells[0] ? atoi(cells[0]) : 0;
}

static choir_status make_all(choir__sql *db)
{
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(types) && db->dialect->enums && status == CHOIR_OK; i++)
        status = choir__sql_run(db, types[i]);
    for (size_t i = 0; i < CHOIR_COUNT(tables) && status == CHOIR_OK; i++)
        status = make(db, tables[i]);
    return status;
}

static void note_revision(void *arg, const char *const *cells)
{
    snprintf(arg, MOST_REVISION, "%s", cells[0] ? cells[0] : "");
}

static choir_status check_version(choir__sql *db)
{
    int version = 0;
    char revision[MOST_REVISION] = "";
    choir__sql_call call = {
        .text = "SELECT schema_version FROM version_info", .row = note_number, .arg = &version};
    choir__sql_call look = {.text = "SELECT version_num FROM alembic_version",
        .row = note_revision,
        .arg = revision};
    choir_status status = db->dialect->run(db, &call);
    if (status == CHOIR_OK)
        status = db->dialect->run(db, &look);
    if (status == CHOIR_OK && version > VERSION)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s was written by a newer Optuna: expected tables of version %d, got %d",
            db->base.place, VERSION, version);
    else if (status == CHOIR_OK && version < VERSION)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s was written by an older Optuna: expected tables of version %d, got %d; 'optuna "
            "storage upgrade' brings them up to date",
            db->base.place, VERSION, version);
    else if (status == CHOIR_OK && strcmp(revision, REVISION) != 0)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s was written by another Optuna: expected tables of revision %s, got '%s'",
            db->base.place, REVISION, revision);
    return status;
}

/* Only the owner of Optuna's tables may make the index, so others do not try where it is there.
 */
static choir_status make_index(choir__sql *db)
{
    bool there = false;
    choir__sql_call look = {.text = db->dialect->has_index, .row = note_row, .arg = &there};
    choir_status status = db->dialect->run(db, &look);
    return status == CHOIR_OK && !there
               ? choir__sql_run(db, "CREATE UNIQUE INDEX IF NOT EXISTS " CHOIR__SQL_INDEX
                                    " ON trials (study_id, number)")
               : status;
}

choir_status choir__sql_schema(choir__sql *db, bool create)
{
    bool there = false;
    choir__sql_call look = {.text = db->dialect->has_tables, .row = note_row, .arg = &there};
    choir_status status = db->dialect->run(db, &look);
    if (status == CHOIR_OK && !there && !create)
        status = choir__error(CHOIR_ERR_ARGUMENT, "there are no studies in %s", db->base.place);
    if (status == CHOIR_OK && there)
        status = check_version(db);
    if (status != CHOIR_OK || !create)
        return status;
    status = choir__sql_run(db, db->dialect->begin_write);
    if (status == CHOIR_OK && db->dialect->schema_lock)
        status = choir__sql_run(db, db->dialect->schema_lock);
    if (status == CHOIR_OK) /* now that no other can make them */
        status = db->dialect->run(db, &look);
    if (status == CHOIR_OK && !there)
        status = make_all(db);
    if (status == CHOIR_OK)
        status = make_index(db);
    return choir__sql_end(db, status);
}
