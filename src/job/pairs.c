/* Options of a job that do not go together: see pairs.h. */
#include "job/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "job/model/amp.h"
#include "line/say.h"
#include "line/values.h"

static const choir__cli_option *named(const char *name)
{
    return choir__cli_named(choir__job_options, name);
}

/* --- options of the table that exclude or need one another --- */

/* Returns whether an option has another value than its preset. */
static bool is_set(const choir__job *j, const choir__cli_option *o)
{
    char *text = o->repeated ? choir__strdup(j->records.logs ? j->records.logs : "")
                             : choir__cli_text(o, (const char *)j + o->at);
    const char *preset = o->preset ? o->preset : "";
    const bool set = text && strcmp(text, preset) != 0;
    free(text);
    return set;
}

/* Returns "--steps 5", or "--bytes" for a flag, on the heap. */
static char *said(const choir__job *j, const choir__cli_option *o)
{
    char *text = o->argument ? choir__cli_text(o, (const char *)j + o->at) : NULL,
         *words = choir__format("--%s%s%s", o->name, text ? " " : "", text ? text : "");
    free(text);
    return words;
}

/* Returns the first option of the pair that is set, or NULL. */
static const choir__cli_option *first_set(const choir__job *j, const choir__cli_pair *pair)
{
    for (size_t i = 0; i < CHOIR_COUNT(pair->options) && pair->options[i]; i++)
        if (is_set(j, named(pair->options[i])))
            return named(pair->options[i]);
    return NULL;
}

static int check_option(const choir__job *j, const choir__cli_option *o)
{
    if (!is_set(j, o))
        return CHOIR__EXIT_OK;
    const choir__cli_option *with = first_set(j, &o->excludes);
    const bool alone = o->needs.why && !first_set(j, &o->needs);
    char *it = said(j, o), *other = with ? said(j, with) : NULL;
    int status = CHOIR__EXIT_OK;
    if (with)
        status = choir__cli_usage(j->command, "%s with %s%s", it, other, o->excludes.why);
    else if (alone)
        status = choir__cli_usage(
            j->command, "%s without --%s%s", it, o->needs.options[0], o->needs.why);
    else if (o->rereads && choir__job_is_stream(&j->data))
        status = choir__cli_usage(
            j->command, "-: standard input is read once, so --%s is not possible", o->name);
    free(other);
    free(it);
    return status;
}

int choir__job_check_pairs(const choir__job *j)
{
    int status = CHOIR__EXIT_OK;
    for (const choir__cli_option *o = choir__job_options; o->name && !status; o++)
        status = check_option(j, o);
    return status;
}

/* --- options that need a kind of strategy --- */

static bool has_halved_shards(const choir__job *j)
{
    return j->placement.strategy->shards && choir__amp_find(j->optim.amp)->halved;
}

static bool has_halved_weights(const choir__job *j)
{
    return choir__amp_find(j->optim.amp)->halved;
}

static bool has_other_weights(const choir__job *j)
{
    return j->placement.strategy->meet;
}

static bool steps_apart(const choir__job *j)
{
    return j->placement.strategy->meet && !j->placement.strategy->together;
}

static bool shards_nothing(const choir__job *j)
{
    const char *folder;
    return choir__job_offload(&j->optim, &folder) && !j->placement.strategy->shards;
}

/* An option that the job cannot have, because of another one or of none, and the end of the
 * sentence that says so. */
typedef struct clash {
    const char *option, *with;
    bool (*clashes)(const choir__job *);
    const char *why;
} clash;

static int check_clashes(const choir__job *j, const clash *rows, size_t count)
{
    for (const clash *c = rows; c < rows + count; c++) {
        if (!is_set(j, named(c->option)) || !c->clashes(j))
            continue;
        char *it = said(j, named(c->option)), *other = c->with ? said(j, named(c->with)) : NULL;
        int status = choir__cli_usage(
            j->command, "%s%s%s%s", it, other ? " with " : "", other ? other : "", c->why);
        free(other);
        free(it);
        return status;
    }
    return CHOIR__EXIT_OK;
}

int choir__job_check_strategy(const choir__job *j)
{
    static const char f32[] = ": expected f32 weights that all ranks update together";
    static const clash rows[] = {
        {"amp", "strategy", has_halved_shards, ": shards are f32 weights; choose O2 or bf16"},
        {"ema", "strategy", has_other_weights, f32},
        {"swa", "strategy", has_other_weights, f32},
        {"ema", "amp", has_halved_weights, f32},
        {"swa", "amp", has_halved_weights, f32},
        {"find-lr", "strategy", has_other_weights, ": its ranks have losses of their own"},
        {"max-time", "strategy", steps_apart, ": its ranks step apart; choose --steps"},
        {"offload", "strategy", shards_nothing,
            ", which shards no parameters: choose fsdp, also for one device, or fsdp+pipeline"},
    };
    return check_clashes(j, rows, CHOIR_COUNT(rows));
}

/* --- ranks that are replaced --- */

static bool has_no_restarts(const choir__job *j)
{
    return !j->placement.max_restarts;
}

static bool recovers_in_place(const choir__job *j)
{
    return choir__cli_strategy_recovery(j) == CHOIR__IN_PLACE;
}

static bool saves_nothing(const choir__job *j)
{
    return !j->saves.dir;
}

static bool cannot_recover(const choir__job *j)
{
    return choir__cli_strategy_recovery(j) == CHOIR__NO_RECOVERY;
}

static bool is_launched(const choir__job *j)
{
    return j->placement.launched;
}

static bool has_one_rank(const choir__job *j)
{
    return j->placement.nproc < 2;
}

static bool has_other_backend(const choir__job *j)
{
    return j->placement.backend && strcmp(j->placement.backend, "shm") != 0;
}

int choir__job_check_restarts(const choir__job *j)
{
    static const clash rows[] = {
        {"no-copy", NULL, has_no_restarts, " without --max-restarts: nothing is copied then"},
        {"no-copy", "strategy", recovers_in_place,
            ", whose ranks have the whole state and so need no copies"},
        {"no-copy", NULL, saves_nothing,
            " without --save: after a loss there would be nothing to go on from"},
        {"max-restarts", "strategy", cannot_recover,
            ", which cannot go on when ranks are lost: choose ddp or fsdp, or restart from a "
            "checkpoint by 'choir run --max-restarts'"},
        {"max-restarts", NULL, is_launched,
            " is for ranks that 'choir train' starts; these were started by another program"},
        {"max-restarts", NULL, has_one_rank,
            ": expected --nproc 2 or more, since a rank is replaced from the others' memory"},
        {"max-restarts", "backend", has_other_backend, ": expected shm"},
    };
    const char *forgotten = choir__cli_strategy_forgets(j);
    bool goes_on = !recovers_in_place(j) && !cannot_recover(j);
    if (j->placement.no_copy && (j->placement.launched || j->placement.max_restarts) &&
        goes_on && forgotten)
        return choir__cli_usage(j->command,
            "--no-copy with --strategy %s: %s, so after a loss the job would end with other "
            "weights: leave out --no-copy",
            j->placement.strategy->name, forgotten);
    /* Agents start again what goes on from its checkpoints. Whether one keeps memory for this
     * rank is another question, whose answers may differ: all ranks have to come as far as to
     * ask. */
    if (j->placement.no_copy && j->placement.launched && !j->placement.max_restarts)
        return CHOIR__EXIT_OK;
    return check_clashes(j, rows, CHOIR_COUNT(rows));
}
