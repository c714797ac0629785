/* From a checkpoint's state.json, or a published config.json, to a module with its weights. */
#include "cli/saved.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/published.h"
#include "checkpoint/state.h"
#include "cli/say.h"
#include "cli/text.h"

static bool has(const char *folder, const char *name)
{
    char *path = choir__format("%s/%s", folder, name);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

/* A folder with config.json and no state of Choir's. */
static bool is_published(const char *path)
{
    return has(path, CHOIR__CONFIG_FILE) && !has(path, CHOIR__STATE_FILE) &&
           !has(path, "latest");
}

static choir_status load_published(
    const char *folder, const choir__model_spec *spec, choir__saved *s)
{
    char *notes = NULL;
    choir__published_opts opts = {.names = spec->published, .model = s->info.config};
    choir_status status = choir__published_load(s->net, folder, opts, &notes);
    if (status == CHOIR_OK)
        choir__cli_notes("", notes);
    free(notes);
    return status == CHOIR_OK ? choir__text_tokenizer_in(folder, &s->tokenizer) : status;
}

static choir_status open_published(const char *folder, uint64_t seed, choir__saved *s)
{
    char *text = NULL, *notes = NULL;
    const choir__model_spec *spec = NULL;
    choir_status status = choir__config_read(folder, &text, &notes);
    if (status != CHOIR_OK)
        return status;
    choir__cli_notes("", notes);
    s->seed = seed;
    s->run = choir_scope_open(NULL, seed);
    status = choir__model_find(text, &spec);
    if (status == CHOIR_OK)
        status = spec->describe(text, &s->info);
    if (status == CHOIR_OK)
        status = spec->build(s->info.config, s->run, &s->info, &s->net);
    if (status == CHOIR_OK)
        status = load_published(folder, spec, s);
    free(notes);
    free(text);
    return status;
}

choir_status choir__saved_open(const char *path, uint64_t seed, choir__saved *s)
{
    char found[PATH_MAX];
    choir__train_state state;
    const choir__model_spec *spec;
    *s = (choir__saved){0};
    if (is_published(path))
        return open_published(path, seed, s);
    choir_status status = choir__checkpoint_find(path, found);
    if (status == CHOIR_OK)
        status = choir__checkpoint_state(found, &state);
    if (status == CHOIR_OK)
        status = choir__model_find(state.model, &spec);
    if (status != CHOIR_OK)
        return status;
    s->step = state.step;
    s->seed = state.seed;
    s->info.input = state.input;
    s->info.output = state.output;
    s->info.classes = state.classes;
    s->run = choir_scope_open(NULL, seed);
    status = spec->describe(state.model, &s->info);
    if (status == CHOIR_OK)
        status = spec->build(state.model, s->run, &s->info, &s->net);
    if (status == CHOIR_OK)
        status = choir__checkpoint_load(found, s->net, NULL, NULL);
    if (status == CHOIR_OK)
        status = choir__checkpoint_tokenizer(found, &s->tokenizer);
    return status;
}

void choir__saved_close(choir__saved *s)
{
    choir_tokenizer_free(s->tokenizer);
    choir_scope_close(s->run);
}
