/* Checks that options of a job go together, and says which two do not. Pairs that hold for
 * every job are columns of the table of options; pairs that depend on the strategy or on the
 * kind of job are rows of tables here. */
#include "job/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "job/model/amp.h"
#include "line/values.h"

static const choir__line_option *named(const char *name)
{
    return choir__line_named(choir__job_options, name);
}

/* --- options of the table that exclude or need one another --- */

/* Returns whether an option has another value than its preset. */
static bool is_set(const choir__job *j, const choir__line_option *o)
{
    char *text = o->repeated ? choir__strdup(j->records.logs ? j->records.logs : "")
                             : choir__line_text(o, (const char *)j + o->at);
    const char *preset = o->preset ? o->preset : "";
    const bool set = text && strcmp(text, preset) != 0;
    free(text);
    return set;
}

/* Returns "--steps 5", or "--bytes" for a flag, on the heap. */
static char *said(const choir__job *j, const choir__line_option *o)
{
    char *text = o->argument ? choir__line_text(o, (const char *)j + o->at) : NULL,
         *words = choir__format("--%s%s%s", o->name, text ? " " : "", text ? text : "");
    free(text);
    return words;
}

/* Returns the first option of the pair that is set, or NULL. */
static const choir__line_option *first_set(const choir__job *j, const choir__line_pair *pair)
{
    for (size_t i = 0; i < CHOIR_COUNT(pair->options) && pair->options[i]; i++)
        if (is_set(j, named(pair->options[i])))
            return named(pair->options[i]);
    return NULL;
}

static choir_status check_option(const choir__job *j, const choir__line_option *o)
{
    if (!is_set(j, o))
        return CHOIR_OK;
    const choir__line_option *with = first_set(j, &o->excludes);
    const bool alone = o->needs.why && !first_set(j, &o->needs);
    char *it = said(j, o), *other = with ? said(j, with) : NULL;
    choir_status status = CHOIR_OK;
    if (with)
        status = choir__error(CHOIR_ERR_ARGUMENT, "%s with %s%s", it, other, o->excludes.why);
    else if (alone)
        status = choir__error(CHOIR_ERR_ARGUMENT, "%s without --%s%s%s%s", it,
            o->needs.options[0], o->needs.options[1] ? " or --" : "",
            o->needs.options[1] ? o->needs.options[1] : "", o->needs.why);
    else if (o->rereads && choir__job_is_stream(&j->data))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "-: standard input is read once, so --%s is not possible", o->name);
    free(other);
    free(it);
    return status;
}

choir_status choir__job_check_pairs(choir__job *j)
{
    choir_status status = CHOIR_OK;
    for (const choir__line_option *o = choir__job_options; o->name && status == CHOIR_OK; o++)
        status = check_option(j, o);
    return status;
}

/* --- options that need a kind of strategy, or of job --- */

/* An option that the job cannot have, because of another one or of none, and the end of the
 * sentence that says so. */
typedef struct clash {
    const char *option, *with;
    bool clashes;
    const char *why;
} clash;

static choir_status check_clashes(const choir__job *j, const clash *rows, size_t count)
{
    for (const clash *c = rows; c < rows + count; c++) {
        if (!c->clashes || !is_set(j, named(c->option)))
            continue;
        if (!c->with)
            return choir__error(CHOIR_ERR_ARGUMENT, "--%s%s", c->option, c->why);
        char *it = said(j, named(c->option)), *other = said(j, named(c->with));
        choir_status status =
            choir__error(CHOIR_ERR_ARGUMENT, "%s with %s%s", it, other, c->why);
        free(other);
        free(it);
        return status;
    }
    return CHOIR_OK;
}

choir_status choir__job_check_strategy(choir__job *j)
{
    const char *folder, *f32 = ": expected f32 weights that all ranks update together";
    const choir__job_strategy *s = j->placement.strategy;
    const bool halved = choir__amp_find(j->optim.amp)->halved, meet = s->meet != NULL,
               params = choir__job_offload(&j->optim, &folder);
    const clash rows[] = {
        {"amp", "strategy", s->shards && halved, ": shards are f32 weights; choose O2 or bf16"},
        {"ema", "strategy", meet, f32},
        {"swa", "strategy", meet, f32},
        {"ema", "amp", halved, f32},
        {"swa", "amp", halved, f32},
        {"on-spike", "strategy", meet, ": its ranks have losses of their own"},
        {"on-spike", "strategy", choir__job_strategy_forgets(&j->placement) != NULL,
            ": its checkpoints lack a part of the state, so the run could not go back exactly"},
        {"find-lr", "strategy", meet, ": its ranks have losses of their own"},
        {"max-time", "strategy", meet && !s->together,
            ": its ranks step apart; choose --steps"},
        {"offload", "strategy", params && !s->shards,
            ", which shards no parameters: choose fsdp, also for one device, or fsdp+pipeline"},
    };
    return check_clashes(j, rows, CHOIR_COUNT(rows));
}

choir_status choir__job_check_restarts(const choir__job *j)
{
    const choir__job_ranks *r = &j->ranks;
    const choir__recovery recovery = choir__job_strategy_recovery(j);
    const bool in_place = recovery == CHOIR__IN_PLACE, none = recovery == CHOIR__NO_RECOVERY;
    const char *forgotten = choir__job_strategy_forgets(&j->placement);
    const clash rows[] = {
        {"no-copy", NULL, !r->max_restarts, " without --max-restarts: nothing is copied then"},
        {"no-copy", "strategy", in_place,
            ", whose ranks have the whole state and so need no copies"},
        {"no-copy", NULL, !j->saves.dir,
            " without --save: after a loss there would be nothing to continue from"},
        {"max-restarts", "strategy", none,
            ", which cannot continue when ranks are lost: choose ddp or fsdp, or restart from a "
            "checkpoint by 'choir run --max-restarts'"},
        {"max-restarts", NULL, r->launched,
            " is for ranks that 'choir train' starts; these were started by another program"},
        {"max-restarts", NULL, j->placement.nproc < 2,
            ": expected --nproc 2 or more, since a rank is replaced from the others' memory"},
        {"max-restarts", "backend", r->backend && strcmp(r->backend, "shm") != 0,
            ": expected shm"},
    };
    if (r->no_copy && (r->launched || r->max_restarts) && !in_place && !none && forgotten)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--no-copy with --strategy %s: %s, so after a loss the job would end with other "
            "weights: leave out --no-copy",
            j->placement.strategy->name, forgotten);
    /* Agents start a job again if it continues from its checkpoints. Whether an agent keeps
     * memory for this rank is another question, and the answers may differ: all ranks must get
     * as far as to ask. */
    if (r->no_copy && r->launched && !r->max_restarts)
        return CHOIR_OK;
    return check_clashes(j, rows, CHOIR_COUNT(rows));
}
