/* Facts that a run's folder has beside its audit: its steps, and how it failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "cli/audit/audit.h"
#include "record/events.h"

/* Calls look(arg, object) for each line of a file in the folder. */
static void each_line(const char *folder, const char *name,
    void (*look)(void *arg, const json_t *object), void *arg)
{
    char *path = choir__format("%s/%s", folder, name), *line = NULL;
    size_t room = 0;
    FILE *file = choir__file_try_stream(path);
    for (ssize_t n; file && (n = getline(&line, &room, file)) > 0;) {
        json_t *object = json_loadb(line, (size_t)n, 0, NULL);
        look(arg, object);
        json_decref(object);
    }
    if (file)
        fclose(file);
    free(line);
    free(path);
}

static int64_t step_of(const json_t *object)
{
    return json_integer_value(json_object_get(object, CHOIR__KEY(line, step)));
}

static void note_failure(void *arg, const json_t *event)
{
    char **found = arg;
    const char *kind = json_string_value(json_object_get(event, CHOIR__KEY(line, event)));
    const char *why = json_string_value(json_object_get(event, CHOIR__KEY(failure, message)));
    if (!kind || strcmp(kind, choir__kind_failure.name))
        return;
    free(*found);
    *found = choir__format("at step %lld: %s", (long long)step_of(event), why ? why : "?");
}

char *choir__audit_failure(const char *folder)
{
    char *found = NULL;
    each_line(folder, "events.jsonl", note_failure, &found);
    return found;
}

static void note_step(void *arg, const json_t *row)
{
    int64_t *reached = arg;
    *reached = choir__max(*reached, step_of(row));
}

int64_t choir__audit_reached(const char *folder)
{
    int64_t reached = 0;
    each_line(folder, "metrics.jsonl", note_step, &reached);
    return reached;
}
