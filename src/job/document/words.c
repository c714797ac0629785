/* The words of a record, paths among them that are found from any folder. */
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "job/job.h"

/* Adds a part of several sources, which are joined by +, to the list. */
static char *add_source(char *list, const char *folder, const char *part, int length)
{
    const bool found = *part == '/' || (length == 6 && !strncmp(part, "random", 6));
    char *longer = choir__format("%s%s%s%s%.*s", list ? list : "", list ? "+" : "",
        found ? "" : folder, found ? "" : "/", length, part);
    free(list);
    return longer;
}

char *choir__job_path(const char *text)
{
    char path[PATH_MAX];
    const char *options = strchrnul(text, ':'); /* options of FOLDER:classes=3 */
    if (realpath(text, path))
        return choir__strdup(path);
    char *before = choir__format("%.*s", (int)(options - text), text);
    const bool found = realpath(before, path);
    free(before);
    return found ? choir__format("%s%s", path, options) : choir__strdup(text);
}

char *choir__job_data_path(const char *data)
{
    char path[PATH_MAX], *all = NULL;
    if (!strcmp(data, "random") || !strcmp(data, "-"))
        return choir__strdup(data);
    if (realpath(data, path))
        return choir__strdup(path);
    if (!getcwd(path, sizeof path) || strchr(path, '+'))
        return choir__strdup(data);
    for (const char *at = data; *at;) {
        int length = (int)strcspn(at, "+");
        all = add_source(all, path, at, length);
        at += length + (at[length] == '+');
    }
    return all ? all : choir__strdup(data);
}

const char *choir__job_recorded(const choir__job_saves *s, const char *name)
{
    return json_string_value(json_object_get(json_object_get(s->resumed, "options"), name));
}

void choir__job_add_note(choir__job_saves *saves, char *line)
{
    char *all = choir__format("%s%s\n", saves->notes ? saves->notes : "", line);
    free(saves->notes);
    free(line);
    saves->notes = all;
}

bool choir__job_same_kind(const char *a, const char *b)
{
    size_t n = strcspn(a, ":");
    return n == strcspn(b, ":") && !strncmp(a, b, n);
}

choir_status choir__job_name_saves(const char *path, choir_status status)
{
    if (status != CHOIR_ERR_FORMAT || choir__folder_has(path, "latest") ||
        choir__folder_has(path, CHOIR__STATE_FILE))
        return status;
    json_t *root = choir__file_json_in(path, CHOIR__JOB_FILE);
    const char *dir =
        json_string_value(json_object_get(json_object_get(root, "options"), "save"));
    if (dir && choir__folder_has(dir, "latest"))
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s has the records of a run, and no checkpoint: its checkpoints are in %s", path,
            dir);
    json_decref(root);
    return status;
}
