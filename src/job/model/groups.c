/* Parameters by pattern on the command line: --freeze 'bert.*' and --lr-for 'bert.*=1e-5'.
 * Lists are separated by commas; a later pattern wins over an earlier one. */
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf/import.h"
#include "job/job.h"
#include "job/model/base.h"
#include "job/model/lora.h"

/* A list of patterns, and the rest of it that is not read yet. */
typedef struct list {
    const char *option, *rest, *form; /* form: an entry, as messages name it */
    bool rated;                       /* entries are PATTERN=RATE */
} list;

typedef struct entry {
    char pattern[256];
    double rate;
    bool matrices, vectors; /* which of its parameters a group takes */
} entry;

static list frozen_of(const char *patterns)
{
    return (list){"freeze", patterns, "a pattern of parameters' names", false};
}

static list rates_of(const choir__job_optim *o)
{
    return (list){"lr-for", o->lr_for, "PATTERN=RATE", true};
}

static choir_status bad_entry(const list *l, const char *text, int length)
{
    return choir__error(
        CHOIR_ERR_ARGUMENT, "--%s: expected %s, got '%.*s'", l->option, l->form, length, text);
}

/* Reads the list's next entry; *more is false at its end. */
static choir_status next(list *l, entry *e, bool *more)
{
    const char *text = l->rest;
    size_t length = text ? strcspn(text, ",") : 0;
    *more = text && *text;
    if (!*more)
        return CHOIR_OK;
    l->rest += length + (text[length] == ',');
    if (length == 0 || length >= sizeof e->pattern)
        return bad_entry(l, text, (int)length);
    memcpy(e->pattern, text, length);
    e->pattern[length] = '\0';
    char *equals = l->rated ? strrchr(e->pattern, '=') : NULL;
    if (l->rated &&
        (!equals || equals == e->pattern || !choir__parse_float(equals + 1, 0, 1e12, &e->rate)))
        return bad_entry(l, text, (int)length);
    if (equals)
        *equals = '\0';
    return CHOIR_OK;
}

choir_status choir__job_check_groups(const choir__job_optim *o)
{
    list rates = rates_of(o);
    bool more = true;
    entry e;
    choir__lora_words lora;
    choir_status status = o->lora ? choir__lora_read(o->lora, &lora) : CHOIR_OK;
    while (more && status == CHOIR_OK)
        status = next(&rates, &e, &more);
    return status;
}

/* Calls `match`, which returns a number of parameters, with each pattern of the list. Error: it
 * returns 0. */
static choir_status match_all(
    list l, choir_module *net, int (*match)(choir_module *net, const char *pattern))
{
    entry e;
    bool more = true;
    choir_status status = CHOIR_OK;
    while (more && status == CHOIR_OK) {
        status = next(&l, &e, &more);
        if (more && status == CHOIR_OK && !match(net, e.pattern))
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "--%s: no parameter of the model has a name that matches '%s'; choir "
                "checkpoint inspect lists names",
                l.option, e.pattern);
    }
    return status;
}

static int freeze(choir_module *net, const char *pattern)
{
    return choir_module_freeze_matching(net, pattern, true);
}

choir_status choir__freeze_all(const char *patterns, choir_module *net)
{
    return match_all(frozen_of(patterns), net, freeze);
}

/* Returns where frozen weights come from, whose types they keep: a GGUF file, or the checkpoint
 * that the job continues from, which is another one after each restart; NULL: neither. path:
 * PATH_MAX bytes. */
static const char *types_from(const choir__job *j, char *path)
{
    const char *weights = j->model.weights;
    if (!j->saves.resume)
        return weights && choir__is_gguf_file(weights) ? weights : NULL;
    return choir_training_find(j->saves.resume, path) == CHOIR_OK && choir__is_folder(path)
               ? path
               : NULL;
}

choir_status choir__job_freeze(const choir__job *j, choir_module *net)
{
    char path[PATH_MAX];
    const choir__job_optim *o = &j->optim;
    choir_status status = o->lora ? choir__lora_add(o->lora, &j->model.info, net) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = choir__freeze_all(o->freeze, net);
    if (status == CHOIR_OK && o->freeze && choir_module_param_count(net) == 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--freeze %s: all parameters are frozen, so nothing is left to train", o->freeze);
    if (status == CHOIR_OK)
        status = choir__base_hold(o->base, o->amp, types_from(j, path), net);
    return status == CHOIR_OK ? match_all(rates_of(o), net, choir_module_count_matching)
                              : status;
}

static bool is_in_group(const char *name, const choir_tensor *t, void *arg)
{
    const entry *e = arg;
    return fnmatch(e->pattern, name, 0) == 0 &&
           (choir_tensor_ndim(t) < 2 ? e->vectors : e->matrices);
}

choir_status choir__job_groups(
    const choir__job_optim *o, choir_optim *optim, double weight_decay, bool matrices)
{
    list rates = rates_of(o);
    bool more = true;
    entry e;
    choir_status status = CHOIR_OK;
    while (more && status == CHOIR_OK) {
        status = next(&rates, &e, &more);
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
