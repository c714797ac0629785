/* Studies in PostgreSQL: postgresql://USER@HOST/DATABASE, by libpq.
 *
 * Each statement is prepared once per connection. When the connection is lost, so is the
 * transaction; the next call connects again, and the writer repeats its batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/storage/sql.h"

#ifdef CHOIR_HAVE_POSTGRES
#include <libpq-fe.h>

#include "base/plugin/library.h"

#define CALLS(X)                                                                               \
    X(PQ, connectdb)                                                                           \
    X(PQ, status)                                                                              \
    X(PQ, finish)                                                                              \
    X(PQ, errorMessage)                                                                        \
    X(PQ, prepare)                                                                             \
    X(PQ, execPrepared)                                                                        \
    X(PQ, exec)                                                                                \
    X(PQ, resultStatus)                                                                        \
    X(PQ, resultErrorField)                                                                    \
    X(PQ, ntuples)                                                                             \
    X(PQ, nfields)                                                                             \
    X(PQ, getisnull)                                                                           \
    X(PQ, getvalue)                                                                            \
    X(PQ, cmdTuples)                                                                           \
    X(PQ, host)                                                                                \
    X(PQ, clear)                                                                               \
    X(PQ, setNoticeReceiver)

static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} pq;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};

enum { MOST_STATEMENTS = 64, MOST_COLUMNS = 8, MOST_TRIES = 100 };

typedef struct postgres {
    choir__sql sql;
    char *url;
    bool connected;                        /* since it was last reset */
    PGconn *connection;                    /* NULL: lost */
    const char *prepared[MOST_STATEMENTS]; /* statements, found by address and named by place */
    int count;
} postgres;

/* Returns the first line of a message, which the caller frees. */
static char *first_line(const char *message)
{
    while (*message == ' ' || *message == '\n')
        message++;
    return choir__clean(choir__format("%.*s", (int)strcspn(message, "\n"), message));
}

static void drop_notice(void *arg, const PGresult *notice)
{
    (void)arg, (void)notice;
}

static void disconnect(postgres *p)
{
    if (p->connection)
        pq.finish(p->connection);
    p->connection = NULL;
    p->count = 0;
}

/* A server that rejects the login or lacks the database does not become better by waiting. */
static choir_status refused(const postgres *p, const char *message)
{
    static const char *const final[] = {"authentication failed", "does not exist",
        "no password supplied", "no pg_hba.conf entry", "invalid", "missing \"=\""};
    char *line = first_line(message);
    choir_status status = CHOIR_ERR_PEER_LOST;
    for (size_t i = 0; i < CHOIR_COUNT(final); i++)
        if (strstr(line, final[i]))
            status = CHOIR_ERR_IO;
    status = choir__error(status, "%s: %s", p->sql.base.place, line);
    free(line);
    return status;
}

static choir_status reconnect(postgres *p)
{
    if (p->connection && pq.status(p->connection) == CONNECTION_OK)
        return CHOIR_OK;
    disconnect(p);
    p->connection = pq.connectdb(p->url);
    if (p->connection && pq.status(p->connection) == CONNECTION_OK) {
        pq.setNoticeReceiver(p->connection, drop_notice, NULL);
        p->connected = true;
        return CHOIR_OK;
    }
    choir_status status =
        refused(p, p->connection ? pq.errorMessage(p->connection) : "no memory");
    disconnect(p);
    return status;
}

/* The server is shutting down or has lost the transaction to another one: again later. */
static bool is_passing(const char *sqlstate)
{
    return !sqlstate || !strncmp(sqlstate, "08", 2) || !strncmp(sqlstate, "57P", 3) ||
           !strcmp(sqlstate, "40P01") || !strcmp(sqlstate, "40001") ||
           !strncmp(sqlstate, "53", 2);
}

static choir_status failed(postgres *p, const PGresult *result)
{
    const char *state = pq.resultErrorField(result, PG_DIAG_SQLSTATE);
    bool lost = pq.status(p->connection) != CONNECTION_OK || is_passing(state);
    char *line = first_line(pq.errorMessage(p->connection));
    choir_status status = choir__error(
        lost ? CHOIR_ERR_PEER_LOST : CHOIR_ERR_IO, "%s: %s", p->sql.base.place, line);
    free(line);
    if (lost)
        disconnect(p);
    return status;
}

static choir_status check(postgres *p, PGresult *result)
{
    ExecStatusType is = pq.resultStatus(result);
    return is == PGRES_COMMAND_OK || is == PGRES_TUPLES_OK ? CHOIR_OK : failed(p, result);
}

/* Writes the name of the prepared statement. */
static choir_status prepare(postgres *p, const char *text, char name[16])
{
    int at = 0;
    while (at < p->count && p->prepared[at] != text)
        at++;
    snprintf(name, 16, "s%d", at);
    if (at < p->count)
        return CHOIR_OK;
    PGresult *result = pq.prepare(p->connection, name, text, 0, NULL);
    choir_status status = check(p, result);
    if (status == CHOIR_OK)
        p->prepared[p->count++] = text;
    pq.clear(result);
    return status;
}

static void give_rows(const choir__sql_call *call, const PGresult *result)
{
    const char *cells[MOST_COLUMNS];
    int columns = pq.nfields(result);
    for (int row = 0; row < pq.ntuples(result); row++) {
        for (int i = 0; i < columns && i < MOST_COLUMNS; i++)
            cells[i] = pq.getisnull(result, row, i) ? NULL : pq.getvalue(result, row, i);
        call->row(call->arg, cells);
    }
}

static choir_status run(choir__sql *db, choir__sql_call *call)
{
    postgres *p = (postgres *)(void *)db;
    char name[16];
    choir_status status = CHOIR_OK;
    bool begins = !strncmp(call->text, "BEGIN", 5);
    if (begins || !p->count) /* within a transaction a lost connection is an error */
        status = reconnect(p);
    else if (!p->connection)
        status =
            choir__error(CHOIR_ERR_PEER_LOST, "%s: the connection is lost", db->base.place);
    bool kept = !call->once && p->count < MOST_STATEMENTS;
    if (status == CHOIR_OK && kept)
        status = prepare(p, call->text, name);
    if (status != CHOIR_OK)
        return status;
    PGresult *result =
        kept ? pq.execPrepared(p->connection, name, call->count, call->values, NULL, NULL, 0)
             : pq.exec(p->connection, call->text);
    status = check(p, result);
    if (status == CHOIR_OK) {
        call->changed = strtoll(pq.cmdTuples(result), NULL, 10);
        if (call->row)
            give_rows(call, result);
    }
    pq.clear(result);
    return status;
}

static void close_postgres(choir__sql *db)
{
    postgres *p = (postgres *)(void *)db;
    disconnect(p);
    free(p->url);
}

static const choir__sql_dialect dialect = {
    .id = "SERIAL NOT NULL",
    .real = "FLOAT(53)",
    .time = "TIMESTAMP WITHOUT TIME ZONE",
    .enums = true,
    .has_tables = "SELECT 1 FROM pg_tables WHERE tablename = 'studies' AND schemaname = "
                  "current_schema()",
    .has_index = "SELECT 1 FROM pg_indexes WHERE indexname = '" CHOIR__SQL_INDEX
                 "' AND schemaname = current_schema()",
    .begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    .begin_write = "BEGIN",
    .lock = "SELECT study_id, study_name FROM studies WHERE study_id = $1 AND study_name = $2 "
            "FOR UPDATE",
    .schema_lock = "SELECT pg_advisory_xact_lock(4853207)",
    .silent_s = "EXTRACT(EPOCH FROM LOCALTIMESTAMP - h.heartbeat)",
    .run = run,
    .close = close_postgres,
};

static choir_status open_postgres(
    const char *place, bool create, choir__study_backend **backend)
{
    choir_status status =
        choir__library_open(CHOIR_POSTGRES_LIBRARY, names, CHOIR_COUNT(names), &pq);
    if (status != CHOIR_OK)
        return status;
    postgres *p = choir__calloc(1, sizeof *p);
    p->sql.base.ops = &choir__backend_postgres;
    p->sql.base.place = choir__backend_public(place);
    p->sql.dialect = &dialect;
    /* SQLAlchemy's URLs, as Optuna has them, may name a driver: postgresql+psycopg2://. */
    p->url = choir__format("postgresql%s", strstr(place, "://"));
    int tries = MOST_TRIES;
    do { /* again if the connection was cut, but not if the server is not there */
        p->connected = false;
        status = choir__sql_schema(&p->sql, create);
    } while (status == CHOIR_ERR_PEER_LOST && p->connected && --tries > 0);
    if (status == CHOIR_OK)
        *backend = &p->sql.base;
    else
        choir__sql_close(&p->sql.base);
    return status;
}
#else
static choir_status open_postgres(
    const char *place, bool create, choir__study_backend **backend)
{
    (void)place, (void)create, (void)backend;
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "storage: this build has no PostgreSQL; install libpq-dev and build again");
}
#endif

const choir__study_backend_ops choir__backend_postgres = {
    .name = "postgresql",
    .most_step = INT32_MAX, /* INTEGER of PostgreSQL has 32 bits */
    .open = open_postgres,
    .list = choir__sql_list,
    .study = choir__sql_study,
    .load = choir__sql_load,
    .write = choir__sql_write,
    .close = choir__sql_close,
};
