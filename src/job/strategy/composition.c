/* Compositions as text: "ddp+pipeline" and "2x4" are read, checked and written. mesh.c has what
 * ranks do in one. */
#include "job/strategy/strategy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"

/* Returns the end of the first strategy in text. A plus before a digit is part of a cut:
 * "pipeline:cuts=layer2.0+3". */
static const char *end_of_part(const char *text)
{
    const char *end = text;
    while (*end && !(*end == '+' && !isdigit((unsigned char)end[1])))
        end++;
    return end;
}

static choir_status take_part(choir__composition *c, const char *text, size_t length)
{
    if (c->count == CHOIR_MESH_MAX_DIMS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected at most %d strategies in a composition", CHOIR_MESH_MAX_DIMS);
    char *own = choir__format("%.*s", (int)length, text);
    const choir__job_strategy *s;
    choir_status status = choir__job_strategy_find(own, &s);
    if (status == CHOIR_OK) {
        choir__dimension *d = &c->dims[c->count++];
        *d = (choir__dimension){.strategy = s, .size = 1};
        status = choir__job_strategy_read(s, own, &d->keys);
    }
    free(own);
    return status;
}

static choir_status refuse(const choir__job_strategy *s)
{
    char list[200] = "";
    for (int i = 0; choir__job_strategies[i]; i++)
        if (choir__job_strategies[i]->dimension)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                choir__job_strategies[i]->name);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "strategy '%s' takes no part in compositions: choose among %s", s->name, list);
}

static choir_status check_parts(const choir__composition *c)
{
    const choir__job_strategy *own = NULL; /* the strategy whose step is not the plain one */
    const choir__job_strategy *dealer = NULL;
    for (int d = 0; d < c->count; d++) {
        const choir__job_strategy *s = c->dims[d].strategy;
        if (!s->dimension)
            return refuse(s);
        for (int e = 0; e < d; e++)
            if (!strcmp(c->dims[e].strategy->dimension, s->dimension))
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "%s and %s are both for the '%s' dimension of a mesh: choose one of them",
                    c->dims[e].strategy->name, s->name, s->dimension);
        if (own && s->step != choir__job_strategy_plain_step)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "%s and %s both define the step: choose one of them", own->name, s->name);
        own = s->step != choir__job_strategy_plain_step ? s : own;
        if (dealer && s->spread == CHOIR__DEVICE_A_RANK)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "%s and %s both distribute micro-batches over ranks: choose one of them",
                dealer->name, s->name);
        dealer = s->spread == CHOIR__DEVICE_A_RANK ? s : dealer;
    }
    return CHOIR_OK;
}

static void make_whole(choir__composition *c)
{
    c->whole = (choir__job_strategy){.help = "",
        .spread = CHOIR__ON_A_MESH,
        .build = choir__composition_build,
        .step = choir__job_strategy_plain_step,
        .recovery = CHOIR__REBUILT_AS_MANY,
        .resumed = choir__composition_resumed};
    for (int d = 0; d < c->count; d++) {
        const choir__job_strategy *s = c->dims[d].strategy;
        snprintf(c->name + strlen(c->name), sizeof c->name - strlen(c->name), "%s%s",
            d ? "+" : "", s->name);
        if (s->step != choir__job_strategy_plain_step)
            c->whole.step = s->step;
        if (s->recovery == CHOIR__NO_RECOVERY && s->spread != CHOIR__ALL_DEVICES)
            c->whole.recovery = CHOIR__NO_RECOVERY;
        c->whole.parts |= s->parts;
        c->whole.shards |= s->shards;
    }
}

void choir__composition_free(choir__composition *c)
{
    for (int d = 0; d < c->count; d++)
        free(c->dims[d].keys);
    *c = (choir__composition){0};
}

choir_status choir__composition_parse(const char *text, choir__composition *c)
{
    choir_status status = CHOIR_OK;
    *c = (choir__composition){0};
    for (const char *end; status == CHOIR_OK; text = end + 1) {
        end = end_of_part(text);
        status = take_part(c, text, (size_t)(end - text));
        if (!*end)
            break;
    }
    if (status == CHOIR_OK && c->count > 1)
        status = check_parts(c);
    if (status == CHOIR_OK && c->count > 1)
        make_whole(c);
    return status;
}

const choir__job_strategy *choir__composition_strategy(choir__composition *c)
{
    if (c->count == 1)
        return c->dims[0].strategy;
    c->whole.name = c->name;
    return &c->whole;
}

choir_status choir__composition_mesh(choir__composition *c, const char *text)
{
    int sizes[CHOIR_MESH_MAX_DIMS], count = 0;
    int64_t product = 1;
    for (const char *at = text; at;) {
        char *end;
        long n = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : 0;
        if (n < 1 || (*end && *end != 'x') || count == CHOIR_MESH_MAX_DIMS ||
            (product *= n) > CHOIR__MOST_RANKS)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "expected sizes such as 2x4, the outermost first, of at most %d ranks",
                CHOIR__MOST_RANKS);
        sizes[count++] = (int)n;
        at = *end ? end + 1 : NULL;
    }
    if (count != c->count)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "got %d dimension%s for %d strateg%s; expected one for each, the outermost first",
            count, count > 1 ? "s" : "", c->count, c->count > 1 ? "ies" : "y");
    for (int d = 0; d < count; d++)
        c->dims[d].size = sizes[d];
    return CHOIR_OK;
}

char *choir__composition_numbers(const choir__composition *c, int ranks, int64_t microbatches)
{
    char *all = choir__strdup("");
    for (int d = 0; d < c->count; d++) {
        const choir__dimension *dim = &c->dims[d];
        int along = choir__composition_ranks(c, d, ranks);
        if (!dim->strategy->own_numbers ||
            !dim->strategy->own_numbers(dim->keys, along, microbatches))
            continue;
        char *own = choir__job_strategy_own_text(dim->strategy, dim->keys);
        bool (*by_ranks)(const void *, int, int64_t) = dim->strategy->by_ranks;
        char *of = by_ranks && !by_ranks(dim->keys, along, microbatches)
                       ? choir__strdup("") /* own has the cut */
                       : choir__format(" of %d rank%s", along, along > 1 ? "s" : "");
        char *longer = choir__format("%s%s%s%s", all, *all ? " + " : "", own, of);
        free(of);
        free(own);
        free(all);
        all = longer;
    }
    return all;
}

const char *choir__strategy_end(const char *list)
{
    const char *end = list + strcspn(list, ",");
    while (*end) {
        const char *next = end + 1;
        size_t name = strcspn(next, ":,=");
        if (next[name] != '=')
            break;
        end = next + strcspn(next, ",");
    }
    return end;
}
