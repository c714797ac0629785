/* Caches of keys, values and states. A slot is made by the first forward that needs it, with
 * room for whole texts, on the device and in the dtype of that call. */
#include "tensor/cache.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/storage.h"

/* --- the cache --- */

static void end(void *arg)
{
    choir__cache *c = arg;
    for (int i = 0; i < c->count; i++)
        for (int p = 0; p < 2; p++)
            if (c->slots[i].part[p])
                choir__storage_unref(c->slots[i].part[p]);
    c->scope->cache = NULL;
    free(c->slots);
    free(c->length);
    free(c->row);
    free(c->outgrown);
    free(c);
}

choir__cache *choir__cache_new(choir_scope *scope, int64_t rows, int64_t room)
{
    choir__cache *c = choir__calloc(1, sizeof *c);
    *c = (choir__cache){.scope = scope,
        .rows = rows,
        .room = room,
        .length = choir__calloc((size_t)rows, sizeof *c->length),
        .row = choir__calloc((size_t)rows, sizeof *c->row),
        .outgrown = choir__calloc((size_t)rows, sizeof *c->outgrown)};
    scope->cache = c;
    choir__on_close(scope, end, c);
    return c;
}

void choir__cache_begin(choir__cache *c, const int64_t *row, int64_t samples, int64_t tokens)
{
    memcpy(c->row, row, (size_t)samples * sizeof *row);
    memset(c->outgrown, 0, (size_t)samples * sizeof *c->outgrown);
    c->samples = samples;
    c->tokens = tokens;
    c->at = 0;
}

void choir__cache_end(choir__cache *c)
{
    for (int64_t i = 0; i < c->samples; i++)
        c->length[c->row[i]] += c->tokens;
}

void choir__cache_outgrow(choir_scope *scope, int64_t sample)
{
    scope->cache->outgrown[sample] = true;
}

void choir__cache_forget(choir__cache *c, int64_t row)
{
    c->length[row] = 0;
}

choir_tensor *choir__cache_positions(choir_scope *scope)
{
    const choir__cache *c = scope->cache;
    const int64_t count = c->samples * c->tokens;
    int64_t *ids = choir__arena_get(&scope->arena, (size_t)count * sizeof *ids);
    for (int64_t i = 0; i < count; i++)
        ids[i] = c->length[c->row[i / c->tokens]] + i % c->tokens;
    return choir_from(scope, CHOIR_I64, choir_dims(c->samples, c->tokens), ids);
}

choir_tensor *choir__cache_last(choir_tensor *x)
{
    if (x->poisoned || !x->scope->cache)
        return x;
    return choir_contiguous(choir_narrow(x, 1, x->shape.dim[1] - 1, 1));
}

/* --- slots --- */

/* Returns the next call's slot with `bytes` for each row in each of its parts; NULL: out of
 * memory, and the scope has the error. */
static choir__cache_slot *next_slot(
    choir_scope *scope, choir_device *device, int parts, size_t bytes)
{
    choir__cache *c = scope->cache;
    if (c->at == c->space) {
        c->space = choir__max(16, 2 * c->space);
        c->slots = choir__realloc(c->slots, (size_t)c->space * sizeof *c->slots);
    }
    choir__cache_slot *s = &c->slots[c->at];
    if (c->at == c->count) {
        *s = (choir__cache_slot){{NULL, NULL}};
        c->count++;
    }
    c->at++;
    for (int p = 0; p < parts; p++) {
        if (!s->part[p])
            s->part[p] = choir__storage_new(device, (size_t)c->rows * bytes);
        if (s->part[p])
            continue;
        choir__poison(scope, CHOIR_ERR_MEMORY,
            "out of memory on %s for a cache of %lld texts of %lld tokens, %zu bytes per "
            "layer: choose fewer tokens, or fewer prompts at a time",
            choir_device_name(device), (long long)c->rows, (long long)c->room,
            2 * (size_t)c->rows * bytes);
        return NULL;
    }
    return s;
}

/* --- attention --- */

/* Copies sample i's rows (G, T, D) of x behind the `length` rows of its text that the slot
 * already has. */
static void append(choir_device *device, const choir__k_attention *a, choir__heads to,
    choir__heads x, int64_t i, int64_t length)
{
    const size_t size = choir_dtype_size(a->dtype);
    choir__k_copy args = {.y = {(char *)to.p + (size_t)(length * to.t) * size, {to.h, to.t, 1}},
        .x = {(char *)x.p + (size_t)(i * x.b) * size, {x.h, x.t, 1}},
        .shape = {a->n.g, a->n.t, a->n.d},
        .ndim = 3,
        .y_dtype = a->dtype,
        .x_dtype = a->dtype};
    choir__launch(device, CHOIR_F32, copy, &args);
}

/* Attention of sample i, whose text is in row `row`. */
static void attend(choir_device *device, const choir__k_attention *all,
    const choir__cache_slot *s, const choir__cache *c, int64_t i)
{
    const size_t size = choir_dtype_size(all->dtype);
    const int64_t d = all->n.d, each = all->n.g * c->room * d, length = c->length[c->row[i]];
    const size_t at = (size_t)(c->row[i] * each) * size;
    choir__k_attention one = *all;
    one.n.b = 1;
    one.n.s = length + all->n.t;
    one.n.ahead = length;
    one.q.p = (char *)all->q.p + (size_t)(i * all->q.b) * size;
    one.y.p = (char *)all->y.p + (size_t)(i * all->y.b) * size;
    one.k = (choir__heads){(char *)s->part[0]->data + at, each, c->room * d, d};
    one.v = (choir__heads){(char *)s->part[1]->data + at, each, c->room * d, d};
    one.lse = (char *)all->lse +
              (size_t)(i * all->n.h * all->n.t) * choir_dtype_size(choir__beside(all->dtype));
    append(device, all, one.k, all->k, i, length);
    append(device, all, one.v, all->v, i, length);
    choir__launch(device, one.dtype, attention, &one);
}

void choir__cache_attend(choir_scope *scope, choir_device *device, choir__k_attention *args)
{
    const choir__cache *c = scope->cache;
    const char *wrong = !device->chunks   ? "a device whose attention knows positions"
                        : scope->sequence ? "a sequence that is not cut into chunks"
                        : args->bias.p    ? "attention without a bias"
                        : args->n.b != c->samples || args->n.t != c->tokens
                            ? "the tokens of the forward"
                            : NULL;
    if (wrong) {
        choir__poison(scope, CHOIR_ERR_STATE, "attention with a cache: expected %s", wrong);
        return;
    }
    const size_t bytes =
        (size_t)(args->n.g * c->room * args->n.d) * choir_dtype_size(args->dtype);
    const choir__cache_slot *s = next_slot(scope, device, 2, bytes);
    for (int64_t i = 0; s && i < c->samples; i++)
        attend(device, args, s, c, i);
}

/* --- states --- */

/* Copies rows of `width`: between y or x, `row` elements apart, and the slot's part. */
static void copy_states(const choir__cache *c, choir_device *device, choir_dtype dtype,
    char *kept, char *now, int64_t row, int64_t width, bool in)
{
    const size_t size = choir_dtype_size(dtype);
    for (int64_t i = 0; i < c->samples; i++) {
        char *of_kept = kept + (size_t)(c->row[i] * width) * size;
        char *of_now = now + (size_t)(i * row) * size;
        choir__launch_bytes(
            device, in ? of_kept : of_now, in ? of_now : of_kept, (size_t)width * size);
    }
}

bool choir__cache_states_begin(choir_scope *scope, choir_device *device, choir_dtype dtype,
    int64_t width, bool has_c, choir__cache_states *states)
{
    const choir__cache *c = scope->cache;
    const choir__cache_slot *s =
        next_slot(scope, device, has_c ? 2 : 1, (size_t)width * choir_dtype_size(dtype));
    choir_tensor **to[2] = {&states->h, &states->c};
    for (int p = 0; s && p < (has_c ? 2 : 1) && c->length[c->row[0]]; p++) {
        *to[p] = choir__tensor_new(scope, device, dtype, choir_dims(c->samples, width));
        if ((*to[p])->poisoned)
            return false;
        copy_states(
            c, device, dtype, s->part[p]->data, choir__data(*to[p]), width, width, false);
    }
    return s != NULL;
}

void choir__cache_states_end(choir_scope *scope, choir_device *device, choir_dtype dtype,
    int64_t width, void *h, int64_t h_row, void *c)
{
    const choir__cache *cache = scope->cache;
    const choir__cache_slot *s = &cache->slots[cache->at - 1];
    copy_states(cache, device, dtype, s->part[0]->data, h, h_row, width, true);
    if (c)
        copy_states(cache, device, dtype, s->part[1]->data, c, width, width, true);
}
