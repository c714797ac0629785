/* Studies in an SQLite file: sqlite:FILE, sqlite:///FILE[?timeout=S].
 *
 * The file is in write-ahead mode, so other programs read it while it is written. A transaction
 * takes the right to write at its beginning and waits up to `timeout` seconds (60) for programs
 * that have it, so it never finds the file locked half-way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/number.h"
#include "tune/storage/sql.h"

#ifdef CHOIR_HAVE_SQLITE
#include <sqlite3.h>

#include "base/plugin/library.h"
#include "base/options.h"

#define CALLS(X)                                                                               \
    X(sqlite3_, open_v2)                                                                       \
    X(sqlite3_, close_v2)                                                                      \
    X(sqlite3_, busy_timeout)                                                                  \
    X(sqlite3_, prepare_v3)                                                                    \
    X(sqlite3_, bind_text)                                                                     \
    X(sqlite3_, bind_null)                                                                     \
    X(sqlite3_, step)                                                                          \
    X(sqlite3_, reset)                                                                         \
    X(sqlite3_, finalize)                                                                      \
    X(sqlite3_, column_count)                                                                  \
    X(sqlite3_, column_type)                                                                   \
    X(sqlite3_, column_text)                                                                   \
    X(sqlite3_, column_double)                                                                 \
    X(sqlite3_, changes)                                                                       \
    X(sqlite3_, errmsg)                                                                        \
    X(sqlite3_, extended_errcode)                                                              \
    X(sqlite3_, get_autocommit)                                                                \
    X(sqlite3_, db_readonly)

static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} lite;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};

enum { MOST_STATEMENTS = 64, MOST_COLUMNS = 8 };

typedef struct sqlite {
    choir__sql sql;
    sqlite3 *db;
    double timeout_s;
    bool makes; /* a file that is missing is made */
    bool opened, durable;
    struct {
        const char *text; /* statement, found by address */
        sqlite3_stmt *made;
    } statement[MOST_STATEMENTS];
    int count;
} sqlite;

/* Sets one sentence for an error of SQLite. */
static choir_status failed(const sqlite *s, int code)
{
    const char *place = s->sql.base.place;
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        if (s->opened)
            return choir__error(CHOIR_ERR_PEER_LOST,
                "%s: another program has locked the file for %g s", place, s->timeout_s);
        return choir__error(CHOIR_ERR_IO,
            "%s: another program has locked the file for %g s; end it, or wait longer with "
            "?timeout=S behind the file's name",
            place, s->timeout_s);
    case SQLITE_READONLY: return choir__error(CHOIR_ERR_IO, "%s: the file is read-only", place);
    case SQLITE_FULL: return choir__error(CHOIR_ERR_IO, "%s: the disk is full", place);
    case SQLITE_NOTADB:
        return choir__error(CHOIR_ERR_FORMAT, "%s is not an SQLite database", place);
    case SQLITE_CANTOPEN:
        return choir__error(CHOIR_ERR_IO, "cannot open %s: %s", place,
            !access(place, F_OK) ? "no right to read it"
            : s->makes           ? "no such file, or no right to make it"
                                 : "no such file");
    default: return choir__error(CHOIR_ERR_IO, "%s: %s", place, lite.errmsg(s->db));
    }
}

/* Returns the statement, which is compiled once. */
static sqlite3_stmt *prepare(sqlite *s, const choir__sql_call *call, bool *kept)
{
    *kept = !call->once;
    for (int i = 0; i < s->count && *kept; i++)
        if (s->statement[i].text == call->text)
            return s->statement[i].made;
    sqlite3_stmt *made = NULL;
    *kept = *kept && s->count < MOST_STATEMENTS;
    char *text = choir__strdup(call->text);
    for (char *c = text; *c; c++) /* $1 would be a name, ?1 is the first value */
        *c = *c == '$' ? '?' : *c;
    lite.prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, &made, NULL);
    free(text);
    if (made && *kept) {
        s->statement[s->count].text = call->text;
        s->statement[s->count++].made = made;
    }
    return made;
}

/* Passes a row on; real numbers with all their digits. */
static void give_row(const choir__sql_call *call, sqlite3_stmt *made)
{
    char digits[MOST_COLUMNS][32];
    const char *cells[MOST_COLUMNS];
    for (int i = 0; i < lite.column_count(made) && i < MOST_COLUMNS; i++) {
        cells[i] = (const char *)lite.column_text(made, i);
        if (lite.column_type(made, i) == SQLITE_FLOAT) {
            choir__number_print(
                digits[i], sizeof digits[i], "%.17g", lite.column_double(made, i));
            cells[i] = digits[i];
        }
    }
    call->row(call->arg, cells);
}

static choir_status run(choir__sql *db, choir__sql_call *call)
{
    sqlite *s = (sqlite *)(void *)db;
    bool kept;
    sqlite3_stmt *made = prepare(s, call, &kept);
    if (!made)
        return failed(s, lite.extended_errcode(s->db));
    for (int i = 0; i < call->count; i++)
        if (call->values[i])
            lite.bind_text(made, i + 1, call->values[i], -1, SQLITE_STATIC);
        else
            lite.bind_null(made, i + 1);
    int code;
    while ((code = lite.step(made)) == SQLITE_ROW)
        if (call->row)
            give_row(call, made);
    call->changed = code == SQLITE_DONE ? lite.changes(s->db) : 0;
    choir_status status =
        code == SQLITE_DONE ? CHOIR_OK : failed(s, lite.extended_errcode(s->db));
    if (kept)
        lite.reset(made);
    else
        lite.finalize(made);
    if (status == CHOIR_ERR_PEER_LOST && !lite.get_autocommit(s->db))
        (void)!choir__sql_run(db, "ROLLBACK"); /* the batch is repeated */
    return status;
}

static choir_status durable(choir__sql *db, bool on)
{
    sqlite *s = (sqlite *)(void *)db;
    if (s->durable == on)
        return CHOIR_OK;
    s->durable = on;
    return choir__sql_run(db, on ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
}

static void close_sqlite(choir__sql *db)
{
    sqlite *s = (sqlite *)(void *)db;
    for (int i = 0; i < s->count; i++)
        lite.finalize(s->statement[i].made);
    if (s->db)
        lite.close_v2(s->db);
}

static const choir__sql_dialect dialect = {
    .id = "INTEGER NOT NULL",
    .real = "FLOAT",
    .time = "DATETIME",
    .has_tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'studies'",
    .has_index = "SELECT 1 FROM sqlite_master WHERE name = '" CHOIR__SQL_INDEX "'",
    .begin_read = "BEGIN",
    .begin_write = "BEGIN IMMEDIATE",
    .silent_s = "(julianday('now') - julianday(h.heartbeat)) * 86400.0",
    .run = run,
    .durable = durable,
    .close = close_sqlite,
};

/* Divides "FILE?timeout=S" into both. */
static choir_status read_place(sqlite *s, const char *place)
{
    s->sql.base.place = choir__strdup(place);
    s->timeout_s = 60;
    char *mark = strstr(s->sql.base.place, "?timeout=");
    if (!mark)
        return CHOIR_OK;
    *mark = '\0';
    if (choir__parse_float(mark + 9, 0, 1e6, &s->timeout_s))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "storage: expected a timeout from 0 to 1000000 seconds, got '%s'", mark + 9);
}

/* Switches the file to write-ahead logging. Two processes that make a file at once may find it
 * locked here, where SQLite does not wait. */
static choir_status become_wal(sqlite *s)
{
    double until = choir__now() + s->timeout_s;
    for (;;) {
        choir_status status = choir__sql_run(&s->sql, "PRAGMA journal_mode=WAL");
        int code = status == CHOIR_OK ? SQLITE_OK : lite.extended_errcode(s->db) & 0xff;
        if (code != SQLITE_BUSY || choir__now() > until)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* Returns whether the file is a database in write-ahead mode. */
static bool has_wal_mode(const char *path)
{
    enum { VERSIONS = 18, WAL = 2 }; /* https://www.sqlite.org/fileformat.html, 1.3.3 */
    char head[VERSIONS + 1] = "";
    FILE *f = choir__file_try_stream(path);
    bool has = f && fread(head, 1, sizeof head, f) == sizeof head && head[VERSIONS] == WAL;
    if (f)
        fclose(f);
    return has;
}

/* Returns whether SQLite could not read the file as usual: in write-ahead mode it needs files
 * beside the database, which this process may not make and no other process has made. */
static bool is_sealed(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder =
        slash ? choir__format("%.*s", (int)(slash - path + 1), path) : choir__strdup(".");
    char *wal = choir__format("%s-wal", path);
    bool sealed = access(folder, W_OK) != 0 && access(wal, F_OK) != 0 && has_wal_mode(path);
    free(folder);
    free(wal);
    return sealed;
}

/* Returns the URI with which SQLite reads the file as it is; the caller frees it. */
static char *sealed_uri(const char *path)
{
    char *uri = choir__alloc(3 * strlen(path) + sizeof "file://?immutable=1"), *to = uri;
    to += sprintf(to, *path == '/' ? "file://" : "file:");
    for (; *path; path++)
        to += sprintf(to, strchr("?#%", *path) ? "%%%02X" : "%c", *path);
    strcpy(to, "?immutable=1");
    return uri;
}

/* create: to write, too. */
static choir_status connect(sqlite *s, bool create)
{
    const char *path = s->sql.base.place;
    choir_status status = choir__file_check(path);
    if (status != CHOIR_OK)
        return status;
    bool sealed = !create && is_sealed(path);
    char *uri = sealed ? sealed_uri(path) : NULL;
    int flags = sealed ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI : SQLITE_OPEN_READWRITE;
    flags |= SQLITE_OPEN_NOMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
    int code = lite.open_v2(uri ? uri : path, &s->db, flags, NULL);
    free(uri);
    if (code != SQLITE_OK)
        return failed(s, code);
    lite.busy_timeout(s->db, (int)(s->timeout_s * 1e3));
    if (!create)
        return CHOIR_OK;
    if (lite.db_readonly(s->db, "main") == 1)
        return failed(s, SQLITE_READONLY);
    return become_wal(s);
}

static choir_status open_sqlite(const char *place, bool create, choir__study_backend **backend)
{
    choir_status status =
        choir__library_open(CHOIR_SQLITE_LIBRARY, names, CHOIR_COUNT(names), &lite);
    if (status != CHOIR_OK)
        return status;
    sqlite *s = choir__calloc(1, sizeof *s);
    s->sql.base.ops = &choir__backend_sqlite;
    s->sql.dialect = &dialect;
    s->durable = true;
    s->makes = create;
    status = read_place(s, place);
    if (status == CHOIR_OK)
        status = connect(s, create);
    if (status == CHOIR_OK)
        status = choir__sql_schema(&s->sql, create);
    s->opened = status == CHOIR_OK;
    if (status == CHOIR_OK)
        *backend = &s->sql.base;
    else
        choir__sql_close(&s->sql.base);
    return status;
}
#else
static choir_status open_sqlite(const char *place, bool create, choir__study_backend **backend)
{
    (void)create, (void)backend;
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s: this build has no SQLite; install libsqlite3-dev and build again, or use "
        "journal:FILE",
        place);
}
#endif

const choir__study_backend_ops choir__backend_sqlite = {
    .name = "sqlite",
    .is_file = true,
    .most_step = CHOIR__MOST_STEP,
    .open = open_sqlite,
    .list = choir__sql_list,
    .study = choir__sql_study,
    .load = choir__sql_load,
    .write = choir__sql_write,
    .close = choir__sql_close,
};
