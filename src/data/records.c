/* Reading of records: lines of JSON, and rows of comma- or tab-separated fields. */
#include "data/records.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

enum { FILE_LIMIT = 1 << 30 };

choir_status choir__record_wrong(const choir__record_at *at, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return choir__error(
        CHOIR_ERR_FORMAT, "%s, line %lld: %s", at->path, (long long)at->line, text);
}

/* --- lines of JSON --- */

static choir_status read_lines(
    choir__record_at *at, const char *data, size_t bytes, choir__record_fn *fn, void *arg)
{
    choir_status status = CHOIR_OK;
    for (const char *line = data, *next; status == CHOIR_OK && line < data + bytes;
         line = next) {
        const char *end = memchr(line, '\n', (size_t)(data + bytes - line));
        end = end ? end : data + bytes;
        next = end + 1;
        at->line++;
        if (strspn(line, " \t\r") >= (size_t)(end - line))
            continue;
        json_error_t error;
        json_t *record = json_loadb(line, (size_t)(end - line), 0, &error);
        if (!record)
            status = choir__record_wrong(at, "%s", error.text);
        else if (!json_is_object(record))
            status = choir__record_wrong(at, "expected an object, {...}");
        else
            status = fn(arg, at, record);
        json_decref(record);
    }
    return status;
}

/* --- rows of fields --- */

typedef struct table {
    choir__record_at at;
    const char *next, *end;
    char separator;
    bool quotes;
    char *field; /* room for the whole file */
    json_t *columns;
} table;

/* Reads a quoted field behind its first quote: "" is a quote. */
static choir_status read_quoted(table *t, size_t *length, int64_t *lines)
{
    for (; t->next < t->end; t->next++) {
        if (*t->next == '"' && (t->next + 1 == t->end || t->next[1] != '"')) {
            t->next++;
            return CHOIR_OK;
        }
        t->next += *t->next == '"';
        *lines += *t->next == '\n';
        t->field[(*length)++] = *t->next;
    }
    return choir__record_wrong(&t->at, "a quoted field has no end");
}

/* Reads a field and what ends it; *last: it is the row's last one. */
static choir_status read_field(table *t, json_t **value, bool *last, int64_t *lines)
{
    size_t length = 0;
    if (t->quotes && t->next < t->end && *t->next == '"') {
        t->next++;
        choir_status status = read_quoted(t, &length, lines);
        if (status != CHOIR_OK)
            return status;
    } else {
        for (; t->next < t->end && *t->next != t->separator && *t->next != '\n'; t->next++)
            t->field[length++] = *t->next;
        if (length && t->field[length - 1] == '\r' && t->next < t->end && *t->next == '\n')
            length--;
    }
    if (t->next < t->end && *t->next == '\r')
        t->next++; /* behind a quote */
    *last = t->next == t->end || *t->next == '\n';
    if (!*last && *t->next != t->separator)
        return choir__record_wrong(&t->at, "a quote ends within a field");
    t->next += t->next < t->end;
    *value = json_stringn(t->field, length);
    return *value ? CHOIR_OK : choir__record_wrong(&t->at, "expected UTF-8");
}

/* Reads a row of fields into *row, an array. */
static choir_status read_row(table *t, json_t **row, int64_t *lines)
{
    bool last = false;
    choir_status status = CHOIR_OK;
    *row = json_array();
    *lines = 1;
    while (status == CHOIR_OK && !last) {
        json_t *value = NULL;
        status = read_field(t, &value, &last, lines);
        if (status == CHOIR_OK)
            json_array_append_new(*row, value);
    }
    return status;
}

static choir_status give_row(const table *t, const json_t *row, choir__record_fn *fn, void *arg)
{
    size_t fields = json_array_size(row), columns = json_array_size(t->columns);
    if (fields != columns)
        return choir__record_wrong(
            &t->at, "expected %zu fields, as in the first row, got %zu", columns, fields);
    json_t *record = json_object();
    for (size_t i = 0; i < fields; i++)
        json_object_set(
            record, json_string_value(json_array_get(t->columns, i)), json_array_get(row, i));
    choir_status status = fn(arg, &t->at, record);
    json_decref(record);
    return status;
}

static choir_status read_table(table *t, choir__record_fn *fn, void *arg)
{
    choir_status status = CHOIR_OK;
    int64_t lines = 0;
    t->at.line = 1;
    while (status == CHOIR_OK && t->next < t->end) {
        json_t *row = NULL;
        if (*t->next == '\n' ||
            (*t->next == '\r' && t->end - t->next > 1 && t->next[1] == '\n')) {
            t->next += *t->next == '\r' ? 2 : 1;
            t->at.line++;
            continue;
        }
        status = read_row(t, &row, &lines);
        if (status == CHOIR_OK && !t->columns)
            t->columns = json_incref(row);
        else if (status == CHOIR_OK)
            status = give_row(t, row, fn, arg);
        json_decref(row);
        t->at.line += lines;
    }
    return status;
}

/* --- files --- */

static bool ends_in(const char *path, const char *end)
{
    size_t length = strlen(path);
    return length > strlen(end) && !strcmp(path + length - strlen(end), end);
}

bool choir__is_record_file(const char *path)
{
    return ends_in(path, ".jsonl") || ends_in(path, ".csv") || ends_in(path, ".tsv");
}

choir_status choir__records_read(const char *path, choir__record_fn *fn, void *arg)
{
    char *data = NULL;
    size_t bytes = 0;
    choir_status status = choir__read_file(path, FILE_LIMIT, &data, &bytes);
    if (status != CHOIR_OK)
        return status;
    size_t mark = bytes >= 3 && !memcmp(data, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (ends_in(path, ".jsonl")) {
        choir__record_at at = {path, 0};
        status = read_lines(&at, data + mark, bytes - mark, fn, arg);
    } else {
        bool tabs = ends_in(path, ".tsv");
        table t = {.at = {path, 0},
            .next = data + mark,
            .end = data + bytes,
            .separator = tabs ? '\t' : ',',
            .quotes = !tabs,
            .field = choir__alloc(bytes + 1)};
        status = read_table(&t, fn, arg);
        json_decref(t.columns);
        free(t.field);
    }
    free(data);
    return status;
}
