/* Facts that a run's folder has beside its audit: its steps, and how it failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "checkpoint/state.h"
#include "cli/audit/audit.h"
#include "record/events.h"

choir_status choir__audit_find(const char *run)
{
    char *state = choir__format("%s/" CHOIR__STATE_FILE, run);
    bool is_checkpoint = access(state, R_OK) == 0;
    free(state);
    if (is_checkpoint)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s is a checkpoint: expected the folder of its run, which has the audit", run);
    return access(run, R_OK) == 0 ? CHOIR_OK
                                  : choir__error(CHOIR_ERR_IO, "%s: there is no such run", run);
}

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

/* The last process of a run. */
typedef struct ending {
    bool begun, ended;
    char *why; /* "failed at step 5: ..." or NULL */
} ending;

/* The end of an earlier process does not count where another one continues the run. */
static void note_ending(void *arg, const json_t *event)
{
    ending *e = arg;
    const char *kind = json_string_value(json_object_get(event, CHOIR__KEY(line, event)));
    const char *why = json_string_value(json_object_get(event, CHOIR__KEY(failure, message)));
    bool begins = kind && !strcmp(kind, choir__kind_begin.name),
         fails = kind && !strcmp(kind, choir__kind_failure.name);
    if (begins || fails) {
        free(e->why);
        e->why = fails ? choir__format("failed at step %lld: %s", (long long)step_of(event),
                             why ? why : "?")
                       : NULL;
    }
    e->begun |= begins;
    e->ended = !begins && (e->ended || fails ||
                              (kind && (!strcmp(kind, choir__kind_end.name) ||
                                           !strcmp(kind, choir__kind_interrupted.name))));
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

char *choir__audit_failure(const char *folder)
{
    ending e = {0};
    each_line(folder, "events.jsonl", note_ending, &e);
    if (e.begun && !e.ended)
        e.why = choir__format("has no end after step %lld: it was killed, or it still runs",
            (long long)choir__audit_reached(folder));
    return e.why;
}
