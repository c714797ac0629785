/* Parameters by pattern on the command line: --freeze 'bert.*' and --lr-for 'bert.*=1e-5'.
 * Lists are separated by commas; a later pattern wins over an earlier one. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "job/job.h"

/* One entry of a list: "PATTERN" or "PATTERN=RATE". */
typedef struct entry {
    char pattern[256];
    double rate;
    bool matrices, vectors; /* which of its parameters a group takes */
} entry;

static choir_status bad_entry(const char *option, const char *text, int length)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "--%s: expected %s, got '%.*s'", option,
        strcmp(option, "freeze") ? "PATTERN=RATE" : "a pattern of parameters' names", length,
        text);
}

/* Reads the next entry of *list, which moves on; *more is false at the list's end. */
static choir_status next(const char *option, const char **list, entry *e, bool *more)
{
    size_t length = *list ? strcspn(*list, ",") : 0;
    bool rated = !strcmp(option, "lr-for");
    *more = *list && **list;
    if (!*more)
        return CHOIR_OK;
    const char *text = *list;
    *list += length + (text[length] == ',');
    if (length == 0 || length >= sizeof e->pattern)
        return bad_entry(option, text, (int)length);
    memcpy(e->pattern, text, length);
    e->pattern[length] = '\0';
    char *equals = rated ? strrchr(e->pattern, '=') : NULL;
    if (rated &&
        (!equals || equals == e->pattern || !choir__parse_float(equals + 1, 0, 1e12, &e->rate)))
        return bad_entry(option, text, (int)length);
    if (equals)
        *equals = '\0';
    return CHOIR_OK;
}

choir_status choir__job_check_groups(const choir__job *j)
{
    const char *list = j->optim.lr_for;
    bool more = true;
    entry e;
    choir_status status = CHOIR_OK;
    while (more && status == CHOIR_OK)
        status = next("lr-for", &list, &e, &more);
    return status;
}

static choir_status unmatched(const char *option, const char *pattern)
{
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--%s: no parameter of the model has a name that matches '%s'; choir checkpoint inspect "
        "lists names",
        option, pattern);
}

choir_status choir__job_freeze(const choir__job_optim *o, choir_module *net)
{
    const char *frozen = o->freeze, *rates = o->lr_for;
    entry e;
    bool more = true;
    choir_status status = CHOIR_OK;
    while (more && status == CHOIR_OK) {
        status = next("freeze", &frozen, &e, &more);
        if (more && status == CHOIR_OK && !choir_module_freeze_matching(net, e.pattern, true))
            status = unmatched("freeze", e.pattern);
    }
    if (status == CHOIR_OK && o->freeze && choir_module_param_count(net) == 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--freeze %s: all parameters are frozen, so nothing is left to train", o->freeze);
    for (more = true; more && status == CHOIR_OK;) {
        status = next("lr-for", &rates, &e, &more);
        if (more && status == CHOIR_OK && !choir_module_count_matching(net, e.pattern))
            status = unmatched("lr-for", e.pattern);
    }
    return status;
}

static bool is_in_group(const char *name, const choir_tensor *t, void *arg)
{
    const entry *e = arg;
    return fnmatch(e->pattern, name, 0) == 0 &&
           (choir_tensor_ndim(t) < 2 ? e->vectors : e->matrices);
}

choir_status choir__job_groups(
    const choir__job *j, choir_optim *optim, double weight_decay, bool matrices)
{
    const char *list = j->optim.lr_for;
    bool more = true;
    entry e;
    choir_status status = CHOIR_OK;
    while (more && status == CHOIR_OK) {
        status = next("lr-for", &list, &e, &more);
        if (!more || status != CHOIR_OK)
            break;
        e.matrices = true;
        e.vectors = !matrices;
        status = choir_optim_group(optim, is_in_group, &e, (float)e.rate, (float)weight_decay);
        e.matrices = false;
        e.vectors = true;
        if (status == CHOIR_OK && matrices)
            status = choir_optim_group(optim, is_in_group, &e, (float)e.rate, 0);
    }
    return status;
}
