/* Jobs as files: see file.h. The table of options says which keys there are and of which
 * type, so an option is stated once. A checkpoint's record (record.c) is such a file, too;
 * older versions wrote its values as texts. */
#include "job/document/file.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/named.h"
#include "base/secret.h"
#include "job/document/values.h"
#include "line/say.h"
#include "device/cpu/context.h"

enum { VERSION = 1 };

/* Keys beside the options, and which type of JSON each has. */
static const struct {
    const char *name;
    json_type type;
    const char *expected, *about;
} members[] = {
    {"$schema", JSON_STRING, "a text", "where the schema is; of no meaning to Choir"},
    {"format", JSON_STRING, "\"choir-job\"", "says that the file is a job"},
    {"version", JSON_INTEGER, "1", "of the form"},
    {"data", JSON_STRING, "a text", "DATA of the command line"},
    {"data_sha256", JSON_STRING, "a text",
        "of the data; the job refuses data that have changed. Empty: unknown"},
    {"options", JSON_OBJECT, "an object", "options of choir train, without their dashes"},
    {"device", JSON_STRING, "a text", "kind of the devices, in the record of a checkpoint"},
    {"classes", JSON_ARRAY, "a list", "names of a classifier's classes, as the data have them"},
    {"run", JSON_OBJECT, "an object", "of a run's record: its id, the build and the machine"},
};

/* The options that say where a run leaves its results, and whether it only prints. */
static const char *const places[] = {"save", "run", "log", "trace", "resume"};

static bool is_place(const char *name)
{
    for (size_t i = 0; i < CHOIR_COUNT(places); i++)
        if (!strcmp(places[i], name))
            return true;
    return false;
}

/* Returns whether the option asks for something of a place that the record of a run has and the
 * job does not: a job that is run again leaves its results where the command line says. */
static bool lacks_place(const choir__job *j, const char *name)
{
    return (!strcmp(name, "no-copy") && !choir__job_was_given(j, "save")) ||
           (!strcmp(name, "log-histograms") && !choir__job_has_histograms(j));
}

/* Returns whether a job file may have the option. */
static bool is_of_files(const choir__cli_option *o)
{
    return strcmp(o->name, "print-job") != 0 && strcmp(o->name, "page") != 0;
}

static const choir__cli_option *find_option(const char *name)
{
    for (const choir__cli_option *o = choir__job_options; o->name; o++)
        if (is_of_files(o) && !strcmp(o->name, name))
            return o;
    return NULL;
}

/* --- writing --- */

/* Returns the destinations of the logs without passwords: the file is read by others. */
static json_t *list_of(const char *lines)
{
    json_t *list = json_array();
    char *all = choir__hide_passwords(choir__strdup(lines)), *rest = all, *line;
    while ((line = strsep(&rest, "\n")) && *line)
        json_array_append_new(list, json_string(line));
    free(all);
    return list;
}

/* Returns the model so that the job can be run from any folder. */
static json_t *model_of(const choir__job *j)
{
    char *path = j->model.given ? choir__job_path(j->model.given) : NULL;
    json_t *value = json_string(path ? path : j->model.info.config);
    free(path);
    return value;
}

static json_t *value_of(const choir__job *j, const choir__cli_option *o)
{
    if (!strcmp(o->name, "log"))
        return j->records.logs ? list_of(j->records.logs) : NULL;
    return !strcmp(o->name, "model") ? model_of(j) : choir__job_full_value(j, o);
}

static json_t *options_of(const choir__job *j)
{
    json_t *options = json_object();
    for (const choir__cli_option *o = choir__job_options; o->name; o++) {
        json_t *value =
            is_of_files(o) && !choir__job_follows(j, o->name) ? value_of(j, o) : NULL;
        if (value)
            json_object_set_new(options, o->name, value);
    }
    return options;
}

/* The build and the machine on which a run began. */
static json_t *run_of(const char *id)
{
    struct utsname u = {.nodename = ""};
    char started[32];
    time_t now = time(NULL);
    uname(&u);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:i}}", "id", id,
        "started", started, "build", "choir", CHOIR_VERSION, "products",
        choir__cpu_multiplier(), "isa", choir_cpu_isa(), "machine", "host", u.nodename,
        "system", u.sysname, "processor", u.machine, "cores",
        (int)sysconf(_SC_NPROCESSORS_ONLN));
}

char *choir__job_text(const choir__job *j, const char *id)
{
    json_t *root = json_pack("{s:s, s:i}", "format", "choir-job", "version", VERSION);
    char *place = j->data.path ? choir__job_place(j->data.path) : NULL;
    if (place)
        json_object_set_new(root, "data", json_string(place));
    free(place);
    json_object_set_new(root, "data_sha256", json_string(j->data.sha256));
    json_object_set_new(root, "options", options_of(j));
    choir__record_classes(root, &j->model.classes);
    if (id)
        json_object_set_new(root, "run", run_of(id));
    char *text = choir__job_exact_text(root);
    json_decref(root);
    return text;
}

/* --- reading --- */

bool choir__job_is_file(const char *path)
{
    static char begin[1 << 16];
    size_t length = path ? strlen(path) : 0;
    if (length < 5 || strcmp(path + length - 5, ".json"))
        return false;
    FILE *f = choir__file_try_stream(path);
    if (!f) /* a FIFO or a device cannot be looked at: as a job, it is refused */
        return errno == ENOTSUP;
    size_t bytes = fread(begin, 1, sizeof begin - 1, f);
    fclose(f);
    begin[bytes] = '\0';
    bool object = begin[strspn(begin, " \t\r\n")] == '{';
    return object && (strstr(begin, "\"choir-job\"") || strstr(begin, "\"options\""));
}

/* Describes a value for messages; a text as it stands, cut to what fits. */
static const char *kind_of(const json_t *value, char text[80])
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: snprintf(text, 80, "\"%.60s\"", json_string_value(value)); return text;
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_NULL: return "null";
    default: return json_is_true(value) ? "true" : "false";
    }
}

static choir_status unknown_option(const char *path, const char *name)
{
    const char *near = NULL;
    int best = INT_MAX;
    for (const choir__cli_option *o = choir__job_options; o->name; o++)
        if (is_of_files(o) && choir__is_nearer(o->name, name, &best))
            near = o->name;
    return choir__error(CHOIR_ERR_ARGUMENT, "%s: unknown option '%s'%s%s%s", path, name,
        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Returns whether the file is the record of a checkpoint that an older version wrote: all of
 * its values are texts. */
static bool has_texts_alone(const json_t *root)
{
    const json_t *options = json_object_get(root, "options");
    const char *name;
    json_t *value;
    bool texts = json_object_get(root, "data_sha256") && json_object_get(options, "model") &&
                 json_object_get(options, "seed") && json_object_get(options, "microbatches");
    json_object_foreach((json_t *)(uintptr_t)options, name, value)
    {
        texts &= json_is_string(value);
    }
    return texts;
}

/* Returns the text that the command line would have, for jansson's memory of strings and
 * memory that the caller frees in *made; NULL: the value has another type. texts: all values
 * are texts. */
static const char *text_of(
    const choir__cli_option *o, const json_t *value, bool texts, char **made)
{
    bool number = o->type == CHOIR__INT || o->type == CHOIR__BYTES || o->type == CHOIR__FLOAT;
    *made = NULL;
    if (json_is_string(value) && (texts || (!number && o->type != CHOIR__FLAG)))
        return json_string_value(value);
    if (o->type == CHOIR__FLAG && json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (number && json_is_integer(value))
        *made = choir__format("%lld", (long long)json_integer_value(value));
    else if (number && json_is_real(value))
        *made = choir__format("%.17g", json_real_value(value));
    return *made;
}

static choir_status wrong_type(
    const char *path, const choir__cli_option *o, const json_t *value)
{
    char expected[CHOIR__EXPECTED_TEXT], got[80];
    choir__option option = {o->name, o->type, NULL, o->low, o->high};
    return choir__error(CHOIR_ERR_ARGUMENT, "%s: option '%s': expected %s, got %s", path,
        o->name,
        o->type == CHOIR__FLAG     ? "true or false"
        : o->type == CHOIR__STRING ? "a text"
                                   : choir__option_expected(&option, expected),
        kind_of(value, got));
}

/* Puts the file and the option before the message of a value that is not taken. */
static choir_status wrong_value(
    const char *path, const choir__cli_option *o, choir_status status)
{
    char *why = choir__strdup(choir_error_message());
    choir__error(status, "%s: option '%s': %s", path, o->name, why);
    free(why);
    return status;
}

/* --log: a text, or a list of texts. */
static choir_status take_logs(
    choir__job *j, const choir__cli_option *o, const char *path, const json_t *value)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(one))
            return wrong_type(path, o, one);
        choir_status status = choir__job_add_log(j, json_string_value(one));
        if (status != CHOIR_OK)
            return wrong_value(path, o, status);
    }
    return CHOIR_OK;
}

static choir_status take(choir__job *j, const char *path, const choir__cli_option *o,
    const json_t *value, bool texts)
{
    char *made;
    if (!strcmp(o->name, "log"))
        return take_logs(j, o, path, value);
    const char *text = text_of(o, value, texts, &made);
    if (!text)
        return wrong_type(path, o, value);
    choir_status status = choir__cli_set(o, (char *)j + o->at, text);
    if (status != CHOIR_OK)
        wrong_value(path, o, status);
    free(made);
    return status;
}

/* Returns whether the command line names another kind of optimizer than the file, whose weight
 * decay then does not count. */
static bool has_other_optimizer(const choir__job *j, const json_t *root)
{
    const char *was =
        json_string_value(json_object_get(json_object_get(root, "options"), "optimizer"));
    if (!was || !choir__job_was_given(j, "optimizer"))
        return false;
    size_t n = strcspn(was, ":");
    return n != strcspn(j->optim.optimizer, ":") || strncmp(was, j->optim.optimizer, n) != 0;
}

static choir_status take_options(choir__job *j, const char *path, const json_t *root)
{
    bool recorded = json_object_get(root, "run") != NULL, texts = has_texts_alone(root);
    uint64_t given[2] = {0};
    const char *name;
    json_t *value;
    choir_status status = CHOIR_OK;
    json_object_foreach(json_object_get(root, "options"), name, value)
    {
        const choir__cli_option *o = find_option(name);
        if (!o)
            return unknown_option(path, name);
        if (choir__job_was_given(j, name) || choir__job_is_displaced(j, name) ||
            (recorded && (is_place(name) || lacks_place(j, name))) ||
            (!strcmp(name, "weight-decay") && has_other_optimizer(j, root)))
            continue;
        status = take(j, path, o, value, texts);
        if (status != CHOIR_OK)
            return status;
        int64_t row = o - choir__job_options;
        given[row / 64] |= UINT64_C(1) << row % 64;
    }
    if (choir__job_was_given(j, "steps")) /* instead of the file's epochs */
        j->training.epochs = 0;
    j->given[0] |= given[0];
    j->given[1] |= given[1];
    return CHOIR_OK;
}

static choir_status check_members(const char *path, const json_t *root)
{
    char got[80];
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)root, name, value)
    {
        size_t at = 0;
        const char *near = NULL;
        int best = INT_MAX;
        for (; at < CHOIR_COUNT(members) && strcmp(members[at].name, name); at++)
            if (choir__is_nearer(members[at].name, name, &best))
                near = members[at].name;
        if (at == CHOIR_COUNT(members))
            return choir__error(CHOIR_ERR_ARGUMENT, "%s: unknown key '%s'%s%s%s", path, name,
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        if (json_typeof(value) != members[at].type)
            return choir__error(CHOIR_ERR_ARGUMENT, "%s: key '%s': expected %s, got %s", path,
                name, members[at].expected, kind_of(value, got));
    }
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, "choir-job"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected \"format\": \"choir-job\", got '%s'", path, format ? format : "");
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    return version == VERSION
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "%s: expected \"version\": %d, got %lld",
                     path, VERSION, (long long)version);
}

int choir__job_read_file(choir__job *j, const char *path)
{
    json_error_t why;
    j->document.file = choir__file_json(path, JSON_REJECT_DUPLICATES, &why);
    choir_status status = CHOIR_OK;
    if (j->document.file)
        status = check_members(path, j->document.file);
    else if (why.line < 0)
        status = choir__error(CHOIR_ERR_IO, "%s: %s", path, why.text);
    else
        status = choir__error(
            CHOIR_ERR_ARGUMENT, "%s:%d:%d: %s", path, why.line, why.column, why.text);
    if (status == CHOIR_OK)
        status = take_options(j, path, j->document.file);
    if (status != CHOIR_OK)
        return choir__cli_usage(j->command, "%s", choir_error_message());
    j->document.path = path;
    if (!j->data.path) {
        j->data.path = json_string_value(json_object_get(j->document.file, "data"));
        j->document.sha256 =
            json_string_value(json_object_get(j->document.file, "data_sha256"));
    }
    return CHOIR__EXIT_OK;
}

/* --- the schema --- */

static json_t *schema_of_option(const choir__cli_option *o)
{
    bool whole = o->type == CHOIR__INT || o->type == CHOIR__BYTES;
    if (!strcmp(o->name, "log"))
        return json_pack("{s:s, s:s, s:{s:s}}", "description", o->help, "type", "array",
            "items", "type", "string");
    json_t *schema = json_pack("{s:s, s:s}", "description", o->help, "type",
        o->type == CHOIR__FLAG    ? "boolean"
        : whole                   ? "integer"
        : o->type == CHOIR__FLOAT ? "number"
                                  : "string");
    if (whole || o->type == CHOIR__FLOAT) {
        json_object_set_new(schema, "minimum",
            o->low == floor(o->low) ? json_integer((json_int_t)o->low) : json_real(o->low));
        if (o->high < 1e12)
            json_object_set_new(schema, "maximum",
                o->high == floor(o->high) ? json_integer((json_int_t)o->high)
                                          : json_real(o->high));
    }
    if (o->preset) {
        char *end;
        double x = strtod(o->preset, &end);
        bool number = whole || o->type == CHOIR__FLOAT;
        json_object_set_new(schema, "default",
            !number ? json_string(o->preset)
            : whole ? json_integer((json_int_t)x)
                    : json_real(x));
    }
    if (o->strict) {
        json_t *choices = json_array();
        for (size_t i = 0; o->choices(i); i++)
            json_array_append_new(choices, json_string(o->choices(i)));
        json_object_set_new(schema, "enum", choices);
    }
    return schema;
}

static json_t *schema_of_member(size_t i)
{
    static const char *const types[] = {[JSON_OBJECT] = "object",
        [JSON_ARRAY] = "array",
        [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer"};
    json_t *schema = json_pack(
        "{s:s, s:s}", "description", members[i].about, "type", types[members[i].type]);
    if (!strcmp(members[i].name, "format"))
        json_object_set_new(schema, "const", json_string("choir-job"));
    if (!strcmp(members[i].name, "version"))
        json_object_set_new(schema, "const", json_integer(VERSION));
    return schema;
}

void choir__job_print_schema(void)
{
    json_t *options = json_object(), *keys = json_object();
    for (const choir__cli_option *o = choir__job_options; o->name; o++)
        if (is_of_files(o))
            json_object_set_new(options, o->name, schema_of_option(o));
    for (size_t i = 0; i < CHOIR_COUNT(members); i++)
        json_object_set_new(keys, members[i].name, schema_of_member(i));
    json_t *place = json_object_get(keys, "options");
    json_object_set_new(place, "properties", options);
    json_object_set_new(place, "additionalProperties", json_false());
    json_t *root = json_pack("{s:s, s:s, s:s, s:o, s:[s,s], s:b}", "$schema",
        "https://json-schema.org/draft/2020-12/schema", "title", "A job of choir train", "type",
        "object", "properties", keys, "required", "format", "version", "additionalProperties",
        0);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15));
    printf("\n");
    json_decref(root);
}
