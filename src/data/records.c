/* Reads records one after another: lines of JSON, an array of JSON, or rows of a table
 * (table.c), from a file or a pipe. The reader's block of text moves on and grows only for a
 * record that is longer, so a file of any size takes little memory. */
#include "data/records.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "data/dataset.h"

/* Finds the end of the line that begins at data + next. */
static bool find_line(choir__data_records *r, char **end)
{
    size_t from = choir__max(r->next, r->searched);
    char *found = r->end > from ? memchr(r->data + from, '\n', r->end - from) : NULL;
    *end = found ? found : r->data + r->end;
    r->searched = found ? r->next : r->end;
    r->lines = 1;
    return found || r->ended;
}

/* --- records --- */

static choir_status parse_line(choir__data_records *r, char *line, char *end)
{
    if (r->text) {
        size_t bytes = (size_t)(r->data + r->next - line); /* with the line's end */
        r->nodes.count = 0;
        choir__json_add(&r->nodes,
            (choir__json){CHOIR__JSON_STRING, .nodes = 1, .text = line, .bytes = bytes});
        return CHOIR_OK;
    }
    const char *where;
    const char *wrong = choir__json_parse(&r->nodes, line, end, &where);
    if (wrong)
        r->at.column = where - line + 1;
    else if (r->nodes.node[0].type != CHOIR__JSON_OBJECT)
        wrong = "expected an object, {...}";
    return wrong ? choir__data_record_wrong(&r->at, "%s", wrong) : CHOIR_OK;
}

static bool is_empty(const choir__data_records *r, const char *line, const char *end)
{
    if (r->text)
        return false;
    if (r->table) /* a row of a single column may be blanks */
        return line == end || (end - line == 1 && *line == '\r');
    while (line < end && (*line == ' ' || *line == '\t' || *line == '\r'))
        line++;
    return line == end;
}

/* Finds the next line or row with bytes; *end NULL: no more. */
static choir_status find_record(choir__data_records *r, char **from, char **end)
{
    for (;;) {
        choir_status status = CHOIR_OK;
        while (status == CHOIR_OK &&
               !(r->table ? choir__table_find_row(r, end) : find_line(r, end)))
            status = choir__data_records_fill(r);
        if (status != CHOIR_OK)
            return status;
        *from = r->data + r->next;
        if (r->next == r->end) {
            *end = NULL;
            return CHOIR_OK;
        }
        r->next = (size_t)choir__min(*end - r->data + 1, (int64_t)r->end);
        r->behind += r->lines;
        r->at.line = r->behind - r->lines + 1;
        if (!is_empty(r, *from, *end))
            return CHOIR_OK;
    }
}

choir_status choir__data_records_next(choir__data_records *r, const choir__json **record)
{
    char *from, *end;
    *record = NULL;
    r->at.column = 0;
    choir_status status =
        r->array ? choir__array_find(r, &from, &end) : find_record(r, &from, &end);
    if (status != CHOIR_OK || !end)
        return status;
    bool head = r->table && !r->columns;
    status = r->table   ? choir__table_parse_row(r, from, end)
             : r->array ? choir__array_parse(r, from, end)
                        : parse_line(r, from, end);
    if (status != CHOIR_OK)
        return status;
    if (head)
        return choir__data_records_next(r, record);
    *record = r->nodes.node;
    return CHOIR_OK;
}

/* --- files --- */

static bool ends_in(const char *path, const char *end)
{
    size_t length = strlen(path);
    return length > strlen(end) && !strcmp(path + length - strlen(end), end);
}

bool choir__is_record_file(const char *path)
{
    return ends_in(path, ".jsonl") || ends_in(path, ".csv") || ends_in(path, ".tsv") ||
           ends_in(path, ".parquet") || choir__is_array_file(path);
}

void choir__data_records_take(choir__data_records *r, int fd, const char *name)
{
    *r = (choir__data_records){.at = {.path = name}, .fd = fd};
}

choir_status choir__data_records_look(choir__data_records *r, bool *documents)
{
    size_t at = 0;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && !r->ended && r->end < 3)
        status = choir__data_records_fill(r);
    if (status == CHOIR_OK && r->end >= 3 && !memcmp(r->data, "\xef\xbb\xbf", 3))
        r->next = 3;
    while (status == CHOIR_OK && !r->ended) {
        at = r->next;
        while (at < r->end && strchr(" \t\r\n", r->data[at]) && r->data[at])
            at++;
        if (at < r->end)
            break;
        status = choir__data_records_fill(r);
    }
    for (at = r->next; at < r->end && strchr(" \t\r\n", r->data[at]) && r->data[at];)
        at++;
    *documents = at < r->end && r->data[at] == '{';
    if (!*documents)
        r->next = 0; /* in a text each byte counts */
    r->text = !*documents;
    return status;
}

choir_status choir__data_records_open(choir__data_records *r, const char *path)
{
    choir__data_records_take(r, -1, path);
    r->at.row = ends_in(path, ".parquet");
    if (r->at.row)
        return choir__data_record_rows_open(path, &r->rows);
    r->array = ends_in(path, ".json");
    r->table = !r->array && !ends_in(path, ".jsonl");
    r->quotes = r->table && !ends_in(path, ".tsv");
    r->separator = r->quotes ? ',' : '\t';
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &r->fd);
    while (status == CHOIR_OK && !r->ended && r->end < 3)
        status = choir__data_records_fill(r);
    if (status == CHOIR_OK && r->end >= 3 && !memcmp(r->data, "\xef\xbb\xbf", 3))
        r->next = 3;
    return status;
}

void choir__data_records_close(choir__data_records *r)
{
    if (r->fd >= 0)
        close(r->fd);
    choir__data_record_rows_close(r->rows);
    for (size_t i = 0; i < r->column_count; i++)
        free(r->columns[i]);
    free(r->columns);
    choir__map_free(&r->names);
    free(r->data);
    choir__json_nodes_free(&r->nodes);
    *r = (choir__data_records){.fd = -1};
}

choir_status choir__data_records_read(const char *path, choir__data_record_fn *fn, void *arg)
{
    choir__data_records r;
    const choir__json *record;
    choir_status status = choir__data_records_open(&r, path);
    while (status == CHOIR_OK && (status = choir__data_records_next(&r, &record)) == CHOIR_OK &&
           record)
        status = fn(arg, &r.at, record);
    choir__data_records_close(&r);
    return status;
}
