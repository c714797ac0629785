/* Reads an adapter's folder in peft's form: its configuration, and which layers have
 * adapters. The layers come from the names of the stored weights, because the configuration
 * may have a regular expression, or names that match nothing. Loading compares the base's
 * hash, if the adapter states it, and then reads the weights as a published model's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/hold.h>

#include "base/files/file.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/weights/adapter.h"
#include "checkpoint/weights/published.h"
#include "nn/models/models.h"
#include "nn/models/published.h"
#include "nn/module.h"

#define END_A ".lora_A.weight"
#define END_B ".lora_B.weight"

bool choir__is_adapter(const char *path)
{
    return choir__is_folder(path) && choir__folder_has(path, CHOIR__ADAPTER_CONFIG) &&
           !choir__folder_has(path, "config.json");
}

/* --- the configuration --- */

/* Keys that change what an adapter computes, in ways that Choir lacks; null, false and empty
 * values are as if they were absent. */
static const char *const unsupported[] = {"use_dora", "use_qalora", "use_bdlora", "lora_bias",
    "rank_pattern", "alpha_pattern", "layer_replication", "target_parameters",
    "trainable_token_indices", "alora_invocation_tokens", "arrow_config", "kasa_config",
    "monteclora_config", "velora_config"};
/* Initial values that are taken out of the base's weights, which are then others. */
static const char *const other_bases[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && !json_object_size(value)) ||
           (json_is_array(value) && !json_array_size(value));
}

static choir_status refuse(const char *path, const char *key, const json_t *value)
{
    char *spelled = choir__config_spelled(value);
    choir_status status = choir__error(
        CHOIR_ERR_FORMAT, "%s: key '%s' is %s: Choir has no such adapters", path, key, spelled);
    free(spelled);
    return status;
}

static choir_status check_kind(const char *path, const json_t *root)
{
    const json_t *kind = json_object_get(root, "peft_type"),
                 *bias = json_object_get(root, "bias"),
                 *init = json_object_get(root, "init_lora_weights");
    const char *name = json_string_value(kind);
    if (!name || strcmp(name, "LORA") != 0)
        return refuse(path, "peft_type", kind ? kind : json_null());
    if (bias && json_string_value(bias) && strcmp(json_string_value(bias), "none") != 0)
        return refuse(path, "bias", bias);
    for (size_t i = 0; i < CHOIR_COUNT(unsupported); i++)
        if (!is_empty(json_object_get(root, unsupported[i])))
            return refuse(path, unsupported[i], json_object_get(root, unsupported[i]));
    for (size_t i = 0; json_is_string(init) && i < CHOIR_COUNT(other_bases); i++)
        if (!strncmp(json_string_value(init), other_bases[i], strlen(other_bases[i])))
            return refuse(path, "init_lora_weights", init);
    return CHOIR_OK;
}

static choir_status read_number(
    const char *path, const json_t *root, const char *key, double low, double high, double *x)
{
    const json_t *value = json_object_get(root, key);
    if (is_empty(value))
        return CHOIR_OK;
    if (json_is_number(value) && json_number_value(value) >= low &&
        json_number_value(value) <= high) {
        *x = json_number_value(value);
        return CHOIR_OK;
    }
    char *spelled = choir__config_spelled(value);
    choir_status status = choir__error(CHOIR_ERR_FORMAT,
        "%s: key '%s': expected a number from %g to %g, got %s", path, key, low, high, spelled);
    free(spelled);
    return status;
}

/* Appends a name to a list that '/' separates, once. */
static void append(char **list, const char *name, size_t length)
{
    char *before = choir__format("/%s/", *list ? *list : ""),
         *each = choir__format("/%.*s/", (int)length, name);
    if (!strstr(before, each)) {
        char *longer =
            choir__format("%s%s%.*s", *list ? *list : "", *list ? "/" : "", (int)length, name);
        free(*list);
        *list = longer;
    }
    free(before);
    free(each);
}

/* --- names of weights --- */

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static bool file_has(const choir__st_file *file, const char *name)
{
    int i = 0;
    while (i < choir__st_count(file) && strcmp(choir__st_get(file, i)->name, name) != 0)
        i++;
    return i < choir__st_count(file);
}

static bool is_copy(const choir__st_file *file, const char *name)
{
    char *twin = choir__adapter_twin(name);
    bool found = choir__adapter_copies_base(name) || (twin && file_has(file, twin));
    free(twin);
    return found;
}

/* Collects the layers of the file, whole or by their last names, and the modules whose own
 * weights it has. */
static void name_modules(const choir__st_file *file, bool whole, char **targets, char **saved)
{
    for (int i = 0; i < choir__st_count(file); i++) {
        const char *name = choir__st_get(file, i)->name;
        if (strncmp(name, CHOIR__ADAPTER_LEAD, strlen(CHOIR__ADAPTER_LEAD)) != 0 ||
            ends(name, END_B))
            continue; /* loading refuses other names */
        if (is_copy(file, name))
            continue;
        name += strlen(CHOIR__ADAPTER_LEAD);
        bool adapts = ends(name, END_A);
        const char *last = adapts ? name + strlen(name) - strlen(END_A) : strrchr(name, '.');
        size_t length = last ? (size_t)(last - name) : strlen(name), from = length;
        while (adapts && !whole && from > 0 && name[from - 1] != '.')
            from--;
        if (adapts)
            append(targets, name + (whole ? 0 : from), length - (whole ? 0 : from));
        else
            append(saved, name, length);
    }
}

static choir_status read_names(const char *folder, const json_t *root, choir__adapter_file *a)
{
    char *path = choir__format("%s/" CHOIR__ADAPTER_WEIGHTS, folder), *targets = NULL,
         *saved = NULL;
    bool some = !is_empty(json_object_get(root, "layers_to_transform")) ||
                !is_empty(json_object_get(root, "exclude_modules"));
    choir__st_file *file = NULL;
    choir_status status =
        !choir__folder_has(folder, CHOIR__ADAPTER_WEIGHTS) &&
                choir__folder_has(folder, "adapter_model.bin")
            ? choir__error(CHOIR_ERR_FORMAT,
                  "%s has adapter_model.bin, a pickled program, which Choir does not run: save the "
                  "adapter as safetensors",
                  folder)
            : choir__st_open(path, &file);
    if (status == CHOIR_OK)
        name_modules(file, some, &targets, &saved);
    if (status == CHOIR_OK && !targets)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: no tensor has a name like " CHOIR__ADAPTER_LEAD "PATH" END_A, path);
    a->opts.targets = targets;
    a->opts.modules_to_save = saved;
    choir__st_close(file);
    free(path);
    return status;
}

choir_status choir__adapter_read(const char *folder, choir__adapter_file *a)
{
    *a = (choir__adapter_file){.opts = choir_lora_defaults()};
    if (choir__is_hub_name(folder))
        return choir__file_absent(folder, CHOIR__HUB_ADAPTER);
    char *path = choir__format("%s/" CHOIR__ADAPTER_CONFIG, folder);
    json_error_t why;
    json_t *root = choir__file_json(path, 0, &why);
    double rank = 8, alpha = 8, dropout = 0; /* peft's */
    choir_status status = json_is_object(root)
                              ? check_kind(path, root)
                              : choir__error(CHOIR_ERR_FORMAT, "%s: %s", path,
                                    root ? "expected a JSON object" : why.text);
    if (status == CHOIR_OK)
        status = read_number(path, root, "r", 1, 1 << 20, &rank);
    if (status == CHOIR_OK)
        status = read_number(path, root, "lora_alpha", 1e-9, 1e9, &alpha);
    if (status == CHOIR_OK)
        status = read_number(path, root, "lora_dropout", 0, 0.999, &dropout);
    a->opts.rank = (int64_t)rank;
    a->opts.alpha = alpha;
    a->opts.dropout = (float)dropout;
    a->opts.rslora = json_is_true(json_object_get(root, "use_rslora"));
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    a->base = base && *base ? choir__strdup(base) : NULL;
    if (status == CHOIR_OK)
        status = read_names(folder, root, a);
    json_decref(root);
    free(path);
    return status;
}

void choir__adapter_free(choir__adapter_file *a)
{
    free((char *)(uintptr_t)a->opts.targets);
    free((char *)(uintptr_t)a->opts.modules_to_save);
    free(a->base);
    *a = (choir__adapter_file){0};
}

/* --- the weights --- */

static choir_status check_base(
    choir_module *module, const char *folder, const char *path, choir_group *group)
{
    char hex[65];
    choir__st_file *file = NULL;
    choir_status status = choir__st_open(path, &file);
    const char *base =
        status == CHOIR_OK ? choir__st_metadata(file, CHOIR__ADAPTER_HASHED) : NULL;
    bool known = base != NULL;
    status = choir__agree(group, status);
    if (status == CHOIR_OK && known)
        status = choir__base_sha256(module, group, hex);
    if (status == CHOIR_OK && known && choir__rank_of(group) == 0 && strcmp(base, hex) != 0)
        status = choir__error(CHOIR_ERR_MISMATCH,
            "%s is an adapter of another base: its base's weights have the SHA-256 %.12s..., these "
            "%.12s...",
            folder, base, hex);
    choir__st_close(file);
    return choir__agree(group, status);
}

/* --- one half of two tied weights ---
 *
 * peft saves modules whole, also one of two that share a weight; it then adapts a copy of that
 * one, unless ensure_weight_tying says otherwise. Here both are one weight. */

typedef struct halves {
    const choir__st_file *file;
    char *alone; /* name of the second half of a tie whose halves are not both there; or NULL */
} halves;

static bool has_module(const choir__st_file *file, const char *name)
{
    char *whole = choir__format(CHOIR__ADAPTER_LEAD "%s", name);
    bool has = file_has(file, whole);
    free(whole);
    return has;
}

static void look_at_tie(const char *name, choir_tensor *t, void *arg)
{
    halves *h = arg;
    bool first = t->param && has_module(h->file, t->param->name);
    if (!h->alone && first != has_module(h->file, name))
        h->alone = choir__strdup(name);
}

/* Error: unsupported: the adapter has one half of a tied weight, and peft would not tie it. */
static choir_status check_halves(choir_module *module, const char *folder, const char *path)
{
    halves h = {0};
    choir__st_file *file = NULL;
    json_t *root = choir__file_json_in(folder, CHOIR__ADAPTER_CONFIG);
    bool copies = !json_is_true(json_object_get(root, "ensure_weight_tying")) &&
                  !is_empty(json_object_get(root, "modules_to_save"));
    json_decref(root);
    choir_status status = copies ? choir__st_open(path, &file) : CHOIR_OK;
    h.file = file;
    if (file)
        choir__module_visit_ties(module, look_at_tie, &h);
    if (h.alone)
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: modules_to_save has one of the two modules that share %s, which peft adapts as a "
            "copy: save the adapter with ensure_weight_tying=True, or with both modules",
            folder, h.alone);
    choir__st_close(file);
    free(h.alone);
    return status;
}

choir_status choir__adapter_load(
    choir_module *module, const char *model, const char *folder, choir_group *group)
{
    const choir__model_spec *spec;
    char *path = choir__format("%s/" CHOIR__ADAPTER_WEIGHTS, folder), *notes = NULL;
    choir__published_opts opts = {.model = model, .lead = CHOIR__ADAPTER_LEAD};
    if (choir__model_find(model, &spec) == CHOIR_OK)
        opts.names = spec->published;
    /* held weights are rounded, so their hash differs */
    bool held = choir_module_held_bytes(module) > 0;
    choir_status status = held ? CHOIR_OK : check_base(module, folder, path, group);
    if (status == CHOIR_OK)
        status = choir__agree(group, check_halves(module, folder, path));
    if (status == CHOIR_OK)
        status = choir__published_load(module, path, opts, &notes);
    free(notes);
    free(path);
    return status;
}

choir_status choir_adapter_load(
    choir_module *module, const choir_model_info *info, const char *folder)
{
    choir__adapter_file file = {0};
    choir_status status = choir__use_module(module, __func__);
    if (status == CHOIR_OK && !folder)
        status = choir__missing(__func__, "folder");
    if (status == CHOIR_OK)
        status = choir__adapter_read(folder, &file);
    if (status == CHOIR_OK)
        status = choir_lora(module, file.opts);
    if (status == CHOIR_OK)
        status =
            choir__adapter_load(module, info ? info->config : module->type->name, folder, NULL);
    choir__adapter_free(&file);
    return status;
}
