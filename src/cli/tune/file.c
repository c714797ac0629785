/* Study files: a search written down as JSON.
 *
 *     {
 *       "space": {"lr": "log(1e-5, 0.1)", "width": "int(32, 512, step=32)", "layers": 2},
 *       "require": ["width % 64 == 0"],
 *       "enqueue": [{"lr": 0.01, "width": 64}],
 *       "metric": ["eval_loss"],
 *       "trials": 100, "parallel": 4, "window": 8, "sampler": "tpe", "seed": 7,
 *       "command": ["choir", "train", "--lr", "{lr}"]
 *     }
 *
 * A key is an option of choir tune, with the same values, so that the table of options is the
 * only list of them; docs/study.schema.json is checked against it. Options on the command line
 * replace the file's. A search with --dir keeps its own file there. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/temp_file.h"
#include "base/named.h"
#include "base/secret.h"
#include "cli/tune/request.h"
#include "line/values.h"

/* A file that is being read. */
typedef struct reader {
    const char *path;
    const choir__line_option *options;
    choir__tune_request *r;
    choir__tune_request line; /* what the command line gave several times */
} reader;

/* --- values --- */

static choir_status expected(const reader *f, const char *key, const char *what, json_t *got)
{
    char *where = choir__format("%s: %s", f->path, key);
    choir_status status = choir__line_json_expected(where, what, got);
    free(where);
    return status;
}

/* Returns a word or a number as text, on the heap; NULL: it is neither. */
static char *text_of(const json_t *value)
{
    return json_is_boolean(value) ? NULL : choir__line_scalar_text(value);
}

static choir_status set_option(const reader *f, const choir__line_option *o)
{
    char *where = choir__format("%s: %s", f->path, o->name);
    choir_status status = choir__line_json_check(f->r->file, o, false, where);
    if (status == CHOIR_OK)
        status = choir__line_json_take(f->r->file, o, f->r, where);
    free(where);
    return status;
}

/* --- lists --- */

/* Returns the command line's distribution of a parameter, or NULL. */
static const char *space_on_line(const reader *f, const char *name)
{
    const char *text;
    size_t length = strlen(name);
    for (int i = 0; (text = choir__tune_given_next(&f->line, "space", &i));)
        if (!strncmp(text, name, length) && text[length] == '=')
            return text;
    return NULL;
}

static choir_status read_space(const reader *f, json_t *space)
{
    const char *name;
    json_t *value;
    if (!json_is_object(space))
        return expected(f, "space", "an object, a distribution by parameter", space);
    json_object_foreach(space, name, value)
    {
        char *text = text_of(value), *key = choir__format("space: %s", name);
        choir_status status = CHOIR_OK;
        if (!text)
            status = expected(f, key, "a distribution, such as \"log(1e-5, 0.1)\"", value);
        char *pair = choir__format("%s=%s", name, text ? text : "");
        const char *on_line = space_on_line(f, name);
        choir__tune_give(f->r, "space", on_line ? on_line : pair);
        free(pair);
        free(key);
        free(text);
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

/* Returns {"lr": 0.1, "opt": "sgd"} as "lr=0.1,opt=sgd", on the heap; NULL: not a trial. */
static char *trial_text(json_t *trial)
{
    char *text = NULL;
    const char *name, *comma = "";
    size_t bytes;
    json_t *value;
    bool good = true;
    FILE *out = open_memstream(&text, &bytes);
    json_object_foreach(trial, name, value)
    {
        char *word = text_of(value);
        good = good && word;
        const char *quote = !good || !strchr(word, ',') ? "" : strchr(word, '"') ? "'" : "\"";
        fprintf(out, "%s%s=%s%s%s", comma, name, quote, good ? word : "", quote);
        comma = ",";
        free(word);
    }
    fclose(out);
    if (good)
        return text;
    free(text);
    return NULL;
}

/* Reads a list of texts, or a single text; for enqueue, texts may be objects. */
static choir_status read_list(const reader *f, const char *key, json_t *list)
{
    bool trials = !strcmp(key, "enqueue"), many = json_is_array(list);
    for (size_t i = 0; i < (many ? json_array_size(list) : 1); i++) {
        json_t *value = many ? json_array_get(list, i) : list;
        char *text = trials && json_is_object(value) ? trial_text(value)
                     : json_is_string(value)         ? text_of(value)
                                                     : NULL;
        if (!text)
            return expected(
                f, key, trials ? "objects of words and numbers" : "a list of texts", value);
        choir__tune_give(f->r, key, text);
        free(text);
    }
    return CHOIR_OK;
}

static choir_status read_command(const reader *f, json_t *list)
{
    if (!json_is_array(list) || !json_array_size(list))
        return expected(f, "command", "a list of words", list);
    f->r->command = f->r->own_command =
        choir__calloc(json_array_size(list) + 1, sizeof(char *));
    for (size_t i = 0; i < json_array_size(list); i++) {
        f->r->command[i] = text_of(json_array_get(list, i));
        if (!f->r->command[i])
            return expected(f, "command", "a list of words", json_array_get(list, i));
    }
    return CHOIR_OK;
}

/* --- the file --- */

static choir_status unknown(const reader *f, const char *key)
{
    const char *names[CHOIR__LINE_MOST_OPTIONS + 1];
    choir__name_table table = {names, 0, sizeof *names, false};
    for (const choir__line_option *o = f->options; o->name; o++)
        if (o->where != CHOIR__OF_LINE)
            names[table.count++] = o->name;
    names[table.count++] = "command";
    return choir__line_json_located(f->path, choir__unknown_name(&table, "key", key));
}

static choir_status read_key(const reader *f, const char *key, json_t *value)
{
    if (!strcmp(key, "$schema"))
        return CHOIR_OK;
    if (!strcmp(key, "command"))
        return f->r->command ? CHOIR_OK : read_command(f, value);
    const choir__line_option *o = choir__line_named(f->options, key);
    if (!o || o->where == CHOIR__OF_LINE)
        return unknown(f, key);
    bool on_line = f->r->on_line >> (o - f->options) & 1;
    if (!strcmp(key, "space"))
        return read_space(f, value);
    if (o->repeated) /* the line's values follow the file's, but its metrics replace them */
        return on_line && !strcmp(key, "metric") ? CHOIR_OK : read_list(f, o->name, value);
    return on_line ? CHOIR_OK : set_option(f, o);
}

/* A parameter of the command line replaces the file's, so there must be one of a name. */
static choir_status check_line(const reader *f)
{
    const char *a, *b;
    for (int i = 0; (a = choir__tune_given_next(&f->line, "space", &i));)
        for (int k = 0; (b = choir__tune_given_next(&f->line, "space", &k)) && k < i;) {
            size_t length = strcspn(a, "=");
            if (a[length] && !strncmp(a, b, length + 1))
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "--space: parameter %.*s is on the command line twice", (int)length, a);
        }
    return CHOIR_OK;
}

/* The command line's parameters, conditions and trials come behind the file's. */
static void add_line(const reader *f)
{
    for (int i = 0; i < f->line.given_count; i++) {
        const choir__tune_given *g = &f->line.given[i];
        bool replaced = false;
        size_t length = strcspn(g->text, "=");
        for (int k = 0; k < f->r->given_count && !strcmp(g->option, "space"); k++)
            replaced = replaced || (!strcmp(f->r->given[k].option, "space") &&
                                       !strncmp(f->r->given[k].text, g->text, length + 1));
        if (!replaced)
            choir__tune_give(f->r, g->option, g->text);
    }
}

choir_status choir__tune_file_read(
    const char *path, const choir__line_option *options, choir__tune_request *r)
{
    json_error_t error;
    json_t *root = choir__file_json(path, JSON_REJECT_DUPLICATES, &error);
    if (!root && error.line < 0)
        return choir__error(CHOIR_ERR_IO, "%s: %s", path, error.text);
    reader f = {.path = path, .options = options, .r = r};
    r->file = root;
    if (!root)
        return choir__error(CHOIR_ERR_FORMAT, "%s: line %d: expected a study as JSON: %s", path,
            error.line, error.text);
    if (!json_is_object(root))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a study as a JSON object, such as {\"space\": {...}, \"command\": "
            "[...]}, got a list",
            path);
    f.line.given = r->given, f.line.given_count = r->given_count;
    r->given = NULL, r->given_count = 0;
    choir_status status = check_line(&f);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (status == CHOIR_OK)
            status = read_key(&f, key, value);
    }
    add_line(&f);
    choir__tune_request_free(&f.line);
    return status;
}

/* --- printing --- */

/* Returns a text without passwords as JSON, which knows UTF-8 alone. *status: error, argument.
 */
static json_t *printed_text(const char *key, const char *text, choir_status *status)
{
    char *shown = choir__hide_passwords(choir__strdup(text));
    json_t *string = json_string(shown);
    free(shown);
    if (!string && *status == CHOIR_OK) {
        char *clean = choir__clean(choir__strdup(text));
        *status = choir__error(CHOIR_ERR_ARGUMENT,
            "--print-study: %s: expected text in UTF-8, as JSON has it, got '%s'", key, clean);
        free(clean);
    }
    return string;
}

static json_t *printed_space(const choir__tune_request *r, choir_status *status)
{
    json_t *space = json_object();
    const char *text;
    for (int i = 0; (text = choir__tune_given_next(r, "space", &i));) {
        size_t length = strcspn(text, "=");
        char *name = choir__format("%.*s", (int)length, text);
        json_t *dist = printed_text("space", text[length] ? text + length + 1 : text, status);
        if (*status == CHOIR_OK && (!text[length] || json_object_get(space, name)))
            *status = text[length] ? choir__error(CHOIR_ERR_ARGUMENT,
                                         "parameter %s is in the space twice", name)
                                   : choir__error(CHOIR_ERR_ARGUMENT,
                                         "--space: expected NAME=DISTRIBUTION, got '%s'", text);
        if (*status == CHOIR_OK && json_object_set(space, name, dist))
            json_decref(printed_text("space", name, status));
        json_decref(dist);
        free(name);
    }
    return space;
}

static json_t *printed_list(const choir__tune_request *r, const char *key, choir_status *status)
{
    json_t *list = json_array();
    const char *text;
    for (int i = 0; (text = choir__tune_given_next(r, key, &i));)
        json_array_append_new(list, printed_text(key, text, status));
    if (!strcmp(key, "metric") && !json_array_size(list))
        json_array_append_new(list, printed_text(key, r->metric, status));
    return list;
}

/* Returns an option's value, or NULL if it has none. */
static json_t *printed(
    const choir__line_option *o, const choir__tune_request *r, choir_status *status)
{
    if (!strcmp(o->name, "space"))
        return printed_space(r, status);
    if (o->repeated)
        return printed_list(r, o->name, status);
    char *text = choir__line_text(o, (const char *)r + o->at);
    const bool words = o->type == CHOIR__STRING || o->type == CHOIR__BYTES;
    json_t *value = !text   ? NULL
                    : words ? printed_text(o->name, text, status)
                            : choir__line_json(o, text);
    free(text);
    return value;
}

/* Returns the request as the text of a study file, on the heap; NULL: *status is an error. */
static char *printed_all(
    const choir__line_option *options, const choir__tune_request *r, choir_status *status)
{
    json_t *root = json_object(), *words = json_array();
    for (const choir__line_option *o = options; o->name; o++) {
        json_t *value = o->where == CHOIR__OF_LINE ? NULL : printed(o, r, status);
        bool empty = json_is_array(value) && !json_array_size(value);
        if (value && !empty)
            json_object_set_new(root, o->name, value);
        else
            json_decref(value);
    }
    for (char *const *word = r->command; *word; word++)
        json_array_append_new(words, printed_text("command", *word, status));
    json_object_set_new(root, "command", words);
    char *text = *status == CHOIR_OK ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

choir_status choir__tune_file_print(
    const choir__line_option *options, const choir__tune_request *r)
{
    choir_status status = CHOIR_OK;
    char *text = printed_all(options, r, &status);
    if (text)
        printf("%s\n", text);
    free(text);
    return status;
}

/* --- the file of --dir --- */

choir_status choir__tune_file_keep(
    const choir__line_option *options, const choir__tune_request *r)
{
    choir_status status = CHOIR_OK;
    char *text = printed_all(options, r, &status), *path = choir__tune_file_of(r->dir);
    char *line = choir__format("%s\n", text ? text : "");
    int error = text ? choir__temp_file_write(path, line, strlen(line), false) : 0;
    if (error)
        status = choir__error(CHOIR_ERR_IO, "%s: %s", path, choir__why(error));
    free(line);
    free(path);
    free(text);
    return status;
}
