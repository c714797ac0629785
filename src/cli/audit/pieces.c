/* The pieces in which a run is run again: its audited steps, and for each piece the job that
 * made it and the nearest state before it. A run may have been resumed with other options,
 * which its lines of beginnings state; where these change the numbers, a piece ends. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/training.h>

#include "base/files/file.h"
#include "base/files/run_files.h"
#include "base/files/temp_file.h"
#include "cli/audit/audit.h"
#include "job/edit.h"
#include "job/document/document.h"
#include "line/values.h"

/* Returns whether numbers depend on an option, as its row states, in this job. */
static bool matters(const char *name, const choir__job *job)
{
    const choir__line_option *o = choir__line_named(choir__job_options, name);
    return o && o->recorded >= CHOIR__RECORDED_TAKES && (!o->matters || o->matters(job));
}

/* Returns the list of batches that a record leaves out, as far as its first `steps` steps pass
 * over them, or NULL; and the batch of the last of these steps. */
static char *left_out(const json_t *record, const char *name, int64_t steps, int64_t *batch)
{
    choir__skips s = {0};
    const char *text =
        json_string_value(json_object_get(json_object_get(record, "options"), name));
    if (choir__skips_add(&s, text) != CHOIR_OK)
        (void)choir_error_message(); /* the second run says it */
    *batch = steps ? choir__skips_batch(&s, steps) : 0;
    char *list = choir__skips_text(&s, *batch);
    choir__skips_free(&s);
    return list;
}

/* Returns whether the first steps of two records have the same batches. */
static bool same_batches(const json_t *a, const json_t *b, const char *name, int64_t steps)
{
    int64_t last_a, last_b;
    char *x = left_out(a, name, steps, &last_a), *y = left_out(b, name, steps, &last_b);
    bool same = last_a == last_b && !strcmp(x ? x : "", y ? y : "");
    free(x);
    free(y);
    return same;
}

/* Returns whether each option of a record that matters has the same value in another one;
 * --skip-batches has its own comparison. */
static bool has_options(json_t *a, const json_t *b, const char *skip)
{
    const char *name;
    json_t *value, *options = json_object_get(a, "options");
    choir__job job = choir__job_of_record("audit", a);
    bool same = true;
    json_object_foreach(options, name, value)
    {
        if (strcmp(name, skip) != 0 && matters(name, &job))
            same &= json_equal(value, json_object_get(json_object_get(b, "options"), name));
    }
    return same;
}

/* Returns whether run b continues run a with the same numbers. A run that has gone back and
 * leaves out later batches has, from its first step, the numbers of a run that never saw them.
 */
static bool same_numbers(const json_t *a, const json_t *b)
{
    const char *skip = CHOIR__JOB_OPTION(data.skip)->name;
    int64_t steps = json_integer_value(json_object_get(b, "begin"));
    json_t *x = json_object_get(a, "job"), *y = json_object_get(b, "job");
    if (!x || !y || json_is_null(x) || json_is_null(y))
        return false;
    char *text_x = json_dumps(x, 0), *text_y = json_dumps(y, 0);
    json_t *read_x = choir__job_read_record(text_x), *read_y = choir__job_read_record(text_y);
    bool same = read_x && read_y && has_options(read_x, read_y, skip) &&
                has_options(read_y, read_x, skip) && same_batches(read_x, read_y, skip, steps);
    json_decref(read_x);
    json_decref(read_y);
    free(text_x);
    free(text_y);
    return same;
}

/* Returns the step after which a line of a beginning continues. */
static int64_t begun_at(const json_t *begin)
{
    return json_integer_value(json_object_get(begin, "begin"));
}

choir__audit_piece *choir__audit_pieces(
    const choir__chain *chain, int64_t from, int64_t until, int *count)
{
    choir__audit_piece *list = NULL;
    const json_t *begin = NULL, *era = NULL; /* the latest; the first with these numbers */
    int64_t before = -1;
    *count = 0;
    for (size_t i = 0; i < json_array_size(chain->lines); i++) {
        const json_t *line = json_array_get(chain->lines, i);
        const json_t *step = json_object_get(line, "step");
        int64_t number = step ? json_integer_value(step) : -1;
        if (!step) {
            bool goes_on =
                begin && same_numbers(begin, line) &&
                json_equal(json_object_get(begin, "every"), json_object_get(line, "every"));
            era = goes_on ? era : line;
            begin = line;
            before = before < 0 ? begun_at(line) : before;
        } else if (number >= from && number < until) {
            choir__audit_piece *last = *count ? &list[*count - 1] : NULL;
            if (!last || last->era != era) {
                CHOIR__GROW(list, *count);
                last = &list[(*count)++];
                *last = (choir__audit_piece){.era = era, .before = before, .first = number};
            }
            last->begin = begin;
            last->last = number;
            last->count++;
            last->every = json_integer_value(json_object_get(begin, "every"));
        }
        before = step ? number : before;
    }
    return list;
}

/* --- the state before a piece --- */

/* Returns the checkpoint of another folder that the run began with, as its job file names it;
 * the caller frees it. NULL: it began with none. */
static char *resumed_path(const char *run)
{
    json_t *job = choir__file_json_in(run, CHOIR__JOB_FILE);
    const char *from =
        json_string_value(json_object_get(json_object_get(job, "options"), "resume"));
    char *path = from ? choir__strdup(from) : NULL;
    json_decref(job);
    return path;
}

/* Returns that checkpoint's folder, if it is there and is of that step, else NULL; the caller
 * frees it. */
static char *resumed_from(const char *run, int64_t step)
{
    char found[PATH_MAX], *from = resumed_path(run);
    choir_train_state state;
    bool there = from && choir_training_find(from, found) == CHOIR_OK &&
                 choir_training_read(found, &state) == CHOIR_OK && state.step == step;
    if (!there)
        (void)choir_error_message(); /* marks the error as read: the caller has a sentence */
    free(from);
    return there ? choir__strdup(found) : NULL;
}

static bool is_stream(const choir__audit_piece *piece)
{
    const json_t *job = json_object_get(piece->begin, "job");
    const char *data = json_string_value(json_object_get(job, "data"));
    return data && !strcmp(data, "-");
}

/* Returns the step of a piece's first checkpoint; 0: it begins at the start of the run; -1: no
 * checkpoint is there. A line proves the steps since the audited one before it, so the piece
 * begins with the newest checkpoint that is not behind that one, or else with the first.
 * *later: the step of the first checkpoint behind the piece's first line, or -1. */
static int64_t find_step(const char *run, const choir__audit_piece *piece, int64_t *later)
{
    int count;
    int64_t *steps = choir__checkpoint_steps(run, &count), begin = begun_at(piece->era);
    int64_t wanted = choir__max(piece->before, begin), found = begin == 0 ? 0 : -1;
    if (found == 0 && is_stream(piece))
        count = 0; /* standard input comes again from its beginning */
    *later = -1;
    for (int i = 0; i < count; i++) {
        bool earlier = steps[i] >= begin && steps[i] < piece->first;
        if (earlier && (steps[i] <= wanted || found < 0))
            found = steps[i];
        else if (steps[i] >= piece->first && *later < 0)
            *later = steps[i];
    }
    free(steps);
    return found;
}

/* "step 3 was" or "steps 3 to 5 were"; on the heap. */
static char *steps_were(int64_t first, int64_t last)
{
    return first == last
               ? choir__format("step %lld was", (long long)first)
               : choir__format("steps %lld to %lld were", (long long)first, (long long)last);
}

/* Notes the steps that are asked for and that no line compares, since the piece begins behind
 * them. */
static void note_unseen(choir__audit_request *r, const choir__audit_piece *piece)
{
    if (r->start_step <= piece->before || r->start_step < r->from)
        return;
    char *steps = steps_were(piece->before + 1, r->start_step);
    choir__audit_note(r,
        choir__format("%s not compared: no audited step stands between them and the checkpoint "
                      "of step %lld, that the second run began with",
            steps, (long long)r->start_step));
    free(steps);
}

void choir__audit_note_begin(choir__audit_request *r, const choir__chain *chain)
{
    int64_t begin = begun_at(chain->begin);
    if (begin < r->from)
        return;
    char *steps = steps_were(1, begin);
    choir__audit_note(r, choir__format("%s not compared: the audit of %s begins with step %lld",
                             steps, r->run, (long long)begin + 1));
    free(steps);
}

static choir_status find_start(choir__audit_request *r, const choir__audit_piece *piece)
{
    int64_t later, begin = begun_at(piece->era), from = find_step(r->run, piece, &later);
    char *other = from != begin && begin > 0 && (from < 0 || from > piece->before)
                      ? resumed_from(r->run, begin)
                      : NULL;
    r->start_step = other ? begin : from;
    if (other)
        r->start = other;
    else if (from > 0)
        r->start = choir__format("%s/step-%08lld", r->run, (long long)from);
    if (from == 0 || r->start) {
        note_unseen(r, piece);
        return CHOIR_OK;
    }
    char hint[64] = "it has no other checkpoint", *path = resumed_path(r->run);
    if (later >= 0)
        snprintf(hint, sizeof hint, "--steps %lld: can be audited", (long long)later + 1);
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT,
        "%s: step %lld cannot be run again: the run was resumed from step %lld%s%s, whose "
        "checkpoint is gone; %s",
        r->run, (long long)piece->first, (long long)begin, path ? " of " : "", path ? path : "",
        hint);
    free(path);
    return status;
}

choir_status choir__audit_begin_piece(choir__audit_request *r, const choir__audit_piece *piece)
{
    const json_t *job = json_object_get(piece->begin, "job");
    if (!json_is_object(job) || !json_object_get(job, "options"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained by a program of its own, which choir train cannot run again; choir "
            "audit diff compares two such runs",
            r->run);
    choir_status status = find_start(r, piece);
    if (status != CHOIR_OK)
        return status;
    r->job = choir__format("%s/" CHOIR__JOB_FILE, r->folder);
    char *text = json_dumps(job, JSON_INDENT(2));
    int error = choir__temp_file_write(r->job, text, strlen(text), false);
    free(text);
    return error ? choir__error(CHOIR_ERR_IO, "cannot write %s: %s", r->job, choir__why(error))
                 : CHOIR_OK;
}

void choir__audit_end_piece(choir__audit_request *r)
{
    free(r->start);
    free(r->job);
    r->start = r->job = NULL;
}
