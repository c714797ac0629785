/* Splits tables into rows and fields, separated by commas or tabs, where a quoted field may
 * contain both and line ends. A row's end is found first: parsing removes quotes in place,
 * so a row is parsed only when all of it is in memory. */
#include <stdlib.h>
#include <string.h>

#include "data/records.h"
#include "base/utf8.h"

/* Returns the quote that ends a field, from behind its first quote; NULL: it is not there. ""
 * is a quote within the field. */
static char *closing_quote(char *at, const char *end)
{
    while (at < end && (at = memchr(at, '"', (size_t)(end - at)))) {
        if (at + 1 == end || at[1] != '"')
            return at;
        at += 2;
    }
    return NULL;
}

/* A quoted field may contain line ends. Quotes count at the beginning of a field alone. */
bool choir__table_find_row(choir__data_records *r, char **end)
{
    char *row = r->data + r->next, *stop = r->data + r->end, *at = row, *line = NULL;
    r->lines = 1;
    *end = stop;
    while (at < stop) {
        if (!line || line < at) { /* a quoted field was longer than the line */
            line = memchr(at, '\n', (size_t)(stop - at));
            line = line ? line : stop;
        }
        char *quote = r->quotes ? memchr(at, '"', (size_t)(line - at)) : NULL;
        if (!quote) {
            *end = line;
            return line < stop || r->ended;
        }
        at = quote + 1;
        if (quote > row && quote[-1] != r->separator)
            continue;
        char *close = closing_quote(at, stop);
        if (!close || close + 1 == stop) /* the next byte decides about a last quote */
            return r->ended;
        r->lines += choir__lines_in(at, close);
        at = close + 1;
    }
    return r->ended;
}

static choir_status wrong_at(
    choir__data_records *r, const char *row, const char *at, const char *why)
{
    r->at.line += choir__lines_in(row, at);
    const char *line = memrchr(row, '\n', (size_t)(at - row));
    row = line ? line + 1 : row;
    r->at.column = at - row + 1;
    return choir__data_record_wrong(&r->at, "%s", why);
}

/* Finds the field at *at, and moves *at behind what ends it; NULL: it is the row's last one.
 * The field's count is 1 if it is quoted. */
static choir_status find_field(
    choir__data_records *r, const char *row, char **at, char *end, choir__json *field)
{
    char *text = *at, *stop, *behind;
    bool quoted = r->quotes && text < end && *text == '"';
    if (quoted) {
        stop = closing_quote(++text, end);
        if (!stop)
            return wrong_at(r, row, text - 1, "a quoted field has no end");
        behind = stop + 1;
        if (behind + 1 == end && *behind == '\r')
            behind++;
        if (behind < end && *behind != r->separator)
            return wrong_at(r, row, behind, "a quote ends within a field");
    } else {
        behind = text < end ? memchr(text, r->separator, (size_t)(end - text)) : NULL;
        behind = behind ? behind : end;
        stop = behind == end && end > text && end[-1] == '\r' ? end - 1 : behind;
    }
    *at = behind < end ? behind + 1 : NULL;
    *field = (choir__json){CHOIR__JSON_STRING, .count = quoted, .nodes = 1, .text = text,
        .bytes = (size_t)(stop - text)};
    return CHOIR_OK;
}

/* Replaces "" by a quote in a quoted field, and ends the text. */
static void finish_field(choir__json *field, char *text)
{
    char *end = text + field->bytes;
    char *to = field->count ? memchr(text, '"', field->bytes) : NULL;
    for (char *from = to; from; from = from < end ? from : NULL) {
        char *rest = from + 1;
        from = memchr(rest + 1, '"', (size_t)(end - rest - 1));
        from = from ? from : end;
        memmove(to, rest, (size_t)(from - rest));
        to += from - rest;
    }
    field->bytes = (size_t)((to ? to : end) - text);
    field->count = 0;
    text[field->bytes] = '\0';
}

/* Two columns of one name would hide each other. */
static choir_status add_column(choir__data_records *r, const choir__json *field)
{
    if (*field->text && choir__map_find(&r->names, field->text) >= 0)
        return choir__data_record_wrong(
            &r->at, "expected columns with different names, got '%s' twice", field->text);
    CHOIR__GROW(r->columns, r->column_count);
    char *name = r->columns[r->column_count] = choir__strdup(field->text);
    choir__map_put(&r->names, name, (int64_t)r->column_count++);
    return CHOIR_OK;
}

static choir_status check_text(choir__data_records *r, const char *row, const char *end)
{
    uint32_t code;
    if (choir__is_utf8(row, (size_t)(end - row)))
        return CHOIR_OK;
    const char *at = row;
    for (int length; (length = choir__utf8_decode(at, end, &code));)
        at += length;
    return wrong_at(r, row, at, "expected UTF-8");
}

/* Adds the row's fields to the nodes, each behind its column's name. */
static choir_status find_fields(choir__data_records *r, char *row, char *end, size_t *fields)
{
    choir_status status = CHOIR_OK;
    for (char *at = row; status == CHOIR_OK && at; (*fields)++) {
        choir__json name = {CHOIR__JSON_STRING, .nodes = 1, .text = ""}, field;
        status = find_field(r, row, &at, end, &field);
        if (r->columns && *fields < r->column_count) {
            name.text = r->columns[*fields];
            name.bytes = strlen(name.text);
        }
        if (status == CHOIR_OK) {
            choir__json_add(&r->nodes, name);
            choir__json_add(&r->nodes, field);
        }
    }
    return status;
}

choir_status choir__table_parse_row(choir__data_records *r, char *row, char *end)
{
    bool head = !r->columns;
    size_t fields = 0;
    r->nodes.count = 0;
    choir__json_add(&r->nodes, (choir__json){.type = CHOIR__JSON_OBJECT});
    choir_status status = check_text(r, row, end);
    if (status == CHOIR_OK)
        status = find_fields(r, row, end, &fields);
    if (status == CHOIR_OK && !head && fields != r->column_count)
        status = choir__data_record_wrong(&r->at,
            "expected %zu fields, as in the first row, got %zu", r->column_count, fields);
    for (size_t i = 0; i < fields && status == CHOIR_OK; i++) {
        choir__json *field = &r->nodes.node[2 + 2 * i];
        finish_field(field, row + (field->text - row));
        if (head)
            status = add_column(r, field);
    }
    r->nodes.node[0].count = (uint32_t)fields;
    r->nodes.node[0].nodes = (uint32_t)r->nodes.count;
    return status;
}
