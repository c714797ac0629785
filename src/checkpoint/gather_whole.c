/* Gathers whole tensors on rank 0, one at a time: by the plan of a save, each owner sends its
 * part, and rank 0 puts it in its place. Rank 0 needs memory for the largest tensor alone. A
 * hash and a file of all weights are made of it. */
#include <stdlib.h>
#include <string.h>

#include "base/board/board.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/save.h"
#include "checkpoint/weights/adapter.h"
#include "nn/module.h"
#include "tensor/held.h"
#include "tensor/tensor.h"

/* --- one tensor at a time --- */

typedef struct wholes {
    choir_group *group;
    choir__items items; /* the model's, by name */
    choir__save_plan plan;
    char *room; /* rank 0: memory for the largest item */
    char *part; /* memory for the largest part that is not all of an item on rank 0 */
} wholes;

static size_t bytes_of(const choir__item *item)
{
    return (size_t)choir__shape_count(item->whole) * choir_dtype_size(item->dtype);
}

/* True if rank 0 reads or receives the part at its position in w->room. */
static bool comes_whole(const wholes *w, const choir__save_plan_part *part)
{
    return choir__rank_of(w->group) == 0 &&
           (size_t)part->bytes == bytes_of(&w->items.list[part->item]);
}

/* Returns the size of the largest part that this rank reads or receives by itself. */
static size_t largest_part(const wholes *w)
{
    size_t largest = 0;
    int rank = choir__rank_of(w->group);
    for (int p = 0; p < w->plan.part_count; p++) {
        const choir__save_plan_part *part = &w->plan.parts[p];
        if ((rank == 0 || part->owner == rank) && !comes_whole(w, part) &&
            (size_t)part->bytes > largest)
            largest = (size_t)part->bytes;
    }
    return largest;
}

static void close_wholes(wholes *w)
{
    choir__items_free(&w->items);
    choir__save_plan_free(&w->plan);
    free(w->room);
    free(w->part);
    *w = (wholes){0};
}

/* Takes the items. Collective. Errors: as choir__save_plan_make, memory. */
static choir_status open_wholes(
    wholes *w, choir__items items, choir_status status, choir_group *group)
{
    *w = (wholes){.group = group, .items = items};
    size_t largest = 0;
    status = choir__agree(group, status);
    if (status == CHOIR_OK)
        status = choir__save_plan_make(&w->plan, &w->items, group, INT64_MAX);
    for (int i = 0; i < w->items.count; i++)
        if (bytes_of(&w->items.list[i]) > largest)
            largest = bytes_of(&w->items.list[i]);
    w->room = choir__rank_of(group) == 0 ? malloc(largest + 1) : NULL;
    w->part = malloc(largest_part(w) + 1);
    if (status == CHOIR_OK && (!w->part || (!w->room && choir__rank_of(group) == 0)))
        status = choir__error(CHOIR_ERR_MEMORY,
            "out of host memory: cannot gather the largest tensor, of %zu bytes", largest);
    status = choir__agree(group, status);
    if (status != CHOIR_OK)
        close_wholes(w);
    return status;
}

static choir_status open_model(wholes *w, choir_module *module, choir_group *group)
{
    choir__items items;
    choir_status status = choir__items_collect(&items, module, NULL);
    return open_wholes(w, items, status, group);
}

/* Rank 0: copies a part from w->part to its position. */
static void put_part(wholes *w, const choir__save_plan_part *part)
{
    const choir__item *item = &w->items.list[part->item];
    choir__box_region whole = choir__box_region_whole(item->whole);
    choir__block_of to = choir__block_of_region(&whole);
    choir__block_of from = choir__block_of_region(&part->region);
    choir__box_region_copy(&part->region, item->whole.ndim, &to, w->room, &from, w->part,
        choir_dtype_size(item->dtype));
}

/* Sets *data on rank 0 to all of items.list[item], valid until the next call; NULL on other
 * ranks. Collective: all ranks ask for the same items in the same order. */
static choir_status get_whole(wholes *w, int index, const void **data)
{
    const choir__item *item = &w->items.list[index];
    int rank = choir__rank_of(w->group);
    choir_status status = CHOIR_OK;
    *data = w->room;
    for (int i = 0; i < w->plan.part_count && status == CHOIR_OK; i++) {
        const choir__save_plan_part *part = &w->plan.parts[i];
        if (part->item != index || (rank != 0 && part->owner != rank))
            continue;
        choir_status got = CHOIR_OK;
        char *to = comes_whole(w, part) ? w->room : w->part;
        if (part->owner == rank)
            got = choir__item_read(item, part->box, to);
        if (rank != 0) /* a rank with an error sends, too, because rank 0 waits for the part */
            status = choir_group_send(w->group, to, part->bytes, CHOIR_U8, 0, NULL);
        else if (part->owner != rank)
            status =
                choir_group_receive(w->group, to, part->bytes, CHOIR_U8, part->owner, NULL);
        if (to == w->part && rank == 0 && got == CHOIR_OK && status == CHOIR_OK)
            put_part(w, part);
        status = status == CHOIR_OK ? got : status;
    }
    return status;
}

/* --- a hash --- */

/* Hashes the values of a weight in blocks. */
static void hash_blocks(choir__sha256_state *state, const choir__item *item, const void *data)
{
    const struct choir__held *held = item->param->tensor->held;
    float *row = choir__alloc((size_t)item->param->cols * sizeof *row + 1);
    for (int64_t r = 0; r < item->whole.dim[0]; r++) {
        choir__quant_decode(
            held->type, row, (const char *)data + r * item->whole.dim[1], 0, item->param->cols);
        choir__sha256_update(state, row, (size_t)item->param->cols * sizeof *row);
    }
    free(row);
}

/* Hashes an item as f32, or f64 as it is; counters included. */
static void hash(choir__sha256_state *state, const choir__item *item, const void *data)
{
    int64_t count = choir__shape_count(item->whole);
    size_t each = choir_dtype_size(item->dtype);
    choir__board_beat();
    if (item->dtype == CHOIR_F32 || item->dtype == CHOIR_F64) {
        choir__sha256_update(state, data, (size_t)count * each);
        return;
    }
    if (item->param && item->dtype == CHOIR_U8) {
        hash_blocks(state, item, data);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const char *at = (const char *)data + (size_t)i * each;
        float value = 0;
        int64_t number;
        if (choir__is_float(item->dtype)) {
            choir__numbers_convert(&value, CHOIR_F32, at, item->dtype, 1);
        } else {
            memcpy(&number, at, sizeof number);
            value = (float)number;
        }
        choir__sha256_update(state, &value, sizeof value);
    }
}

static bool is_base(const choir__item *item)
{
    return item->param && !item->param->adapts && !item->param->beside_adapters;
}

/* base: hashes only weights that adapters leave as they are. */
static choir_status hash_all(choir_module *module, choir_group *group, bool base, char hex[65])
{
    wholes w;
    choir__items items;
    choir__sha256_state state;
    choir_status status = choir__items_collect(&items, module, NULL);
    if (base)
        choir__items_keep(&items, is_base);
    status = open_wholes(&w, items, status, group);
    if (status != CHOIR_OK)
        return status;
    choir__sha256_init(&state);
    for (int i = 0; i < w.items.count && status == CHOIR_OK; i++) {
        const void *data;
        status = get_whole(&w, i, &data);
        if (status == CHOIR_OK && data)
            hash(&state, &w.items.list[i], data);
    }
    choir__sha256_final(&state, hex);
    close_wholes(&w);
    return choir__agree(group, status);
}

choir_status choir_weights_sha256(choir_module *module, choir_group *group, char hex[65])
{
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    return hex ? hash_all(module, group, false, hex) : choir__missing(__func__, "hex");
}

choir_status choir__base_sha256(choir_module *module, choir_group *group, char hex[65])
{
    return hash_all(module, group, true, hex);
}

/* --- a file --- */

typedef struct export
{
    wholes w;
    const char *path;
    bool any_values; /* infinities and NaN are written, too */
    int given;       /* number of items requested so far */
}
export;

static choir_status next_whole(void *arg, int i, const void **data)
{
    export *e = arg;
    const choir__item *item = &e->w.items.list[i];
    e->given++;
    choir_status status = get_whole(&e->w, i, data);
    choir__checked what = {e->path, item->name, item->whole, item->dtype, false};
    return status == CHOIR_OK && *data && !e->any_values
               ? choir__check_finite(
                     CHOIR_ERR_NONFINITE, &what, *data, (size_t)choir__shape_count(item->whole))
               : status;
}

/* Rank 0 writes and the others send, in the order of the file. If writing fails, rank 0 still
 * receives what the others send. */
static choir_status write_wholes(export *e, const char *path)
{
    int count = e->w.items.count, *order = choir__calloc((size_t)count + 1, sizeof *order);
    choir__st_tensor *tensors = choir__calloc((size_t)count + 1, sizeof *tensors);
    choir__digest digest;
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count; i++) {
        const choir__item *item = &e->w.items.list[i];
        tensors[i] =
            (choir__st_tensor){.name = item->name, .dtype = item->dtype, .shape = item->whole};
        tensors[i].bytes = bytes_of(item);
    }
    choir__st_order(tensors, count, order);
    if (choir__rank_of(e->w.group) == 0)
        status = choir__st_stream(path, tensors, count, NULL, next_whole, e, &digest);
    while (e->given < count) {
        const void *data;
        choir_status got = next_whole(e, order[e->given], &data);
        if (got != CHOIR_OK && status == CHOIR_OK)
            status = got;
    }
    free(tensors);
    free(order);
    return status;
}

choir_status choir_save_whole(choir_module *module, choir_group *group, const char *path)
{
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    if (!path)
        return choir__missing(__func__, "path");
    export e = {.path = path};
    choir_status status = open_model(&e.w, module, group);
    if (status != CHOIR_OK)
        return status;
    status = write_wholes(&e, path);
    close_wholes(&e.w);
    return choir__agree(group, status);
}

choir_status choir__items_save(choir__items *items, choir_group *group, const char *path)
{
    export e = {.path = path, .any_values = true};
    choir_status status = open_wholes(&e.w, *items, CHOIR_OK, group);
    *items = (choir__items){0};
    if (status != CHOIR_OK)
        return status;
    status = write_wholes(&e, path);
    close_wholes(&e.w);
    return choir__agree(group, status);
}

choir_status choir_save(choir_module *module, const char *path)
{
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    if (!path)
        return choir__missing(__func__, "path");
    return choir_save_whole(module, NULL, path);
}
