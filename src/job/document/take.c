/* Decides which values of a document a job takes, and takes them. The command line always
 * wins, also over values that belong to another optimizer, schedule or the like than the one
 * it names; a record's place (devices, ranks) is left out, because the job may run elsewhere
 * now. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "job/document/document.h"
#include "line/values.h"

/* Returns whether the command line gives the option that a column names; NULL: none. */
static bool was_given(const choir__job *j, const char *name)
{
    return name && choir__job_was_given(j, choir__line_named(choir__job_options, name));
}

/* Returns whether the command line names another kind of the option than the document, as
 * another optimizer. */
static bool has_other_kind(const choir__job *j, const char *name, const json_t *root)
{
    const char *was =
        json_string_value(json_object_get(json_object_get(root, "options"), name));
    const choir__line_option *o = choir__line_named(choir__job_options, name);
    return was && choir__job_was_given(j, o) &&
           !choir__job_same_kind(was, *(const char *const *)((const char *)j + o->at));
}

bool choir__job_takes(
    const choir__job *j, const choir__line_option *o, const json_t *root, bool recorded)
{
    if (choir__job_was_given(j, o) || choir__job_leaves_out(j, o) ||
        (o->kind && has_other_kind(j, o->kind, root)))
        return false;
    for (size_t i = 0; i < CHOIR_COUNT(o->displaced_by); i++)
        if (was_given(j, o->displaced_by[i]))
            return false;
    return !recorded || (o->where != CHOIR__OF_PLACE && !(o->idle && o->idle(j)));
}

choir_status choir__job_take_list(choir__job_records *r, const choir__line_option *o,
    const json_t *options, const char *where)
{
    json_t *list = json_object_get(options, o->name);
    size_t count = json_is_array(list) ? json_array_size(list) : list != NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(list) ? json_array_get(list, i) : list;
        if (!json_is_string(one))
            return choir__line_json_expected(where, "a text", one);
        choir_status status = choir__job_add_log(r, json_string_value(one));
        if (status != CHOIR_OK)
            return choir__line_json_located(where, status);
    }
    return CHOIR_OK;
}

/* --- job files --- */

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

/* Takes an option, if the job does. Sets its bit in given. */
static choir_status take(choir__job *j, const char *path, const choir__line_option *o,
    const json_t *root, uint64_t given[2])
{
    json_t *options = json_object_get(root, "options");
    int64_t row = o - choir__job_options;
    if (!choir__job_takes(j, o, root, json_object_get(root, "run") != NULL))
        return CHOIR_OK;
    char *where = choir__format("%s: option '%s'", path, o->name);
    choir_status status = o->repeated ? choir__job_take_list(&j->records, o, options, where)
                                      : choir__line_json_take(options, o, j, where);
    free(where);
    given[row / 64] |= UINT64_C(1) << row % 64;
    return status;
}

choir_status choir__job_load_file(const char *path, json_t **root)
{
    json_error_t why;
    *root = choir__file_json(path, JSON_REJECT_DUPLICATES, &why);
    if (*root)
        return CHOIR_OK;
    return why.line < 0 ? choir__error(CHOIR_ERR_IO, "%s: %s", path, why.text)
                        : choir__error(CHOIR_ERR_ARGUMENT, "%s:%d:%d: %s", path, why.line,
                              why.column, why.text);
}

choir_status choir__job_take_document(choir__job *j, const char *path, json_t *root)
{
    uint64_t given[2] = {0};
    j->document.file = root;
    j->document.path = path;
    choir_status status = choir__job_check_document(path, root);
    for (const choir__line_option *o = choir__job_options; o->name && status == CHOIR_OK; o++)
        if (json_object_get(json_object_get(root, "options"), o->name))
            status = take(j, path, o, root, given);
    j->given[0] |= given[0];
    j->given[1] |= given[1];
    if (status == CHOIR_OK && !j->data.path) {
        j->data.path = json_string_value(json_object_get(root, "data"));
        j->document.sha256 = json_string_value(json_object_get(root, "data_sha256"));
    }
    return status;
}

choir_status choir__job_read_file(choir__job *j, const char *path)
{
    json_t *root;
    choir_status status = choir__job_load_file(path, &root);
    return status == CHOIR_OK ? choir__job_take_document(j, path, root) : status;
}
