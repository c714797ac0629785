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

#include "checkpoint/format/packed.h"
#include "checkpoint/stored.h"
#include "checkpoint/weights/adapter.h"
#include "checkpoint/shards.h"
#include "checkpoint/weights/named.h"
#include "nn/lora.h"
#include "tensor/held.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

/* Entries that are not parameters in any model: counters that only averages without momentum
 * need. */
static const char *const never[] = {"*.num_batches_tracked", "num_batches_tracked", NULL};

typedef struct tie {
    char *name;
    choir_tensor *tensor;
} tie;

/* Kinds of notes about tensors; each kind is one line. */
typedef enum notice { REPLACED, MISSING, UNKNOWN, RESIZED, NOTICES } notice;

typedef struct noted {
    char *names; /* tensors of this notice, as "'a', 'b'"; NULL: no tensor */
    int count;
} noted;

typedef struct load {
    choir__file_shards files;
    choir__named_list list; /* the model's, by name */
    tie *ties;
    int tie_count;
    choir__published_opts opts;
    bool adapts; /* the module has adapters */
    noted noted[NOTICES];
    choir__st_tensor fitted; /* in place of an entry of another shape; data NULL: none is */
} load;

/* --- names --- */

static bool matches(const char *const *patterns, const char *name)
{
    for (; patterns && *patterns; patterns++)
        if (fnmatch(*patterns, name, 0) == 0)
            return true;
    return false;
}

static bool is_copy(const load *l, const char *name)
{
    char *twin = l->opts.lead ? choir__adapter_twin(name) : NULL;
    bool found = twin && choir__file_shards_find(&l->files, twin);
    free(twin);
    return found;
}

static bool is_ignored(const load *l, const char *name)
{
    return matches(never, name) || is_copy(l, name) ||
           (l->opts.lead && choir__adapter_copies_base(name)) ||
           (l->opts.names && matches(l->opts.names->ignored, name));
}

static bool may_start_anew(const load *l, const char *name)
{
    return l->opts.head != CHOIR_HEAD_KEPT && l->opts.names &&
           matches(l->opts.names->fresh, name);
}

/* Returns whether the file's entry belongs to the head that the model's own replaces. */
static bool is_replaced(const load *l, const choir__named *item, const choir__shard_entry *e)
{
    return l->opts.head == CHOIR_HEAD_REPLACED && may_start_anew(l, item->name) &&
           !choir__same_shape(e->tensor->shape, choir__named_whole(item->tensor));
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

static void note(load *l, const char *name, notice what);

/* Returns the entry, or what the model makes of it for its own shape. */
static const choir__st_tensor *fitted(
    load *l, const choir__named *item, const choir__st_tensor *t)
{
    choir_shape whole = choir__named_whole(item->tensor);
    if (choir__same_shape(t->shape, whole) || l->fitted.data || !l->opts.names ||
        !l->opts.names->fit || l->opts.head == CHOIR_HEAD_KEPT ||
        !choir__convertible(CHOIR_F32, t->dtype) || choir__is_packed(t))
        return t;
    const size_t count = t->bytes / choir_dtype_size(t->dtype),
                 wanted = (size_t)choir__shape_count(whole);
    float *stored = choir__alloc((count + 1) * sizeof *stored),
          *values = choir__alloc((wanted + 1) * sizeof *values);
    choir__numbers_convert(stored, CHOIR_F32, t->data, t->dtype, count);
    if (l->opts.names->fit(item->name, stored, t->shape, whole, values)) {
        l->fitted = (choir__st_tensor){.name = t->name,
            .dtype = CHOIR_F32,
            .shape = whole,
            .data = values,
            .bytes = wanted * sizeof *values};
        note(l, item->name, RESIZED);
        t = &l->fitted;
    } else {
        free(values);
    }
    free(stored);
    return t;
}

/* Adds to the message about a tensor's shape what helps. */
static void advise(const load *l, const choir__named *item, const choir__st_tensor *t)
{
    const choir_shape own = choir__named_whole(item->tensor);
    bool rows =
        l->opts.lead && own.ndim == 2 && t->shape.ndim == 2 && own.dim[1] == t->shape.dim[1];
    char *rest = may_start_anew(l, item->name)
                     ? choir__strdup("; --model NAME:classes=N replaces its head")
                 : rows ? choir__format(
                              "; the adapter's base has %lld rows, as transformers' "
                              "model.resize_token_embeddings(%lld) and save_pretrained make it",
                              (long long)t->shape.dim[0], (long long)t->shape.dim[0])
                        : choir__strdup("");
    char *message = choir__format(
        "%s; the file must be of the model %s%s", choir__message(), l->opts.model, rest);
    choir__set_message(message);
    free(message);
    free(rest);
}

static choir_status take(load *l, choir__named *item, choir__shard_entry *e)
{
    const choir__st_tensor *had = item->stored, *t = fitted(l, item, e->tensor);
    const char *path = choir__file_shards_path(&l->files, e);
    e->used = true;
    if (!had) {
        choir_status status = choir__named_accept(item, t, path, "model", true);
        choir__stored_forget(&l->files.stored, t->data, t->bytes);
        if (status != CHOIR_OK &&
            !choir__same_shape(t->shape, choir__named_whole(item->tensor)))
            advise(l, item, t);
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

static choir_status missing(load *l, const choir__named *item)
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
        l->files.path, item->name, choir__shape_text(choir__named_whole(item->tensor)), rest,
        hint, l->opts.model);
    free(rest);
    free(hint);
    return status;
}

enum { MOST_NAMED = 6 };

static void note(load *l, const char *name, notice what)
{
    noted *n = &l->noted[what];
    if (n->count++ >= MOST_NAMED)
        return;
    char *longer =
        choir__format("%s%s'%.200s'", n->names ? n->names : "", n->names ? ", " : "", name);
    free(n->names);
    n->names = longer;
}

/* Returns the notes, one line per kind, and frees the lists. */
static char *written_notes(load *l)
{
    static const char *const texts[NOTICES][2] = {
        [REPLACED] = {"is of another head, and gets new values",
            "are of another head, and get new values"},
        [MISSING] = {"is missing, and starts with new values",
            "are missing, and start with new values"},
        [UNKNOWN] = {"is unknown to this model, and left out",
            "are unknown to this model, and left out"},
        [RESIZED] = {"is of inputs of another size, and resized",
            "are of inputs of another size, and resized"}};
    char *all = choir__strdup("");
    for (int k = 0; k < NOTICES; k++) {
        noted *n = &l->noted[k];
        int more = n->count - MOST_NAMED;
        char *rest = more > 0 ? choir__format(" and %d more", more) : choir__strdup("");
        char *longer = !n->count ? choir__strdup(all)
                                 : choir__format("%s%s%s: tensor%s %s%s %s", all,
                                       *all ? "\n" : "", l->files.path, n->count > 1 ? "s" : "",
                                       n->names, rest, texts[k][n->count > 1]);
        free(rest);
        free(n->names);
        free(all);
        all = longer;
    }
    return all;
}

static choir_status match_item(load *l, choir__named *item)
{
    choir__shard_entry *e = find_name(l, item->name);
    if (e && is_replaced(l, item, e)) {
        e->used = true;
        note(l, item->name, REPLACED);
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
    note(l, item->name, MISSING);
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
        note(l, name, UNKNOWN);
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
    choir_module *module, const char *path, choir__published_opts opts, char **told)
{
    load l = {.opts = opts};
    l.list.adapters = opts.lead != NULL;
    l.adapts = choir__has_adapters(module);
    choir_status status = choir__named_of(&l.list, module);
    choir__module_visit_ties(module, add_tie, &l);
    if (status == CHOIR_OK)
        status = choir__file_shards_open(&l.files, path);
    l.list.files = &l.files.stored;
    for (int i = 0; i < l.list.count && status == CHOIR_OK; i++)
        status = match_item(&l, &l.list.items[i]);
    if (status == CHOIR_OK)
        status = check_rest(&l);
    if (status == CHOIR_OK)
        status = choir__named_make_ready(&l.list, path);
    if (status == CHOIR_OK)
        status = choir__named_restore(&l.list);
    choir__module_ready(module); /* draws what the files lack */
    if (status == CHOIR_OK)
        status = choir__scope_status(module->run);
    char *notes = written_notes(&l);
    choir__file_shards_close(&l.files);
    choir__named_free(&l.list);
    free((void *)(uintptr_t)l.fitted.data);
    for (int i = 0; i < l.tie_count; i++)
        free(l.ties[i].name);
    free(l.ties);
    if (status == CHOIR_OK)
        *told = notes;
    else
        free(notes);
    return status;
}
