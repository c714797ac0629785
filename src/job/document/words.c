/* The words of a job as its record has them: JSON, which is UTF-8, and DATA so that it is found
 * from any folder. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "job/job.h"
#include "job/model/text.h"
#include "data/tokenizer/utf8.h"

static choir_status check(const char *what, const char *text)
{
    if (!text || choir__is_utf8(text, strlen(text)))
        return CHOIR_OK;
    char *clean = choir__clean(choir__strdup(text));
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT,
        "%s '%s' is not UTF-8: a record of the job, which is JSON, cannot have it", what,
        clean);
    free(clean);
    return status;
}

choir_status choir__job_check_words(const choir__job *j)
{
    choir_status status = check("the path of the data", j->data.path);
    for (const choir__cli_option *o = choir__job_options; o->name && status == CHOIR_OK; o++) {
        char *name = choir__format("--%s", o->name);
        char *text =
            o->type == CHOIR__STRING ? choir__cli_text(o, (const char *)j + o->at) : NULL;
        status = check(name, text);
        free(text);
        free(name);
    }
    return status;
}

/* Adds a part of several sources, which are joined by +, to the list. */
static char *add_source(char *list, const char *folder, const char *part, int length)
{
    const bool found = *part == '/' || !strncmp(part, "random", (size_t)length);
    char *longer = choir__format("%s%s%s%s%.*s", list ? list : "", list ? "+" : "",
        found ? "" : folder, found ? "" : "/", length, part);
    free(list);
    return longer;
}

char *choir__job_path(const char *text)
{
    char path[PATH_MAX];
    const char *options = strchrnul(text, ':'); /* of FOLDER:classes=3 */
    if (realpath(text, path))
        return choir__strdup(path);
    char *before = choir__format("%.*s", (int)(options - text), text);
    const bool found = realpath(before, path);
    free(before);
    return found ? choir__format("%s%s", path, options) : choir__strdup(text);
}

char *choir__job_located(const choir__cli_option *o, const char *text)
{
    bool file = !strcmp(o->name, "weights") ||
                (!strcmp(o->name, "tokenizer") && !choir__text_is_chars(text));
    return file && text ? choir__job_path(text) : text ? choir__strdup(text) : NULL;
}

char *choir__job_place(const char *data)
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
