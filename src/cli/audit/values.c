/* The element and the values at which two runs part. One side is the second run, which can
 * always be made once more. The other side is what the first run has kept of that step, or the
 * first run's own job once more, if that still gives the recorded hashes. Then both are audited
 * at every step, which finds the step at which they part, even if it was not recorded. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/audit/audit.h"

bool choir__audit_compare_line(void *arg, const json_t *line)
{
    choir__audit_comparison *c = arg;
    int64_t step = json_integer_value(json_object_get(line, "step"));
    const json_t *own = choir__chain_at(c->chain, step);
    if (!own || step < c->request->from || step >= c->request->until)
        return true;
    c->compared++;
    choir__lines_compare(own, line, json_object_get(c->chain->begin, "modules"), c->parting);
    return !c->parting->found;
}

bool choir__audit_any_line(void *arg, const json_t *line)
{
    (void)arg, (void)line;
    return true;
}

choir__again choir__audit_again(
    choir__audit_request *r, const char *folder, int64_t until, int64_t every)
{
    return (choir__again){.run = r->run,
        .job = r->job,
        .build = r->against,
        .options = (const char *const *)r->options,
        .option_count = r->option_count,
        .start = r->start,
        .until = until,
        .every = every,
        .folder = folder,
        .signal = &r->signal};
}

void choir__audit_note(choir__audit_request *r, char *line)
{
    r->note = choir__note_add(r->note, line);
}

char *choir__audit_folder(const choir__audit_request *r, const char *name)
{
    char *folder = choir__format("%s/%s", r->folder, name);
    if (mkdir(folder, 0777) != 0)
        (void)!access(folder, W_OK); /* the second run reports it */
    return folder;
}

bool choir__tensors_of_folders(const char *a, const char *b, choir__parting *p)
{
    bool found = choir__ops_of_folders(a, b, p);
    if (!found)
        choir__left_compare(a, b, p, &found);
    return found;
}

static void no_values(choir__parting *p, const char *why)
{
    free(p->note);
    p->note = choir__strdup(why);
}

static bool is_left(const choir__parting *p)
{
    return !strcmp(p->kind, "weight") || !strcmp(p->kind, "state") ||
           !strcmp(p->kind, "gradient");
}

static bool has_tensors(const char *folder, int64_t step)
{
    choir__stored kept;
    bool has = choir__tensors_open(&kept, folder, step);
    if (has)
        choir__stored_close(&kept);
    return has;
}

/* Returns whether the folder has what a step has computed: its ops, or tensors that it left
 * behind. */
static bool has_kept(const char *folder, const choir__parting *p)
{
    choir__op_files ops;
    bool has =
        (is_left(p) || !strcmp(p->kind, "loss")) && choir__ops_open(&ops, folder, p->step);
    if (has)
        choir__ops_close(&ops);
    return has || (is_left(p) && has_tensors(folder, p->step));
}

/* Makes a run once more up to a step, with its tensors or with hashes of every step. Returns
 * the folder of its records, which the caller frees; NULL: it failed. */
static char *once_more(choir__audit_request *r, const char *name, int64_t step, bool dump)
{
    char *folder = choir__audit_folder(r, name), *run = choir__format("%s/run", folder);
    choir__again again = choir__audit_again(r, folder, step, dump ? step : 1);
    again.dump = dump;
    choir_status status = choir__again_run(&again, choir__audit_any_line, NULL);
    free(folder);
    if (status == CHOIR_OK)
        return run;
    (void)choir_error_message(); /* marks the error as read: the side cannot be asked */
    free(run);
    return NULL;
}

/* Compares the numbers that a step read with the second run's: those that the step before it
 * has left, or else those that the step itself has left. */
static bool by_what_was_read(choir__audit_request *r, choir__parting *p)
{
    const int64_t step = p->step;
    bool found = false;
    const int64_t first = choir__max(step - 1, r->start_step + 1); /* behind its beginning */
    for (p->step = choir__max(first, (int64_t)1); p->step <= step && !found; p->step++) {
        if (!has_tensors(r->run, p->step))
            continue;
        char *name = choir__format("kept-%lld", (long long)p->step),
             *other = once_more(r, name, p->step, true);
        if (other)
            choir__left_compare(r->run, other, p, &found);
        if (found && p->step == step)
            p->note = choir__note_add(p->note,
                choir__strdup("the values are those after the step: those before it were "
                              "not kept, or are equal"));
        free(other);
        free(name);
    }
    p->step = step;
    return found;
}

/* Compares what the run has kept of the step with the second run's tensors. */
static bool by_what_is_kept(choir__audit_request *r, choir__parting *p)
{
    if (p->read)
        return by_what_was_read(r, p);
    if (!has_kept(r->run, p))
        return false;
    char *other = once_more(r, "kept", p->step, true);
    bool found = other && choir__tensors_of_folders(r->run, other, p);
    free(other);
    return found;
}

/* Finds the step at which two runs with hashes of every step part, given that one of them has
 * the recorded hashes. */
static bool find_step(const choir__chain *recorded, const char *own, const char *other,
    const choir__parting *p, choir__parting *exact)
{
    choir__chain a = {0}, b = {0};
    choir__parting changed = choir__parting_none();
    bool read =
        choir__chain_read(own, &a) == CHOIR_OK && choir__chain_read(other, &b) == CHOIR_OK;
    const json_t *line = read ? choir__chain_at(&a, p->step) : NULL;
    const json_t *modules = json_object_get(recorded->begin, "modules");
    if (line)
        choir__lines_compare(choir__chain_at(recorded, p->step), line, modules, &changed);
    for (int64_t step = 1; line && !changed.found && !exact->found && step <= p->step; step++)
        if (choir__chain_at(&a, step) && choir__chain_at(&b, step))
            choir__lines_compare(
                choir__chain_at(&a, step), choir__chain_at(&b, step), modules, exact);
    choir__parting_free(&changed);
    choir__chain_free(&a);
    choir__chain_free(&b);
    return exact->found;
}

/* Adds the findings about the step at which both part. */
static void take(choir__parting *p, choir__parting *exact)
{
    p->exact_step = exact->step;
    p->exact_kind = exact->kind;
    p->microbatch = exact->microbatch >= 0 ? exact->microbatch : p->microbatch;
    p->op = exact->op;
    p->op_module = exact->op_module;
    p->pass = exact->pass;
    p->operand = exact->operand;
    p->tensor = exact->tensor;
    p->index = exact->index;
    p->bytes = exact->bytes;
    memcpy(p->value, exact->value, sizeof p->value);
    memcpy(p->bits, exact->bits, sizeof p->bits);
    exact->tensor = exact->op = exact->op_module = NULL;
}

/* Makes both runs once more. Returns whether the first one still has the recorded hashes. */
static bool by_both_again(choir__audit_request *r, const choir__chain *chain, choir__parting *p)
{
    choir__audit_request plain = {
        .run = r->run, .job = r->job, .start = r->start, .folder = r->folder};
    choir__parting exact = choir__parting_none();
    char *own = once_more(&plain, "own", p->step, false),
         *other = own ? once_more(r, "other", p->step, false) : NULL;
    bool found = other && find_step(chain, own, other, p, &exact);
    free(own);
    free(other);
    if (found && !exact.read) {
        own = once_more(&plain, "own-step", exact.step, true);
        other = own ? once_more(r, "other-step", exact.step, true) : NULL;
        if (other)
            choir__tensors_of_folders(own, other, &exact);
        free(own);
        free(other);
    }
    r->signal = r->signal ? r->signal : plain.signal;
    if (found)
        take(p, &exact);
    choir__parting_free(&exact);
    return found;
}

void choir__audit_values(choir__audit_request *r, const choir__chain *chain, choir__parting *p)
{
    bool varied = r->option_count || r->against;
    if (by_what_is_kept(r, p) || (varied && by_both_again(r, chain, p)))
        return;
    no_values(p, varied
                     ? "the recorded side can no longer be asked: its own job gives other "
                       "hashes now, and it kept no tensors of this step"
                     : "the recorded side can no longer be asked: it kept no tensors of this "
                       "step (choir train --audit=dump)");
}
