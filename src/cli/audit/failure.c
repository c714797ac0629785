/* The failure that a run's folder has recorded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "cli/audit/audit.h"
#include "record/events.h"

/* Returns a failure as words, or NULL: the event is of another kind. */
static char *words_of(const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, CHOIR__KEY(line, event)));
    const char *why = json_string_value(json_object_get(event, CHOIR__KEY(failure, message)));
    if (!kind || strcmp(kind, choir__kind_failure.name))
        return NULL;
    return choir__format("at step %lld: %s",
        (long long)json_integer_value(json_object_get(event, CHOIR__KEY(failure, step))),
        why ? why : "?");
}

char *choir__audit_failure(const char *folder)
{
    char *path = choir__format("%s/events.jsonl", folder), *line = NULL, *found = NULL;
    size_t room = 0;
    FILE *file = choir__file_try_stream(path);
    for (ssize_t n; file && (n = getline(&line, &room, file)) > 0;) {
        json_t *event = json_loadb(line, (size_t)n, 0, NULL);
        char *words = words_of(event);
        if (words) {
            free(found);
            found = words;
        }
        json_decref(event);
    }
    if (file)
        fclose(file);
    free(line);
    free(path);
    return found;
}
