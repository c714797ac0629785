/* choir audit diff: what differs between two runs, from what their folders have: options, data,
 * builds, then the first audited step and its tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/run_files.h"
#include "base/text.h"
#include "cli/audit/audit.h"
#include "job/job.h"
#include "line/printed.h"
#include "line/values.h"

/* One of the two runs. */
typedef struct side {
    const char *path;
    choir__chain chain;
    json_t *job;   /* job.json; NULL: none */
    char *failure; /* how it failed: "failed at step 5: ...", or NULL */
    char *cut;     /* sentence: the chain ends before the run does; or NULL */
} side;

/* --- what a folder says of its run --- */

static choir_status open_side(side *s, const char *path, bool or_file)
{
    *s = (side){.path = path};
    choir_status status = choir__audit_find(path, or_file);
    if (status == CHOIR_OK)
        status = choir__chain_read(path, &s->chain);
    if (status == CHOIR_OK) {
        s->job = choir__file_json_in(path, CHOIR__JOB_FILE);
        s->failure = choir__audit_failure(path);
        s->cut = choir__audit_cut(path, &s->chain, INT64_MAX);
    }
    return status;
}

static bool is_audited(const side *s)
{
    return choir__chain_last(&s->chain) > 0;
}

static void close_side(side *s)
{
    choir__chain_free(&s->chain);
    json_decref(s->job);
    free(s->failure);
    free(s->cut);
}

/* --- options, data, builds --- */

/* Returns whether an option says where a run is recorded, or how it is shown, which is not
 * named as a difference. */
static bool is_record(const char *name)
{
    const choir__line_option *o = choir__line_named(choir__job_options, name);
    return o && (o->where == CHOIR__OF_PLACE || o->where == CHOIR__OF_RECORDS);
}

static void print_difference(bool json, const char *what, const json_t *a, const json_t *b)
{
    char *x = a ? json_dumps(a, JSON_COMPACT | JSON_ENCODE_ANY) : NULL,
         *y = b ? json_dumps(b, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (json) {
        choir__text_buffer t = {0};
        choir__text_open(&t, NULL, '{');
        choir__text_string(&t, "event", "option");
        choir__text_string(&t, "name", what);
        choir__text_open(&t, "values", '[');
        choir__text_value(&t, NULL, "%s", x ? x : "null");
        choir__text_value(&t, NULL, "%s", y ? y : "null");
        choir__text_close(&t, ']');
        choir__text_finish(&t, stdout);
    } else {
        printf("%-16s ", what);
        choir__print_word(stdout, x ? x : "-", 0);
        printf("  |  ");
        choir__print_word(stdout, y ? y : "-", 0);
        printf("\n");
    }
    free(x);
    free(y);
}

/* Compares the members of two objects. Returns the number that differ. */
static int compare_members(bool json, json_t *a, json_t *b, bool options)
{
    const char *name;
    json_t *value;
    int found = 0;
    json_object_foreach(a, name, value)
    {
        const json_t *other = json_object_get(b, name);
        if ((options && is_record(name)) || json_equal(value, other))
            continue;
        print_difference(json, name, value, other);
        found++;
    }
    json_object_foreach(b, name, value)
    {
        if ((options && is_record(name)) || json_object_get(a, name))
            continue;
        print_difference(json, name, NULL, value);
        found++;
    }
    return found;
}

static int compare_value(bool json, const char *what, const json_t *a, const json_t *b)
{
    if (!a || !b || json_equal(a, b))
        return 0;
    print_difference(json, what, a, b);
    return 1;
}

/* Returns the line of the beginning that a step follows, or NULL. */
static const json_t *begin_of(const choir__chain *chain, int64_t step)
{
    const json_t *begin = NULL;
    for (size_t i = 0; i < json_array_size(chain->lines); i++) {
        const json_t *line = json_array_get(chain->lines, i),
                     *at = json_object_get(line, "begin");
        if (at && (!begin || json_integer_value(at) < step))
            begin = line;
    }
    return begin;
}

/* Returns the options that a step was made with: the job file's, and in place of recorded ones
 * the beginning's, since a later process may have changed the file. */
static json_t *options_of(const side *s, const json_t *begin)
{
    json_t *all = json_deep_copy(json_object_get(s->job, "options"));
    const json_t *recorded = json_object_get(json_object_get(begin, "job"), "options");
    all = all ? all : json_object();
    for (const choir__line_option *o = choir__job_options; recorded && o->name; o++)
        if (o->recorded)
            json_object_del(all, o->name);
    json_object_update(all, (json_t *)(uintptr_t)recorded);
    return all;
}

/* Prints what differs in how a step of the runs was made. */
static int compare_jobs(bool json, const side *a, const side *b, int64_t step)
{
    static const char *const builds[] = {"choir", "id", "products", "isa"};
    json_t *run_a = json_object_get(json_object_get(a->job, "run"), "build"),
           *run_b = json_object_get(json_object_get(b->job, "run"), "build");
    bool audited = a->chain.begin && b->chain.begin;
    const json_t *begin_a = audited ? begin_of(&a->chain, step) : NULL,
                 *begin_b = audited ? begin_of(&b->chain, step) : NULL;
    json_t *options_a = options_of(a, begin_a), *options_b = options_of(b, begin_b);
    int found = compare_members(json, options_a, options_b, true);
    json_decref(options_a);
    json_decref(options_b);
    found += compare_value(json, "data", json_object_get(a->job, "data_sha256"),
        json_object_get(b->job, "data_sha256"));
    for (size_t i = 0; i < CHOIR_COUNT(builds); i++) {
        char what[32];
        snprintf(what, sizeof what, "build.%s", builds[i]);
        found += compare_value(
            json, what, json_object_get(run_a, builds[i]), json_object_get(run_b, builds[i]));
    }
    if (!run_a || !run_b)
        found += compare_value(json, "build", json_object_get(begin_a, "build"),
            json_object_get(begin_b, "build"));
    return found + compare_value(json, "class of bits", json_object_get(begin_a, "bits"),
                       json_object_get(begin_b, "bits"));
}

/* --- steps --- */

/* Compares the tensors that both folders have left behind in a step. Returns whether both have
 * some. */
static bool compare_left(const side *a, const side *b, choir__parting *p)
{
    bool found = false, both = choir__left_compare(a->path, b->path, p, &found);
    p->found |= found;
    return both;
}

/* Compares a step's ops, or else its tensors, in both folders. Returns whether both folders
 * have them. */
static bool compare_step(const side *a, const side *b, choir__parting *p)
{
    if (choir__ops_of_folders(a->path, b->path, p))
        return p->found = true;
    return compare_left(a, b, p);
}

/* Names the first element of numbers that the step read: those that the step before it has
 * left, or else those that the step itself has left. */
static void name_read(const side *a, const side *b, choir__parting *p)
{
    p->step--;
    bool both = compare_left(a, b, p);
    p->step++;
    if (p->tensor)
        return;
    bool after = compare_left(a, b, p);
    if (after && p->tensor)
        p->note = choir__strdup(
            both ? "the values are those after the step: both runs had left the same ones "
                   "before it"
                 : "the values are those after the step: not both runs kept those before it");
    else if (both || after)
        p->note =
            choir__strdup("no values are known: the tensors that both runs kept are equal");
    else
        p->note = choir__strdup("no values are known: not both runs kept the tensors of this "
                                "step or the one before it (choir train --audit=dump)");
}

/* Names the first element that differs, or notes why it is not known. */
static void name_element(const side *a, const side *b, choir__parting *p)
{
    bool both = true;
    if (p->read)
        name_read(a, b, p);
    else
        both = compare_step(a, b, p);
    if (p->tensor || p->op || p->note)
        return;
    if (!strcmp(p->kind, "batch") && a->job && b->job)
        p->note = choir__format("choir data %s --step %lld lists its samples, and choir data "
                                "%s --step %lld the other ones",
            a->path, (long long)p->step, b->path, (long long)p->step);
    else if (!both && strcmp(p->kind, "key") != 0)
        p->note = choir__strdup("no values are known: not both runs kept the tensors of this "
                                "step (choir train --audit=dump)");
}

/* Compares the audited steps that both have. Returns their number. */
static int64_t compare_chains(const side *a, const side *b, choir__parting *p)
{
    int64_t count = 0;
    for (size_t i = 0; i < json_array_size(a->chain.lines) && !p->found; i++) {
        const json_t *line = json_array_get(a->chain.lines, i);
        const json_t *step = json_object_get(line, "step");
        const json_t *other =
            step ? choir__chain_at(&b->chain, json_integer_value(step)) : NULL;
        if (!other)
            continue;
        count++;
        choir__lines_compare(line, other, json_object_get(a->chain.begin, "modules"), p);
    }
    if (p->found && !p->note)
        name_element(a, b, p);
    return count;
}

/* Compares the weights of the checkpoints that both have. Returns their number. */
static int64_t compare_checkpoints(const side *a, const side *b, choir__parting *p)
{
    int own, other;
    int64_t count = 0, *x = choir__checkpoint_steps(a->path, &own),
            *y = choir__checkpoint_steps(b->path, &other);
    for (int i = 0, k = 0; i < own && !p->found; i++) {
        while (k < other && y[k] < x[i])
            k++;
        if (k == other || y[k] != x[i])
            continue;
        p->step = x[i];
        p->kind = "weight";
        p->checkpoint = true;
        count += compare_step(a, b, p);
    }
    free(x);
    free(y);
    return count;
}

/* "a has no audit data", or of both; on the heap. */
static char *without_audit(const side *a, const side *b)
{
    const side *first = is_audited(a) ? b : a;
    if (is_audited(a) && is_audited(b))
        return choir__format("%s and %s have no audited step in common", a->path, b->path);
    if (!a->chain.begin && !b->chain.begin && strcmp(a->path, b->path) != 0)
        return choir__format("%s and %s have no audit data", a->path, b->path);
    return choir__audit_lacks(first->path, &first->chain);
}

static char *note_of(const side *a, const side *b, bool audited)
{
    const side *const sides[] = {a, b};
    int count = strcmp(a->path, b->path) ? 2 : 1;
    char *note = NULL;
    if (!audited) {
        char *without = without_audit(a, b);
        note = choir__format("%s: the weights of checkpoints were compared instead", without);
        free(without);
    }
    for (int i = 0; i < count; i++) {
        if (sides[i]->failure)
            note = choir__note_add(
                note, choir__format("%s %s", sides[i]->path, sides[i]->failure));
        if (sides[i]->cut && audited)
            note = choir__note_add(note, choir__strdup(sides[i]->cut));
    }
    return note;
}

/* Error: argument: nothing of the runs can be compared. */
static choir_status nothing_common(const side *a, const side *b, bool audited)
{
    const char *cut = a->cut ? a->cut : b->cut;
    if (audited)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s and %s have no audited step in common: %s",
            a->path, b->path, cut ? cut : "audit them at the same steps");
    char *without = without_audit(a, b);
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT,
        "%s (choir train --audit), and %s and %s have no checkpoint in common whose weights "
        "could be compared",
        without, a->path, b->path);
    free(without);
    return status;
}

static choir_status compare_sides(const side *a, const side *b, bool json, bool *equal)
{
    bool audited = is_audited(a) && is_audited(b);
    choir_status status =
        audited ? choir__lines_same_modules(a->path, &a->chain, b->path, &b->chain) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    choir__parting p = choir__parting_none();
    int64_t count = audited ? compare_chains(a, b, &p) : 0;
    bool by_chains = count > 0;
    if (!count)
        count = compare_checkpoints(a, b, &p);
    if (!count) {
        choir__parting_free(&p);
        return nothing_common(a, b, audited);
    }
    int others = compare_jobs(json, a, b, p.found ? p.step : INT64_MAX);
    char *note = note_of(a, b, by_chains);
    char *what = choir__format("%s and %s, %lld %s%s%s", a->path, b->path, (long long)count,
        by_chains ? "audited step" : "checkpoint", count == 1 ? "" : "s",
        others ? "; what differs in their making is listed above" : "");
    if (!p.found) {
        choir__parting_free(&p);
        p = choir__parting_none();
    }
    choir__audit_report(json, what, note, "there", -1, &p);
    *equal = !p.found;
    choir__parting_free(&p);
    free(what);
    free(note);
    return status;
}

choir_status choir__audit_diff(const char *path_a, const char *path_b, bool json, bool *equal)
{
    side a, b = {0};
    choir_status status = open_side(&a, path_a, false);
    if (status == CHOIR_OK)
        status = open_side(&b, path_b, true);
    if (status == CHOIR_OK)
        status = compare_sides(&a, &b, json, equal);
    close_side(&a);
    close_side(&b);
    return status;
}
