/* Facts that a run's folder has beside its audit: its steps, and how it failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "checkpoint/state.h"
#include "cli/audit/audit.h"
#include "record/events.h"

/* Returns whether a folder has something that a training leaves in it. */
static bool is_run(const char *folder)
{
    int count;
    free(choir__checkpoint_steps(folder, &count));
    return count || choir__folder_has(folder, CHOIR__JOB_FILE) ||
           choir__folder_has(folder, CHOIR__AUDIT_FILE) ||
           choir__folder_has(folder, CHOIR__METRICS_FILE);
}

choir_status choir__audit_find(const char *run, bool or_file)
{
    if (choir__folder_has(run, CHOIR__STATE_FILE))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s is a checkpoint: expected the folder of its run, which has the audit", run);
    if (access(run, R_OK) != 0)
        return choir__error(CHOIR_ERR_IO, "%s: there is no such run", run);
    if (!is_run(run))
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: expected the folder of a run%s", run,
            or_file ? ", or a .safetensors file" : "");
    return CHOIR_OK;
}

/* Calls look(arg, object) for each line of a file in the folder. */
static void each_line(const char *folder, const char *name,
    void (*look)(void *arg, const json_t *object), void *arg)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = choir__file_try_stream_in(folder, name);
    for (ssize_t n; file && (n = getline(&line, &room, file)) > 0;) {
        json_t *object = json_loadb(line, (size_t)n, 0, NULL);
        look(arg, object);
        json_decref(object);
    }
    if (file)
        fclose(file);
    free(line);
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

/* Returns the last step that it has recorded; 0: none. */
static int64_t steps_reached(const char *folder)
{
    int64_t reached = 0;
    each_line(folder, CHOIR__METRICS_FILE, note_step, &reached);
    return reached;
}

char *choir__audit_failure(const char *folder)
{
    ending e = {0};
    each_line(folder, CHOIR__EVENTS_FILE, note_ending, &e);
    if (e.begun && !e.ended)
        e.why = choir__format("has no end after step %lld: it was killed, or it still runs",
            (long long)steps_reached(folder));
    return e.why;
}

char *choir__audit_end(const char *folder)
{
    char *failure = choir__audit_failure(folder);
    return failure ? failure
                   : choir__format("ended after step %lld", (long long)steps_reached(folder));
}

/* Returns the steps between the chain's last lines: as its last beginning states, or more where
 * a strategy audits less often, such as at the meetings of workers. */
static int64_t last_spacing(const choir__chain *chain)
{
    int64_t every = 1, before = 0, last = 0;
    for (size_t i = 0; i < json_array_size(chain->lines); i++) {
        const json_t *line = json_array_get(chain->lines, i);
        if (json_object_get(line, "every")) {
            every = json_integer_value(json_object_get(line, "every"));
            last = 0;
        }
        before = last;
        last = step_of(line);
    }
    return choir__max(every, before ? last - before : 0);
}

char *choir__audit_lacks(const char *run, const choir__chain *chain)
{
    if (!chain->begin)
        return choir__format("%s has no audit data", run);
    return choir__format("%s has no audited step yet: its audit has every %lld", run,
        (long long)json_integer_value(json_object_get(chain->begin, "every")));
}

char *choir__audit_cut(const char *run, const choir__chain *chain, int64_t until)
{
    if (!chain->begin)
        return NULL;
    int64_t last = choir__chain_last(chain), reached = steps_reached(run);
    char *failure = choir__audit_failure(run); /* the line of its newest steps may be missing */
    int64_t lacks = last_spacing(chain) * (failure ? 2 : 1);
    free(failure);
    if (choir__min(until - 1, reached) < last + lacks)
        return NULL;
    return choir__format("the audit of %s ends at line %zu, with step %lld, and the run has "
                         "done %lld steps: it was cut, or these steps were not audited",
        run, json_array_size(chain->lines), (long long)last, (long long)reached);
}
