/* Loading published weights: see published.h.
 *
 * The entries of all files form one sorted list. Each tensor of the model searches it for its
 * own name, for that name without the prefix, for the names that older files have in its place,
 * and for the names that it is tied to, and takes the entry it finds. Entries that remain must
 * be known as irrelevant to the model. */
#include "checkpoint/weights/published.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/stored.h"
#include "checkpoint/shards.h"
#include "nn/lora.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

/* A tensor of a module, for reading from a safetensors file. */
typedef struct named {
    char *name;
    choir_tensor *tensor;
    const choir__st_tensor *stored; /* entry of the tensor in a file, once matched */
} named;

/* Sorted by name. One block of host memory holds the data being copied. */
typedef struct named_list {
    named *items;
    int count;
    bool adapters; /* adapters and modules beside them, instead of the model's own weights */
    void *host;
} named_list;

/* --- weights ---
 *
 * Copying weights to and from files: check everything, then copy everything. */

/* Adds a tensor to a list; has the form of a choir_visit_fn. */
static void add_named(const char *name, choir_tensor *t, void *arg)
{
    named_list *list = arg;
    const choir__param *p = t->param;
    if (list->adapters ? !p || !(p->adapts || p->beside_adapters) : p && p->adapts)
        return;
    CHOIR__GROW(list->items, list->count);
    list->items[list->count++] = (named){choir__strdup(name), t, NULL};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static void sort_named(named_list *list)
{
    if (list->count)
        qsort(list->items, (size_t)list->count, sizeof *list->items, by_name);
}

/* Lists the parameters and buffers of a module. Error: the run's. */
static choir_status list_module(named_list *list, choir_module *module)
{
    choir_module_visit(module, true, add_named, list);
    sort_named(list);
    return choir__scope_status(module->run);
}

static void free_list(named_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i].name);
    free(list->items);
    free(list->host);
    *list = (named_list){0};
}

static size_t bytes_of(const choir_tensor *t)
{
    return (size_t)t->count * choir_dtype_size(t->dtype);
}

/* The user's model determines the size, so the allocation may fail without ending the
 * process. */
static choir_status get_host(named_list *list, size_t bytes, const char *path)
{
    free(list->host);
    list->host = malloc(bytes + 1);
    if (!list->host)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes", path, bytes);
    return CHOIR_OK;
}

/* --- reading --- */

static choir_status check_finite(const char *path, const choir__st_tensor *t)
{
    choir__checked what = {path, t->name, t->shape, t->dtype, false};
    return choir__check_finite(
        CHOIR_ERR_FORMAT, &what, t->data, t->bytes / choir_dtype_size(t->dtype));
}

static bool is_transposed(choir_shape a, choir_shape b)
{
    return a.ndim == 2 && b.ndim == 2 && a.dim[0] == b.dim[1] && a.dim[1] == b.dim[0];
}

/* For callers that match tensors by themselves. accept checks that a tensor can be
 * restored from `stored` and records it. make_ready, called last, allocates memory for
 * copying. */
static choir_status accept(
    named *item, const choir__st_tensor *s, const char *path, const char *what, bool finite)
{
    const choir_tensor *t = item->tensor;
    bool counter = t->dtype == CHOIR_I64;
    if (!choir__same_shape(s->shape, t->shape))
        return choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' is %s, but the %s's is %s%s",
            path, s->name, choir__shape_text(s->shape), what, choir__shape_text(t->shape),
            is_transposed(s->shape, t->shape) ? "; its transpose would fit" : "");
    if (!choir__convertible(t->dtype, s->dtype))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s' is %s, which cannot become %s", path, s->name,
            choir_dtype_name(s->dtype), choir_dtype_name(t->dtype));
    item->stored = s;
    return finite && !counter ? check_finite(path, s) : CHOIR_OK;
}

static choir_status make_ready(named_list *list, const char *path)
{
    size_t largest = 0;
    for (int i = 0; i < list->count; i++) {
        size_t bytes = bytes_of(list->items[i].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    return get_host(list, largest, path); /* now: copying must not fail */
}

/* Copies every tensor that was matched; others stay unchanged. */
static choir_status restore_all(named_list *list)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < list->count && status == CHOIR_OK; i++) {
        choir_tensor *t = list->items[i].tensor;
        const choir__st_tensor *stored = list->items[i].stored;
        if (!stored && t->dtype != CHOIR_I64)
            continue;
        if (t->dtype != CHOIR_I64)
            choir__numbers_convert(
                list->host, t->dtype, stored->data, stored->dtype, (size_t)t->count);
        else if (stored)
            memcpy(list->host, stored->data, bytes_of(t));
        else
            memset(list->host, 0, bytes_of(t));
        status = choir_write(t, list->host, bytes_of(t));
    }
    return status;
}

/* Entries that are not parameters in any model: counters that only averages without momentum
 * need. */
static const char *const never[] = {"*.num_batches_tracked", "num_batches_tracked", NULL};

typedef struct tie {
    char *name;
    choir_tensor *tensor;
} tie;

typedef struct load {
    choir__file_shards files;
    named_list list; /* the model's, by name */
    tie *ties;
    int tie_count;
    choir__published_opts opts;
    bool adapts; /* the module has adapters */
    char *notes;
} load;

/* --- names --- */

static bool matches(const char *const *patterns, const char *name)
{
    for (; patterns && *patterns; patterns++)
        if (fnmatch(*patterns, name, 0) == 0)
            return true;
    return false;
}

static bool is_ignored(const load *l, const char *name)
{
    return matches(never, name) || (l->opts.names && matches(l->opts.names->ignored, name));
}

static bool may_start_anew(const load *l, const char *name)
{
    return l->opts.head != CHOIR_HEAD_KEPT && l->opts.names &&
           matches(l->opts.names->fresh, name);
}

/* Returns whether the file's entry belongs to the head that the model's own replaces. */
static bool is_replaced(const load *l, const named *item, const choir__shard_entry *e)
{
    return l->opts.head == CHOIR_HEAD_REPLACED && may_start_anew(l, item->name) &&
           !choir__same_shape(e->tensor->shape, item->tensor->shape);
}

/* Returns the number of one-character changes between a and b. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t *row = choir__alloc((m + 1) * sizeof *row);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    size_t result = row[m];
    free(row);
    return result;
}

/* Returns the free entry whose name is closest to `name`, or NULL if none is close. */
static const choir__shard_entry *nearest(const load *l, const char *name)
{
    const choir__shard_entry *found = NULL;
    size_t best = strlen(name) / 3 + 1;
    for (int i = 0; i < l->files.count && strlen(name) < 200; i++) {
        const choir__shard_entry *e = &l->files.entries[i];
        if (e->used || is_ignored(l, e->tensor->name) || strlen(e->tensor->name) >= 200)
            continue;
        size_t d = distance(name, e->tensor->name);
        if (d < best) {
            best = d;
            found = e;
        }
    }
    return found;
}

/* --- one tensor of the model --- */

/* Finds a name behind the lead that all names of the file have. */
static choir__shard_entry *find_led(load *l, const char *name)
{
    char *led = choir__format("%s%s", l->opts.lead ? l->opts.lead : "", name);
    choir__shard_entry *e = choir__file_shards_find(&l->files, led);
    free(led);
    return e;
}

/* Finds a name, or that name without the prefix. */
static choir__shard_entry *find_spelling(load *l, const char *name)
{
    const char *prefix = l->opts.names ? l->opts.names->prefix : NULL;
    choir__shard_entry *e = find_led(l, name);
    if (!e && prefix && !strncmp(name, prefix, strlen(prefix)))
        e = find_led(l, name + strlen(prefix));
    return e;
}

/* Finds a name as files have it today, or as older ones have it. */
static choir__shard_entry *find_name(load *l, const char *name)
{
    const choir__older_name *row = l->opts.names ? l->opts.names->older : NULL;
    choir__shard_entry *e = find_spelling(l, name);
    for (; row && row->name && !e; row++) {
        size_t length = strlen(name), end = strlen(row->name);
        if (length < end || strcmp(name + length - end, row->name) != 0)
            continue;
        char *older = choir__format("%.*s%s", (int)(length - end), name, row->older);
        e = find_spelling(l, older);
        free(older);
    }
    return e;
}

static choir_status take(load *l, named *item, choir__shard_entry *e)
{
    const choir__st_tensor *had = item->stored, *t = e->tensor;
    const char *path = choir__file_shards_path(&l->files, e);
    e->used = true;
    if (!had) {
        choir_status status = accept(item, t, path, "model", true);
        if (status != CHOIR_OK && !choir__same_shape(t->shape, item->tensor->shape)) {
            char *message = choir__format("%s; the file must be of the model %s%s",
                choir__message(), l->opts.model,
                may_start_anew(l, item->name) ? "; --model NAME:classes=N replaces its head"
                                              : "");
            choir__set_message(message);
            free(message);
        }
        return status;
    }
    if (had->dtype == t->dtype && had->bytes == t->bytes &&
        choir__same_shape(had->shape, t->shape) && !memcmp(had->data, t->data, t->bytes))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: tensors '%.200s' and '%.200s' are one in this model, but differ in the file: one of "
        "them must go",
        path, had->name, t->name);
}

/* Marks the entry of a tensor of the model as used, so that no message suggests it for
 * another. */
static choir__shard_entry *spoken_for(load *l, const char *name)
{
    choir__shard_entry *e = find_name(l, name);
    if (e)
        e->used = true;
    return e;
}

static choir_status missing(load *l, const named *item)
{
    int more = 0;
    for (int i = 0; i < l->list.count; i++)
        more += !spoken_for(l, l->list.items[i].name) && !l->list.items[i].stored &&
                &l->list.items[i] > item;
    for (int i = 0; i < l->tie_count; i++)
        spoken_for(l, l->ties[i].name);
    const choir__shard_entry *near = nearest(l, item->name);
    char *hint = near ? choir__format("; the nearest it has is '%.200s'", near->tensor->name)
                      : choir__strdup("");
    char *rest = more ? choir__format(" (and up to %d after it)", more) : choir__strdup("");
    choir_status status = choir__error(CHOIR_ERR_FORMAT,
        "%s: missing tensor '%.200s' %s of the model%s%s; the file must be of the model %s",
        l->files.path, item->name, choir__shape_text(item->tensor->shape), rest, hint,
        l->opts.model);
    free(rest);
    free(hint);
    return status;
}

static void note(load *l, const char *name, const char *what)
{
    char *longer = choir__format("%s%s%s: tensor '%.200s' %s", l->notes, *l->notes ? "\n" : "",
        l->files.path, name, what);
    free(l->notes);
    l->notes = longer;
}

static choir_status match_item(load *l, named *item)
{
    choir__shard_entry *e = find_name(l, item->name);
    if (e && is_replaced(l, item, e)) {
        e->used = true;
        note(l, item->name, "is of another head, and gets new values");
        return CHOIR_OK;
    }
    choir_status status = e ? take(l, item, e) : CHOIR_OK;
    for (int i = 0; i < l->tie_count && status == CHOIR_OK; i++)
        if (l->ties[i].tensor == item->tensor && (e = find_name(l, l->ties[i].name)))
            status = take(l, item, e);
    if (status != CHOIR_OK || item->stored || item->tensor->dtype == CHOIR_I64) /* a counter */
        return status;
    if (!may_start_anew(l, item->name))
        return missing(l, item);
    if (l->adapts && !item->tensor->requires_grad)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: missing tensor '%.200s', whose new values would be frozen beside adapters: name "
            "its module in modules_to_save of LoRA",
            l->files.path, item->name);
    note(l, item->name, "is missing, and starts with new values");
    return CHOIR_OK;
}

/* --- all of them --- */

static choir_status check_rest(load *l)
{
    for (int i = 0; i < l->files.count; i++) {
        const choir__shard_entry *e = &l->files.entries[i];
        const char *name = e->tensor->name;
        if (e->used || is_ignored(l, name))
            continue;
        if (!may_start_anew(l, name))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: unknown tensor '%.200s' %s; the file must be of the model %s",
                choir__file_shards_path(&l->files, e), name,
                choir__shape_text(e->tensor->shape), l->opts.model);
        note(l, name, "is unknown to this model, and left out");
    }
    return CHOIR_OK;
}

static void add_tie(const char *name, choir_tensor *t, void *arg)
{
    load *l = arg;
    CHOIR__GROW(l->ties, l->tie_count);
    l->ties[l->tie_count++] = (tie){choir__strdup(name), t};
}

choir_status choir__published_load(
    choir_module *module, const char *path, choir__published_opts opts, char **notes)
{
    load l = {.opts = opts, .notes = choir__strdup("")};
    l.list.adapters = opts.lead != NULL;
    l.adapts = choir__has_adapters(module);
    choir_status status = list_module(&l.list, module);
    choir__module_visit_ties(module, add_tie, &l);
    if (status == CHOIR_OK)
        status = choir__file_shards_open(&l.files, path);
    for (int i = 0; i < l.list.count && status == CHOIR_OK; i++)
        status = match_item(&l, &l.list.items[i]);
    if (status == CHOIR_OK)
        status = check_rest(&l);
    if (status == CHOIR_OK)
        status = make_ready(&l.list, path);
    if (status == CHOIR_OK)
        status = restore_all(&l.list);
    choir__file_shards_close(&l.files);
    free_list(&l.list);
    for (int i = 0; i < l.tie_count; i++)
        free(l.ties[i].name);
    free(l.ties);
    if (status == CHOIR_OK)
        *notes = l.notes;
    else
        free(l.notes);
    return status;
}
