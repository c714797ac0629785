/* A table: "step,time,loss,lr,..." and a line per row, with the numbers in full. A row that has
 * a new name adds a column: then the file is written again, with the column, and takes the old
 * one's place. Evaluations are rows of their own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/temp_file.h"
#include "record/lines.h"
#include "record/recorder.h"
#include "base/text.h"

typedef struct csv {
    choir__recorder base;
    choir__lines lines;
    char **columns; /* (count), the first two: step, time */
    int count;
    choir__text_buffer text; /* text of a line */
} csv;

/* Adds a field, quoted where its text demands it. */
static void put_field(choir__text_buffer *t, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        choir__text_buffer_put(t, text);
        return;
    }
    choir__text_buffer_put(t, "\"");
    for (; *text; text++)
        choir__text_buffer_add(t, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    choir__text_buffer_put(t, "\"");
}

static void add_column(csv *c, const char *name)
{
    CHOIR__GROW(c->columns, c->count);
    c->columns[c->count++] = choir__strdup(name);
}

static void put_header(csv *c)
{
    choir__text_buffer_clear(&c->text);
    for (int i = 0; i < c->count; i++) {
        choir__text_buffer_put(&c->text, i ? "," : "");
        put_field(&c->text, c->columns[i]);
    }
    choir__text_buffer_put(&c->text, "\n");
}

/* --- continuing a file --- */

/* The rows that do not stay. */
typedef struct cut {
    int64_t resume;
    int eval; /* a column of the evaluation that is done again, or 0 */
} cut;

static bool has_field(const char *line, size_t bytes, int column)
{
    const char *end = line + bytes, *at = line;
    for (; column && (at = memchr(at, ',', (size_t)(end - at))); column--)
        at++;
    return at && at < end && *at != ',';
}

static bool stays(const char *line, size_t bytes, void *arg)
{
    const cut *c = arg;
    const char *step = CHOIR__KEY(line, step);
    size_t length = strlen(step);
    bool header = bytes >= length && !strncmp(line, step, length),
         again = c->eval && has_field(line, bytes, c->eval);
    return header || strtoll(line, NULL, 10) <= c->resume - again;
}

/* Reads the columns of the header. */
static void read_columns(csv *c, char *line)
{
    choir__text_buffer field = {0};
    bool quoted = false;
    line[strcspn(line, "\r\n")] = '\0';
    for (const char *at = line;; at++) {
        if (*at == '"' && quoted && at[1] == '"')
            choir__text_buffer_add(&field, at++, 1);
        else if (*at == '"')
            quoted = !quoted;
        else if (*at && (*at != ',' || quoted))
            choir__text_buffer_add(&field, at, 1);
        else
            add_column(c, field.bytes ? field.bytes : "");
        if (!*at)
            break;
        if (*at == ',' && !quoted)
            choir__text_buffer_clear(&field);
    }
    choir__text_buffer_free(&field);
}

static bool is_regular(const csv *c)
{
    struct stat is;
    return fstat(c->lines.fd, &is) == 0 && S_ISREG(is.st_mode);
}

/* Returns whether a file begins as a table does, or is empty. A kill may have cut the header.
 */
static bool may_be_table(const char *path)
{
    static const char header[] = "step,time";
    char begin[sizeof header] = "";
    FILE *f = choir__file_try_stream(path);
    size_t bytes = f ? fread(begin, 1, strlen(header), f) : 0;
    if (f)
        fclose(f);
    return !strncmp(begin, header, bytes);
}

/* A device or a pipe has no columns, and reading it may never end. Columns of a header that a
 * kill has cut are not read: the file is cut before it, and begins again. */
static choir_status find_columns(csv *c, const char *path)
{
    if (!may_be_table(path))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s is no table that a log can continue: expected the columns step and time", path);
    char *line = NULL;
    size_t room = 0;
    FILE *f = choir__file_try_stream(path);
    ssize_t bytes = f ? getline(&line, &room, f) : 0;
    if (bytes > 0 && line[bytes - 1] == '\n')
        read_columns(c, line);
    if (f)
        fclose(f);
    free(line);
    return CHOIR_OK;
}

/* Returns a column that the rows of evaluations alone have, or 0. */
static int eval_column(const csv *c)
{
    const char *name = choir__kind_eval.name;
    const size_t length = strlen(name);
    int i = c->count - 1;
    while (i > 0 && (strncmp(c->columns[i], name, length) || c->columns[i][length] != '/'))
        i--;
    return i > 0 ? i : 0;
}

/* Writes the file again, with empty fields at the end of each line, and opens that. */
static choir_status widen(csv *c, int more)
{
    if (!is_regular(c))
        return choir__error(CHOIR_ERR_IO,
            "%s is no regular file: a table gets new columns as numbers come, and is written "
            "again then",
            c->lines.path);
    char *line = NULL, *path = choir__strdup(c->lines.path);
    size_t room = 0;
    FILE *from = choir__file_try_stream(path);
    int unread = from ? 0 : errno;
    choir__temp_file fresh;
    FILE *to = choir__temp_file_begin(&fresh, path);
    put_header(c);
    if (to)
        fwrite(c->text.bytes, 1, c->text.used, to);
    bool header = true;
    for (ssize_t n; from && to && (n = getline(&line, &room, from)) > 0; header = false) {
        if (header || line[n - 1] != '\n')
            continue;
        fwrite(line, 1, (size_t)n - 1, to);
        for (int i = 0; i < more; i++)
            fputc(',', to);
        fputc('\n', to);
    }
    unread = from && ferror(from) ? EIO : unread;
    int unwritten = choir__temp_file_end(&fresh, !unread, false);
    int error = unread ? unread : unwritten;
    if (from)
        fclose(from);
    choir_status status =
        error ? choir__record_failed(path, error) : choir__lines_close(&c->lines);
    cut all = {.resume = INT64_MAX};
    if (status == CHOIR_OK)
        status = choir__lines_open(&c->lines, path, stays, &all);
    free(line);
    free(path);
    return status;
}

choir_status choir__csv_check(const char *path)
{
    return may_be_table(path)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "log 'csv:%s': the file is no table of a log and would be replaced: choose "
                     "another one",
                     path);
}

/* --- the recorder --- */

static choir_status end(choir__recorder *base, bool good)
{
    csv *c = (csv *)base;
    (void)good;
    choir_status status = choir__lines_close(&c->lines);
    for (int i = 0; i < c->count; i++)
        free(c->columns[i]);
    free(c->columns);
    choir__text_buffer_free(&c->text);
    free(c);
    return status;
}

/* Makes the folder of the file, as other recorders make theirs. */
static choir_status make_folder(const char *place)
{
    const char *slash = strrchr(place, '/');
    if (!slash || slash == place)
        return CHOIR_OK;
    char *folder = choir__format("%.*s", (int)(slash - place), place);
    int error = choir__folders_make(folder);
    choir_status status = error ? choir__record_failed(place, error) : CHOIR_OK;
    free(folder);
    return status;
}

static choir_status open_csv(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    csv *c = choir__calloc(1, sizeof *c);
    bool is_new = start->resume < 0;
    c->base.ops = &choir__recorder_csv;
    c->lines.fd = -1;
    choir_status status = is_new ? choir__csv_check(place) : find_columns(c, place);
    cut later = {.resume = start->resume, .eval = start->evaluates_again ? eval_column(c) : 0};
    if (status == CHOIR_OK)
        status = make_folder(place);
    if (status == CHOIR_OK)
        status = choir__lines_open(&c->lines, place, is_new ? NULL : stays, &later);
    *made = &c->base;
    return status;
}

/* Returns the column of a name; `near` is where the one before was found. */
static int column_of(const csv *c, const char *name, int near)
{
    for (int i = 0; i < c->count; i++) {
        int at = (near + 1 + i) % c->count;
        if (!strcmp(c->columns[at], name))
            return at;
    }
    return -1;
}

/* Makes columns of the names that are new. */
static choir_status fit_columns(csv *c, const choir__row *row)
{
    int before = c->count, near = 1;
    if (!before) {
        add_column(c, CHOIR__KEY(line, step));
        add_column(c, CHOIR__KEY(line, time));
    }
    for (int i = 0; i < row->count; i++) {
        int at = column_of(c, row->numbers[i].name, near);
        if (at < 0)
            add_column(c, row->numbers[i].name);
        near = at < 0 ? c->count - 1 : at;
    }
    if (before == c->count)
        return CHOIR_OK;
    if (before)
        return widen(c, c->count - before);
    put_header(c);
    return choir__lines_add(&c->lines, c->text.bytes, c->text.used);
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    csv *c = (csv *)base;
    char text[64];
    choir_status status = fit_columns(c, row);
    if (status != CHOIR_OK)
        return status;
    choir__text_buffer_clear(&c->text);
    choir__number_print(text, sizeof text, "%lld,%.6f", (long long)row->step, row->time);
    choir__text_buffer_put(&c->text, text);
    for (int i = 2, at = 0; i < c->count; i++) {
        choir__text_buffer_put(&c->text, ",");
        for (int k = 0; k < row->count; k++) { /* rows are mostly in the order of columns */
            const choir__number *n = &row->numbers[(at + k) % row->count];
            if (strcmp(n->name, c->columns[i]))
                continue;
            choir__text_buffer_add(&c->text, text, (size_t)choir__number_text(n->value, text));
            at = (at + k + 1) % row->count;
            break;
        }
    }
    choir__text_buffer_put(&c->text, "\n");
    return choir__lines_add(&c->lines, c->text.bytes, c->text.used);
}

const choir__recorder_ops choir__recorder_csv = {
    .name = "csv",
    .place = "FILE",
    .help = "a table with one line per step",
    .open = open_csv,
    .step = step,
    .end = end,
};
