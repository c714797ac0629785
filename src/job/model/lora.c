/* Reads and writes the text of --lora, and adds the adapters to a model. A classifier's new
 * head is trained whole unless the text says otherwise, as peft does; an adapter that is
 * resumed becomes such a text again, so that one path builds both. */
#include "job/model/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "nn/models/models.h"
#include "nn/models/published.h"

#define KEYS(w)                                                                                \
    {                                                                                          \
        {"r", CHOIR__INT, &(w)->r, 1, 1 << 20},                                                \
            {"alpha", CHOIR__FLOAT, &(w)->alpha, 1e-9, 1e9},                                   \
            {"dropout", CHOIR__SINGLE, &(w)->dropout, 0, 0.999},                               \
            {"rslora", CHOIR__FLAG, &(w)->rslora, 0, 1},                                       \
            {"targets", CHOIR__TEXT, (w)->targets, 0, 0},                                      \
            {"modules_to_save", CHOIR__TEXT, (w)->modules_to_save, 0, 0},                      \
        {                                                                                      \
            NULL                                                                               \
        }                                                                                      \
    }

choir_status choir__lora_read(const char *text, choir__lora_words *w)
{
    *w = (choir__lora_words){.r = choir_lora_defaults().rank};
    const choir__option keys[] = KEYS(w);
    char *all = choir__format("lora:%s", text);
    choir_status status = choir__options_parse(all, "--lora", keys);
    free(all);
    if (status == CHOIR_OK && w->alpha == 0)
        w->alpha = 2 * (double)w->r;
    return status;
}

char *choir__lora_text(const choir__lora_words *words)
{
    choir__lora_words w = *words;
    const choir__option keys[] = KEYS(&w);
    char *all = choir__options_text("", keys), *text = choir__strdup(all + 1);
    free(all);
    return text;
}

/* Appends the modules of a classifier's head, as "classifier/pooler.dense",
 * except those that are targets. */
static void head_of(const choir_model_info *info, choir_module *net, choir__lora_words *w)
{
    const choir__model_spec *spec;
    if (info->task == CHOIR_LANGUAGE || choir__model_find(info->config, &spec) != CHOIR_OK ||
        !spec->published)
        return;
    for (const char *const *p = spec->published->fresh; p && *p; p++) {
        const char *name = *p + strspn(*p, "*");
        size_t length = strlen(name), used = strlen(w->modules_to_save);
        if (length < 3 || strcmp(name + length - 2, ".*") != 0 ||
            !choir_module_count_matching(net, *p))
            continue;
        char *module = choir__format("%.*s", (int)length - 2, name),
             *targets = choir__format("/%s/", w->targets),
             *as_target = choir__format("/%s/", module);
        if (!strstr(targets, as_target))
            snprintf(w->modules_to_save + used, sizeof w->modules_to_save - used, "%s%s",
                used ? "/" : "", module);
        free(as_target);
        free(targets);
        free(module);
    }
}

choir_status choir__lora_add(const char *text, const choir_model_info *info, choir_module *net)
{
    choir__lora_words w;
    choir_status status = choir__lora_read(text, &w);
    if (status != CHOIR_OK)
        return status;
    if (!*w.modules_to_save)
        head_of(info, net, &w);
    choir_lora_opts opts = choir_lora_defaults();
    opts.rank = w.r;
    opts.alpha = w.alpha;
    opts.dropout = w.dropout;
    opts.rslora = w.rslora;
    opts.targets = *w.targets ? w.targets : NULL;
    opts.modules_to_save = *w.modules_to_save ? w.modules_to_save : NULL;
    return choir_lora(net, opts);
}

static bool put(char to[256], const char *text)
{
    return snprintf(to, 256, "%s", text ? text : "") < 256;
}

choir_status choir__lora_of_adapter(
    const char *folder, const choir__adapter_file *file, char **text)
{
    const choir_lora_opts *o = &file->opts;
    choir__lora_words w = {
        .r = o->rank, .alpha = o->alpha, .dropout = o->dropout, .rslora = o->rslora};
    if (!put(w.targets, o->targets) || !put(w.modules_to_save, o->modules_to_save))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: its layers have no short list of names: expected adapters of all layers of some "
            "names",
            folder);
    *text = choir__lora_text(&w);
    return CHOIR_OK;
}
