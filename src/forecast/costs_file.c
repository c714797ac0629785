/* Tables of costs as JSON files, one for each kind of device, with the key of the machine. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/named.h"
#include "device/device.h"
#include "forecast/costs.h"

static const char *const kernels[] = {
#define X(name) #name,
    CHOIR__KERNEL_LIST(X)
#undef X
};
static const choir__name_table kernel_names = CHOIR__NAME_TABLE(kernels);

/* --- the machine --- */

/* Writes the model of this machine's processor. */
static void processor(char *text, size_t bytes)
{
    char line[256];
    FILE *f = choir__file_try_stream("/proc/cpuinfo");
    snprintf(text, bytes, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

choir_status choir__costs_key(const char *kind, char key[CHOIR__COST_KEY])
{
    char name[32], model[128], signature[CHOIR__SIGNATURE];
    snprintf(name, sizeof name, "%s:0", kind);
    choir_device *device = choir_device_find(name);
    if (!device)
        return CHOIR_ERR_DEVICE;
    choir__device_facts facts = {.gpu = -1};
    processor(model, sizeof model);
    if (choir__device_describe(kind, 0, &facts))
        snprintf(model, sizeof model, "%.100s", facts.model);
    choir__device_signature(device, signature);
    snprintf(
        key, CHOIR__COST_KEY, "%s: %s, Choir %s, %s", kind, model, CHOIR_VERSION, signature);
    choir__clean(key);
    return CHOIR_OK;
}

char *choir__costs_path(const char *kind)
{
    const char *given = getenv("CHOIR_COSTS"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (given && *given)
        return choir__strdup(given);
    if (cache && *cache)
        return choir__format("%s/choir/costs-%s.json", cache, kind);
    return choir__format("%s/.cache/choir/costs-%s.json", home ? home : "", kind);
}

/* --- reading --- */

/* Returns a figure; 0, if no machine can have it. */
static double number_of(const json_t *object, const char *key)
{
    const double x = json_number_value(json_object_get(object, key));
    return x > 0 && x < 1e30 ? x : 0;
}

/* A time or a share of one. */
static double seconds_of(const json_t *object, const char *key)
{
    const double x = number_of(object, key);
    return x < 1e6 ? x : 0;
}

static choir_status read_kernel(const json_t *k, choir__costs *costs)
{
    const char *name = json_string_value(json_object_get(k, "name")),
               *type = json_string_value(json_object_get(k, "dtype"));
    const json_t *dims = json_object_get(k, "dims");
    const int at = name ? choir__find_named(&kernel_names, name) : -1;
    choir__cost_call call = {.kernel = at, .flops = number_of(k, "flops")};
    if (at < 0)
        return choir__unknown_name(&kernel_names, "kernel", name ? name : "");
    for (int d = 0; d < CHOIR_DTYPE_COUNT; d++)
        if (type && strcmp(choir_dtype_name((choir_dtype)d), type) == 0)
            call.dtype = (choir_dtype)d;
    call.bytes = number_of(k, "bytes");
    for (size_t d = 0; d < CHOIR__STEP_DIMS; d++)
        call.dims[d] = json_integer_value(json_array_get(dims, d));
    if (seconds_of(k, "seconds") > 0)
        choir__costs_append(costs, &call, seconds_of(k, "seconds"), seconds_of(k, "spread"));
    return CHOIR_OK;
}

static choir_status read_table(
    const char *path, const json_t *root, const char *key, choir__costs *costs)
{
    const char *has = json_string_value(json_object_get(root, "key"));
    const json_t *list = json_object_get(root, "kernels");
    choir_status status = CHOIR_OK;
    if (!has || !json_is_array(list))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s: expected a table of choir plan --calibrate", path);
    snprintf(costs->key, sizeof costs->key, "%s", has);
    choir__clean(costs->key);
    if (key && strcmp(costs->key, key) != 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was measured on another machine or build: it has '%s', expected '%s'; choir plan "
            "--calibrate measures this one",
            path, costs->key, key);
    for (size_t i = 0; i < json_array_size(list) && !status; i++)
        status = read_kernel(json_array_get(list, i), costs);
    choir__costs_sort(costs);
    costs->task_s = seconds_of(root, "task_s");
    costs->step_s = seconds_of(root, "step_s");
    costs->alpha_s = seconds_of(root, "alpha_s");
    costs->beta_bytes_s = number_of(root, "beta_bytes_s");
    return status;
}

choir_status choir__costs_read(const char *path, const char *key, choir__costs *costs)
{
    json_error_t why;
    *costs = (choir__costs){.row_count = 0};
    json_t *root = choir__file_json(path, 0, &why);
    if (!root)
        return choir__error(
            why.line < 0 ? CHOIR_ERR_IO : CHOIR_ERR_ARGUMENT, "%s: %s", path, why.text);
    choir_status status = read_table(path, root, key, costs);
    json_decref(root);
    if (status)
        choir__costs_free(costs);
    return status;
}

/* --- writing --- */

static json_t *sample_json(const choir__cost_sample *s)
{
    const choir__cost_call *c = &s->call;
    return json_pack("{ss,ss,sf,sf,s[IIII],sf,sf}", "name", kernels[c->kernel], "dtype",
        choir_dtype_name(c->dtype), "flops", c->flops, "bytes", c->bytes, "dims",
        (json_int_t)c->dims[0], (json_int_t)c->dims[1], (json_int_t)c->dims[2],
        (json_int_t)c->dims[3], "seconds", s->seconds, "spread", s->spread);
}

choir_status choir__costs_write(const char *path, const choir__costs *costs)
{
    json_t *list = json_array();
    for (int r = 0; r < costs->row_count; r++)
        for (int i = 0; i < costs->rows[r].count; i++)
            json_array_append_new(list, sample_json(&costs->rows[r].samples[i]));
    json_t *root = json_pack("{ss,sf,sf,sf,sf,so}", "key", costs->key, "task_s", costs->task_s,
        "step_s", costs->step_s, "alpha_s", costs->alpha_s, "beta_bytes_s", costs->beta_bytes_s,
        "kernels", list);
    FILE *f = choir__file_try_output(path);
    bool written = f && json_dumpf(root, f, JSON_INDENT(1)) == 0;
    if (f)
        written = fclose(f) == 0 && written;
    json_decref(root);
    return written ? CHOIR_OK : choir__error(CHOIR_ERR_IO, "%s: cannot write the table", path);
}
