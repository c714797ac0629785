/* Writes jobs as JSON, and checks the JSON of jobs. Every key, type and range comes from the
 * table of options (job/options.c), so an option appears in job files, run folders, records
 * of checkpoints and the schema as soon as it has a row. */
#include "job/document/document.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/plugin/build_id.h"
#include "base/named.h"
#include "base/secret.h"
#include "data/text/corpus.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"
#include "line/say.h"
#include "line/values.h"

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
    {"arithmetic", JSON_INTEGER, "a number",
        "of the build's way to add on processors, in the record of a checkpoint; none: 1"},
    {"documents", JSON_INTEGER, "a number",
        "of the build's way to encode documents, in the record of a checkpoint; none: 1"},
    {"classes", JSON_ARRAY, "a list", "names of a classifier's classes, as the data have them"},
    {"window", JSON_OBJECT, "an object",
        "numbers of the last steps for --on-spike, in the record of a checkpoint"},
    {"run", JSON_OBJECT, "an object", "of a run's record: its id, the build and the machine"},
};

/* Returns the option of documents that has this name, or NULL. */
static const choir__line_option *find(const char *name)
{
    const choir__line_option *o = choir__line_named(choir__job_options, name);
    return o && o->where != CHOIR__OF_LINE ? o : NULL;
}

/* --- writing --- */

char *choir__job_option_text(
    const choir__job *j, const choir__line_option *o, choir__line_form form)
{
    char *text = o->written ? o->written(j, form) : NULL;
    return text ? text : choir__line_text(o, (const char *)j + o->at);
}

const choir__line_option *choir__job_filled_by(const choir__job *j, const choir__line_option *o)
{
    const choir__line_option *by = o->filled_by ? find(o->filled_by) : NULL;
    char *text = by ? choir__line_text(by, (const char *)j + by->at) : NULL;
    free(text);
    return text ? by : NULL;
}

/* Returns the destinations of the logs, the values of the one option that is repeated, so that
 * they are found from any folder, and without passwords: the file is read by others. */
static json_t *list_of(const choir__job_records *r)
{
    if (!r->logs)
        return NULL;
    json_t *list = json_array();
    char *all = choir__hide_passwords(choir__strdup(r->logs)), *rest = all, *line;
    while ((line = strsep(&rest, "\n")) && *line) {
        char *dest = choir__job_destination(line);
        json_array_append_new(list, json_string(dest));
        free(dest);
    }
    free(all);
    return list;
}

/* A record has neither flags that are off nor values that follow from others of its options. */
static json_t *value_of(const choir__job *j, const choir__line_option *o, choir__line_form form)
{
    const bool brief = form == CHOIR__BRIEF;
    const choir__line_option *by = choir__job_filled_by(j, o);
    if (brief ? !o->recorded : o->where == CHOIR__OF_LINE)
        return NULL;
    if (by && (!brief || by->recorded))
        return NULL;
    if (o->repeated)
        return list_of(&j->records);
    char *text = choir__job_option_text(j, o, form);
    json_t *value = brief && !text ? NULL : choir__line_json(o, text);
    free(text);
    return value;
}

static json_t *options_of(const choir__job *j, choir__line_form form)
{
    json_t *options = json_object();
    for (const choir__line_option *o = choir__job_options; o->name; o++) {
        json_t *value = value_of(j, o, form);
        if (value)
            json_object_set_new(options, o->name, value);
    }
    return options;
}

char *choir__job_device(const choir__job_placement *p)
{
    const char *name = p->device_names[0];
    return choir__format("%.*s", (int)strcspn(name, ":"), name);
}

/* The build and the machine on which a run began. */
static json_t *run_of(const char *id)
{
    struct utsname u = {.nodename = ""};
    char started[32];
    time_t now = time(NULL);
    uname(&u);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:i}}", "id", id,
        "started", started, "build", "choir", CHOIR_VERSION, "id", choir__build_id(),
        "products", choir__cpu_multiplier(), "isa", choir_cpu_isa(), "machine", "host",
        u.nodename, "system", u.sysname, "processor", u.machine, "cores",
        (int)sysconf(_SC_NPROCESSORS_ONLN));
}

char *choir__job_exact_text(const json_t *root)
{
    char *text = NULL;
    for (size_t digits = 15; digits <= 17; digits++) {
        free(text);
        text = json_dumps(
            root, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits));
        json_t *back = json_loads(text, 0, NULL);
        bool same = json_equal(back, root);
        json_decref(back);
        if (same)
            break;
    }
    return text;
}

static char *write_job(const choir__job *j, choir__line_form form, const char *id)
{
    json_t *root = json_pack("{s:s, s:i}", "format", "choir-job", "version", VERSION);
    char *place = j->data.path ? choir__job_data_path(j->data.path) : NULL,
         *device = choir__job_device(&j->placement);
    if (place)
        json_object_set_new(root, "data", json_string(place));
    json_object_set_new(root, "data_sha256", json_string(j->data.sha256));
    json_object_set_new(root, "options", options_of(j, form));
    if (form == CHOIR__BRIEF) {
        json_object_set_new(root, "device", json_string(device));
        json_object_set_new(root, "arithmetic", json_integer(CHOIR__ARITHMETIC));
        json_object_set_new(root, "documents", json_integer(CHOIR__DOCUMENTS));
    }
    choir__job_record_classes(root, &j->model.classes);
    if (id)
        json_object_set_new(root, "run", run_of(id));
    char *text = choir__job_exact_text(root);
    json_decref(root);
    free(device);
    free(place);
    return text;
}

char *choir__job_text(const choir__job *j, const char *id)
{
    return write_job(j, CHOIR__COMPLETE, id);
}

char *choir__job_record_text(const choir__job *j)
{
    return write_job(j, CHOIR__BRIEF, NULL);
}

/* --- reading: job files --- */

/* kind: "option" or "key"; near: the name that may be meant, or NULL. */
static choir_status unknown(
    const char *path, const char *kind, const char *name, const char *near)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "%s: unknown %s '%s'%s%s%s", path, kind, name,
        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

choir_status choir__job_unknown_option(const char *path, const char *name)
{
    const char *near = NULL;
    int best = INT_MAX;
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (o->where != CHOIR__OF_LINE && choir__is_nearer(o->name, name, &best))
            near = o->name;
    return unknown(path, "option", name, near);
}

static choir_status check_member(const char *path, const char *name, const json_t *value)
{
    size_t at = 0;
    const char *near = NULL;
    int best = INT_MAX;
    for (; at < CHOIR_COUNT(members) && strcmp(members[at].name, name); at++)
        if (choir__is_nearer(members[at].name, name, &best))
            near = members[at].name;
    if (at == CHOIR_COUNT(members))
        return unknown(path, "key", name, near);
    if (json_typeof(value) == members[at].type)
        return CHOIR_OK;
    char *where = choir__format("%s: key '%s'", path, name);
    choir_status status = choir__line_json_expected(where, members[at].expected, value);
    free(where);
    return status;
}

static bool has_format(const json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    return format && !strcmp(format, "choir-job");
}

static bool has_version(const json_t *root)
{
    return json_integer_value(json_object_get(root, "version")) == VERSION;
}

static choir_status check_members(const char *path, json_t *root)
{
    const char *name, *format = json_string_value(json_object_get(root, "format"));
    json_t *value;
    choir_status status = CHOIR_OK;
    json_object_foreach(root, name, value)
    {
        status = status == CHOIR_OK ? check_member(path, name, value) : status;
    }
    if (status != CHOIR_OK)
        return status;
    if (!format)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: missing \"format\": \"choir-job\"", path);
    if (!has_format(root))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected \"format\": \"choir-job\", got '%s'", path, format);
    if (!json_object_get(root, "version"))
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: missing \"version\": %d", path, VERSION);
    return has_version(root)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "%s: expected \"version\": %d, got %lld",
                     path, VERSION,
                     (long long)json_integer_value(json_object_get(root, "version")));
}

/* Returns whether the file is the record of a checkpoint that an older version wrote: all of
 * its values are texts. */
static bool has_texts_alone(const json_t *root)
{
    json_t *options = json_object_get(root, "options"), *value;
    const char *name;
    bool texts = json_object_get(root, "data_sha256") && json_object_get(options, "model") &&
                 json_object_get(options, "seed") && json_object_get(options, "microbatches");
    json_object_foreach(options, name, value)
    {
        texts &= json_is_string(value);
    }
    return texts;
}

static choir_status check_options(const char *path, const json_t *root)
{
    json_t *options = json_object_get(root, "options"), *value;
    const bool texts = has_texts_alone(root);
    const char *name;
    choir_status status = CHOIR_OK;
    json_object_foreach(options, name, value)
    {
        const choir__line_option *o = find(name);
        char *where = choir__format("%s: option '%s'", path, name);
        if (status == CHOIR_OK && !o)
            status = choir__job_unknown_option(path, name);
        else if (status == CHOIR_OK && !o->repeated)
            status = choir__line_json_check(options, o, texts, where);
        free(where);
    }
    return status;
}

choir_status choir__job_check_document(const char *path, json_t *root)
{
    choir_status status = check_members(path, root);
    return status == CHOIR_OK ? check_options(path, root) : status;
}

/* --- reading: records --- */

json_t *choir__job_read_record(const char *text)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *value;
    json_t *options = json_object_get(root, "options");
    const char *name;
    bool good = has_format(root) && has_version(root) && json_is_object(options);
    json_object_foreach(options, name, value)
    {
        good = good && choir__line_json_text(options, name);
    }
    if (good)
        return root;
    json_decref(root);
    return NULL;
}

choir__job choir__job_of_record(const char *command, const json_t *record)
{
    choir__job job = choir__job_new(command);
    const json_t *options = json_object_get(record, "options");
    for (const choir__line_option *o = choir__job_options; o->name; o++) {
        const char *was = json_string_value(json_object_get(options, o->name));
        const char *before = o->unrecorded ? o->unrecorded() : NULL;
        const char *text = was ? was : before ? before : o->preset;
        if (o->recorded && text)
            (void)!choir__line_set(o, (char *)&job + o->at, text);
    }
    return job;
}

/* --- the schema --- */

/* Returns a number of the table as JSON. */
static json_t *number(const choir__line_option *o, double x)
{
    const bool real = o->type == CHOIR__FLOAT && x != floor(x);
    return real ? json_real(x) : json_integer((json_int_t)x);
}

static json_t *schema_of_option(const choir__line_option *o)
{
    const bool counted = o->type == CHOIR__INT || o->type == CHOIR__BYTES,
               numeric = counted || o->type == CHOIR__FLOAT;
    if (o->repeated)
        return json_pack("{s:s, s:s, s:{s:s}}", "description", o->help, "type", "array",
            "items", "type", "string");
    json_t *schema = json_pack("{s:s, s:s}", "description", o->help, "type",
        o->type == CHOIR__FLAG ? "boolean"
        : counted              ? "integer"
        : numeric              ? "number"
                               : "string");
    if (o->type == CHOIR__BYTES) /* or "500M" */
        json_object_set_new(schema, "type", json_pack("[s,s]", "integer", "string"));
    if (numeric)
        json_object_set_new(schema, "minimum", number(o, o->low));
    if (numeric && o->high < 1e12)
        json_object_set_new(schema, "maximum", number(o, o->high));
    if (o->preset)
        json_object_set_new(schema, "default", choir__line_json(o, o->preset));
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
    return json_pack(
        "{s:s, s:s}", "description", members[i].about, "type", types[members[i].type]);
}

void choir__job_print_schema(void)
{
    json_t *options = json_object(), *keys = json_object();
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (o->where != CHOIR__OF_LINE)
            json_object_set_new(options, o->name, schema_of_option(o));
    for (size_t i = 0; i < CHOIR_COUNT(members); i++)
        json_object_set_new(keys, members[i].name, schema_of_member(i));
    json_object_set_new(json_object_get(keys, "format"), "const", json_string("choir-job"));
    json_object_set_new(json_object_get(keys, "version"), "const", json_integer(VERSION));
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
