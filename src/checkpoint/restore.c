/* Copying stored tensors to a job's tensors: everything is checked before anything changes. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/stored.h"
#include "tensor/strategy.h"

/* --- regions --- */

typedef struct copy {
    char *to;
    const char *from;
    choir_dtype to_type, from_type;
    int64_t bad; /* position of the first number that is not finite; -1 */
    float value;
} copy;

static void copy_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    copy *c = arg;
    choir__numbers_convert(c->to + (size_t)to * choir_dtype_size(c->to_type), c->to_type,
        c->from + (size_t)from * choir_dtype_size(c->from_type), c->from_type, (size_t)n);
}

/* Here `to` counts in the whole tensor. */
static void check_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    copy *c = arg;
    if (c->bad >= 0)
        return;
    int64_t at = choir__first_nonfinite(c->from + (size_t)from * choir_dtype_size(c->from_type),
        c->from_type, (size_t)n, &c->value);
    c->bad = at < 0 ? -1 : to + at;
}

/* Calls each for the runs of every part of t that intersects the region, into a block. */
static void each_run(const choir__stored_tensor *t, const choir__box_region *region,
    const choir__block_of *block, choir__run_fn *each, copy *c)
{
    choir__box_region both = {{0}, {0}};
    c->from_type = t->dtype;
    for (int i = 0; i < t->part_count; i++) {
        const choir__stored_part *p = &t->parts[i];
        choir__block_of from = choir__block_of_region(&p->region);
        c->from = p->tensor->data;
        if (choir__box_region_meet(region, &p->region, t->whole.ndim, &both))
            choir__box_region_runs(&both, t->whole.ndim, block, &from, each, c);
    }
}

void choir__stored_read(const choir__stored_tensor *t, const choir__box_region *region,
    void *data, choir_dtype dtype)
{
    copy c = {.to = data, .to_type = dtype};
    choir__block_of block = choir__block_of_region(region);
    each_run(t, region, &block, copy_run, &c);
}

/* --- checking --- */

static bool is_transposed(choir_shape a, choir_shape b)
{
    return a.ndim == 2 && b.ndim == 2 && a.dim[0] == b.dim[1] && a.dim[1] == b.dim[0];
}

static choir_status check_finite(
    const choir__stored *s, const choir__stored_tensor *t, const choir__item *item)
{
    copy c = {.bad = -1};
    choir__box_region whole = choir__box_region_whole(t->whole);
    choir__block_of block = choir__block_of_region(&whole);
    for (int b = 0; b < item->box_count && c.bad < 0; b++) {
        choir__box_region wanted = choir__box_region_of(&item->boxes[b]);
        each_run(t, &wanted, &block, check_run, &c);
    }
    return c.bad < 0 ? CHOIR_OK
                     : choir__error(CHOIR_ERR_FORMAT,
                           "%s: tensor '%.200s' %s holds %g, as f32, at index %lld; "
                           "weights must be finite",
                           choir__stored_path(s, t), t->name, choir__shape_text(t->whole),
                           (double)c.value, (long long)c.bad);
}

/* Returns true for state that a strategy visits; it may be another strategy than the
 * checkpoint's. */
static bool is_kept(const char *name)
{
    return !strncmp(name, CHOIR__KEPT, strlen(CHOIR__KEPT));
}

static choir_status match_item(
    const choir__stored *s, const choir__item *item, const char *what, bool finite)
{
    const choir__stored_tensor *t = choir__stored_find(s, item->name);
    if (!t && (item->dtype == CHOIR_I64 || !choir__shape_count(item->whole)))
        return CHOIR_OK; /* a counter, which old files lack: it starts at 0 */
    if (!t && is_kept(item->name))
        return CHOIR_OK;
    if (!t)
        return choir__error(CHOIR_ERR_FORMAT, "%s: missing tensor '%.200s' %s of the %s",
            s->file_count == 1 ? s->paths[0] : s->where, item->name,
            choir__shape_text(item->whole), what);
    if (!choir__same_shape(t->whole, item->whole))
        return choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' is %s, but the %s's is %s%s",
            choir__stored_path(s, t), t->name, choir__shape_text(t->whole), what,
            choir__shape_text(item->whole),
            is_transposed(t->whole, item->whole) ? "; its transpose would fit" : "");
    if (!choir__convertible(item->dtype, t->dtype))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s' is %s, which cannot become %s", choir__stored_path(s, t),
            t->name, choir_dtype_name(t->dtype), choir_dtype_name(item->dtype));
    return finite && choir__is_float(t->dtype) ? check_finite(s, t, item) : CHOIR_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const choir__item *)a)->name, ((const choir__item *)b)->name);
}

/* Returns the weight, one of the model's first items, whose state has this name; or NULL. */
static const choir__item *weight_of(const choir__items *items, int first, const char *name)
{
    const char *of = strchr(name, '.');
    choir__item key = {.name = of ? (char *)(uintptr_t)(of + 1) : NULL};
    return of && first ? bsearch(&key, items->list, (size_t)first, sizeof key, by_name) : NULL;
}

/* Returns whether a tensor is state that a frozen weight never used: earlier builds saved it.
 */
static bool is_idle(const choir__item *weight)
{
    return weight && weight->param && !weight->param->tensor->requires_grad;
}

/* Returns whether the files have no state of the item's weight, which was frozen then: its
 * state begins at 0. */
static bool was_idle(
    const choir__stored *s, const choir__items *items, int first, const choir__item *item)
{
    const choir__item *weight = item->moment ? weight_of(items, first, item->name) : NULL;
    for (int i = 0; i < s->count && weight; i++)
        if (weight_of(items, first, s->tensors[i].name) == weight)
            return false;
    return weight;
}

choir_status choir__stored_match(const choir__stored *s, const choir__items *items, int first,
    int count, const char *what, bool finite)
{
    const choir__item *list = items->list + first;
    for (int i = 0; i < count; i++) {
        if (!choir__stored_find(s, list[i].name) && was_idle(s, items, first, &list[i]))
            continue;
        choir_status status = match_item(s, &list[i], what, finite);
        if (status != CHOIR_OK)
            return status;
    }
    for (int i = 0; i < s->count; i++) {
        choir__item key = {.name = (char *)s->tensors[i].name};
        bool known = count && bsearch(&key, list, (size_t)count, sizeof key, by_name);
        const choir__item *weight = known ? NULL : weight_of(items, first, key.name);
        bool damaged = weight && weight->seen && !strncmp(key.name, "average.", 8);
        if (!known && !is_kept(key.name) && (!is_idle(weight) || damaged))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: unknown tensor '%.200s' %s, which the %s does not have%s",
                choir__stored_path(s, &s->tensors[i]), key.name,
                choir__shape_text(s->tensors[i].whole), what,
                damaged ? "; earlier builds averaged weights that --base or --amp holds, and "
                          "damaged them: begin again from the base"
                        : "");
    }
    return CHOIR_OK;
}

/* --- restoring --- */

typedef struct only_run {
    copy c; /* first: each_run sets `from` of the part in it */
    int runs;
    int64_t count, to;
    const char *data;
} only_run;

static void note_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    only_run *o = arg;
    o->runs++;
    o->to = to;
    o->count = n;
    o->data = o->c.from + (size_t)from * choir_dtype_size(o->c.from_type);
}

/* Returns where a file stores all that this process holds of an item, in its order, type and
 * alignment; else NULL. */
static const void *in_file(const choir__stored_tensor *t, const choir__item *item)
{
    only_run o = {.runs = 0};
    if (t->dtype != item->dtype || item->box_count != 1)
        return NULL;
    choir__box_region wanted = choir__box_region_of(item->boxes);
    choir__block_of block = choir__block_of_local(item->boxes, item->tensor->shape);
    each_run(t, &wanted, &block, note_run, &o.c);
    bool all = o.runs == 1 && !o.to && o.count == item->tensor->count;
    return all && (uintptr_t)o.data % choir_dtype_size(t->dtype) == 0 ? o.data : NULL;
}

static choir_status restore_item(
    const choir__stored *s, const choir__item *item, void *host, size_t bytes)
{
    const choir__stored_tensor *t = choir__stored_find(s, item->name);
    copy c = {.to = host, .to_type = item->dtype};
    const void *stored = t ? in_file(t, item) : NULL;
    if (stored)
        return choir_write(item->tensor, stored, bytes);
    if (!t)
        memset(host, 0, bytes);
    for (int b = 0; t && b < item->box_count; b++) {
        choir__box_region wanted = choir__box_region_of(&item->boxes[b]);
        choir__block_of block = choir__block_of_local(&item->boxes[b], item->tensor->shape);
        each_run(t, &wanted, &block, copy_run, &c);
    }
    return choir_write(item->tensor, host, bytes);
}

choir_status choir__stored_restore(
    const choir__stored *s, const choir__items *items, int first, int count)
{
    choir_status status = CHOIR_OK;
    size_t largest = 0;
    for (int i = first; i < first + count; i++) {
        const choir__item *item = &items->list[i];
        size_t bytes = (size_t)item->tensor->count * choir_dtype_size(item->dtype);
        largest = item->box_count && bytes > largest ? bytes : largest;
    }
    void *host = malloc(largest + 1); /* now: copying must not fail */
    if (!host)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of host memory: cannot restore the largest tensor, of %zu bytes", largest);
    for (int i = first; i < first + count && status == CHOIR_OK; i++) {
        const choir__item *item = &items->list[i];
        size_t bytes = (size_t)item->tensor->count * choir_dtype_size(item->dtype);
        if (item->box_count)
            status = restore_item(s, item, host, bytes);
    }
    free(host);
    return status;
}
