/* From a checkpoint's state.json to a module with its weights. */
#include "cli/saved.h"

#include <limits.h>
#include <stdio.h>

#include "checkpoint/checkpoint.h"

choir_status choir__saved_open(const char *path, uint64_t seed, choir__saved *s)
{
    char found[PATH_MAX];
    choir__train_state state;
    const choir__model_spec *spec;
    *s = (choir__saved){0};
    choir_status status = choir__checkpoint_find(path, found);
    if (status == CHOIR_OK)
        status = choir__checkpoint_state(found, &state);
    if (status == CHOIR_OK)
        status = choir__model_find(state.model, &spec);
    if (status != CHOIR_OK)
        return status;
    s->step = state.step;
    s->info.input = state.input;
    s->info.output = state.output;
    s->info.classes = state.classes;
    s->run = choir_scope_open(NULL, seed);
    status = spec->describe(state.model, &s->info);
    if (status == CHOIR_OK)
        status = spec->build(state.model, s->run, &s->info, &s->net);
    if (status == CHOIR_OK)
        status = choir__checkpoint_load(found, s->net, NULL);
    if (status == CHOIR_OK)
        status = choir__checkpoint_tokenizer(found, &s->tokenizer);
    return status;
}

void choir__saved_close(choir__saved *s)
{
    choir_tokenizer_free(s->tokenizer);
    choir_scope_close(s->run);
}
