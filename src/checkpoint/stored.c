/* Opens the files of a checkpoint as one set of tensors, each made of parts from any number
 * of files. Parts are sorted by tensor, and what files state about them is trusted only once
 * the parts of a tensor cover it, each entry once: a missing shard, or one of another
 * checkpoint, is an error. */
#include "checkpoint/stored.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/floats.h"
#include "base/half.h"
#include "tensor/tensor.h"

#define TENSOR "%s: tensor '%.200s' "

/* --- one file --- */

static choir_status bad_info(const char *path, const char *name, const char *key)
{
    return choir__error(CHOIR_ERR_FORMAT,
        TENSOR "has no good %s under " CHOIR__SHARDING_KEY " in the metadata", path, name, key);
}

/* Reads ndim integers that are not negative. */
static bool read_numbers(const json_t *array, int ndim, int64_t *numbers)
{
    if (!json_is_array(array) || json_array_size(array) != (size_t)ndim)
        return false;
    for (int d = 0; d < ndim; d++) {
        const json_t *n = json_array_get(array, (size_t)d);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return false;
        numbers[d] = json_integer_value(n);
    }
    return true;
}

static bool is_countable(choir_shape shape)
{
    int64_t total = 8;
    for (int d = 0; d < shape.ndim; d++)
        if (__builtin_mul_overflow(total, choir__max(shape.dim[d], 1), &total))
            return false;
    return true;
}

/* Reads the position of a part. info NULL: the part is a whole tensor. */
static choir_status read_place(
    const char *path, const json_t *info, choir__stored_part *part, choir_shape *whole)
{
    const choir__st_tensor *t = part->tensor;
    part->region = choir__box_region_whole(t->shape);
    *whole = t->shape;
    if (!info)
        return CHOIR_OK;
    const json_t *mine = json_object_get(info, t->name),
                 *shape = json_object_get(mine, "shape");
    if (!read_numbers(json_object_get(mine, "saved_offsets"), t->shape.ndim, part->region.from))
        return bad_info(path, t->name, "saved_offsets");
    for (int d = 0; d < t->shape.ndim; d++)
        if (__builtin_add_overflow(part->region.from[d], t->shape.dim[d], &whole->dim[d]))
            return bad_info(path, t->name, "saved_offsets");
    if (shape && !read_numbers(shape, t->shape.ndim, whole->dim))
        return bad_info(path, t->name, "shape");
    if (!is_countable(*whole) || !choir__box_region_fits(&part->region, *whole))
        return bad_info(path, t->name, "saved_offsets");
    return CHOIR_OK;
}

static choir_status read_info(const char *path, const choir__st_file *file, json_t **info)
{
    const char *text = choir__st_metadata(file, CHOIR__SHARDING_KEY);
    *info = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    return !text || json_is_object(*info)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: " CHOIR__SHARDING_KEY " in the metadata: expected a JSON object",
                     path);
}

static choir_status add_file(
    choir__stored *s, const char *path, choir__stored_opener *open_file)
{
    int f = s->file_count;
    json_t *info = NULL;
    CHOIR__GROW(s->paths, f);
    CHOIR__GROW(s->files, f);
    choir_status status = open_file(path, &s->files[f]);
    if (status != CHOIR_OK)
        return status;
    s->paths[s->file_count++] = choir__strdup(path);
    status = read_info(path, s->files[f], &info);
    for (int i = 0; i < choir__st_count(s->files[f]) && status == CHOIR_OK; i++) {
        CHOIR__GROW(s->parts, s->part_count);
        CHOIR__GROW(s->shapes, s->part_count);
        choir__stored_part *part = &s->parts[s->part_count];
        *part = (choir__stored_part){.tensor = choir__st_get(s->files[f], i), .file = f};
        status = read_place(path, info, part, &s->shapes[s->part_count++]);
    }
    json_decref(info);
    return status;
}

/* --- all of them --- */

typedef struct placed {
    choir__stored_part part;
    choir_shape whole;
} placed;

static int by_name_then_file(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    int order = strcmp(x->part.tensor->name, y->part.tensor->name);
    return order ? order : x->part.file - y->part.file;
}

static void sort_parts(choir__stored *s)
{
    placed *all = choir__calloc((size_t)s->part_count + 1, sizeof *all);
    for (int i = 0; i < s->part_count; i++)
        all[i] = (placed){s->parts[i], s->shapes[i]};
    if (s->part_count)
        qsort(all, (size_t)s->part_count, sizeof *all, by_name_then_file);
    for (int i = 0; i < s->part_count; i++) {
        s->parts[i] = all[i].part;
        s->shapes[i] = all[i].whole;
    }
    free(all);
}

/* Checks that parts of one tensor, from several files, agree in everything but position. */
static choir_status check_alike(const choir__stored *s, int first, int count)
{
    const choir__stored_part *p = &s->parts[first];
    for (int i = 1; i < count; i++) {
        const choir__st_tensor *t = p[i].tensor;
        if (t->dtype != p->tensor->dtype || t->shape.ndim != p->tensor->shape.ndim)
            return choir__error(CHOIR_ERR_FORMAT,
                TENSOR "is %s of %d dimensions, but in %s %s of %d", s->paths[p[i].file],
                t->name, choir_dtype_name(t->dtype), t->shape.ndim, s->paths[p->file],
                choir_dtype_name(p->tensor->dtype), p->tensor->shape.ndim);
    }
    return CHOIR_OK;
}

/* Joins parts: the whole is the largest one that any part states. */
static choir_status join_parts(choir__stored *s, int first, int count)
{
    choir__stored_tensor *t = &s->tensors[s->count];
    const choir__stored_part *p = &s->parts[first];
    choir_status status = check_alike(s, first, count);
    if (status != CHOIR_OK)
        return status;
    *t = (choir__stored_tensor){.name = p->tensor->name,
        .dtype = p->tensor->dtype,
        .whole = s->shapes[first],
        .parts = p,
        .part_count = count};
    for (int i = 1; i < count; i++)
        for (int d = 0; d < t->whole.ndim; d++)
            t->whole.dim[d] = choir__max(t->whole.dim[d], s->shapes[first + i].dim[d]);
    if (!is_countable(t->whole))
        return bad_info(s->paths[p->file], t->name, "shape");
    int64_t covered;
    choir__box_region *regions = choir__calloc((size_t)count, sizeof *regions);
    for (int i = 0; i < count; i++)
        regions[i] = p[i].region;
    bool good = choir__box_regions_cover(regions, count, t->whole, &covered);
    free(regions);
    s->count++;
    if (good)
        return CHOIR_OK;
    int64_t all = choir__shape_count(t->whole);
    if (covered >= all)
        return choir__error(CHOIR_ERR_FORMAT,
            TENSOR "%s is there more than once, in %s and in %s: %lld entries of %lld; one of "
                   "them is of another checkpoint",
            s->where, t->name, choir__shape_text(t->whole), s->paths[p[0].file],
            s->paths[p[count - 1].file], (long long)covered, (long long)all);
    return choir__error(CHOIR_ERR_FORMAT,
        TENSOR
        "%s is not whole: %d file%s of it have %lld of %lld entries; a shard is missing, or "
        "of another checkpoint",
        s->paths[p[count - 1].file], t->name, choir__shape_text(t->whole), count,
        count > 1 ? "s" : "", (long long)covered, (long long)all);
}

choir_status choir__stored_open(
    choir__stored *s, const char *where, const char *const *paths, int count)
{
    return choir__stored_open_as(s, where, paths, count, choir__st_open);
}

choir_status choir__stored_open_as(choir__stored *s, const char *where,
    const char *const *paths, int count, choir__stored_opener *open_file)
{
    choir_status status = CHOIR_OK;
    *s = (choir__stored){.where = choir__strdup(where)};
    for (int f = 0; f < count && status == CHOIR_OK; f++)
        status = add_file(s, paths[f], open_file);
    if (status == CHOIR_OK)
        sort_parts(s);
    s->tensors = choir__calloc((size_t)s->part_count + 1, sizeof *s->tensors);
    for (int i = 0, n; i < s->part_count && status == CHOIR_OK; i += n) {
        n = 1;
        while (i + n < s->part_count &&
               !strcmp(s->parts[i].tensor->name, s->parts[i + n].tensor->name))
            n++;
        status = join_parts(s, i, n);
    }
    if (status != CHOIR_OK)
        choir__stored_close(s);
    return status;
}

void choir__stored_close(choir__stored *s)
{
    for (int f = 0; f < s->file_count; f++) {
        choir__st_close(s->files[f]);
        free(s->paths[f]);
    }
    free(s->where);
    free(s->paths);
    free(s->files);
    free(s->parts);
    free(s->shapes);
    free(s->tensors);
    *s = (choir__stored){0};
}

void choir__stored_forget(const choir__stored *s, const void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)data;
    for (int f = 0; f < s->file_count; f++) {
        const uintptr_t map = (uintptr_t)s->files[f]->map;
        if (from < map || from >= map + s->files[f]->size)
            continue;
        const uintptr_t first = from / page * page; /* others read the rest of it again */
        (void)!madvise((void *)first, from + bytes - first, MADV_DONTNEED);
    }
}

json_t *choir__stored_blocks(const choir__stored *s)
{
    json_t *all = json_object();
    for (int f = 0; f < s->file_count; f++) {
        const char *text = choir__st_metadata(s->files[f], CHOIR__BLOCKS_KEY);
        json_t *stated = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
        if (json_is_object(stated))
            json_object_update(all, stated);
        json_decref(stated);
    }
    return all;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(
        ((const choir__stored_tensor *)a)->name, ((const choir__stored_tensor *)b)->name);
}

const choir__stored_tensor *choir__stored_find(const choir__stored *s, const char *name)
{
    choir__stored_tensor key = {.name = name};
    return s->count ? bsearch(&key, s->tensors, (size_t)s->count, sizeof key, by_name) : NULL;
}

const char *choir__stored_path(const choir__stored *s, const choir__stored_tensor *t)
{
    return s->paths[t->parts->file];
}

/* Conversions between the float types in files, block by block by way of f32; memory need not
 * be aligned. A check for infinities and NaNs has no branch per number, because nearly always
 * all are finite. */

enum { BLOCK = 1024 };

static void widen(float *out, const void *in, choir_dtype from, size_t n)
{
    if (from == CHOIR_F32) {
        memcpy(out, in, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = 0;
        double wide = 0;
        if (from == CHOIR_F64)
            memcpy(&wide, (const char *)in + i * sizeof wide, sizeof wide);
        else
            memcpy(&half, (const char *)in + i * sizeof half, sizeof half);
        out[i] = from == CHOIR_F64    ? (float)wide
                 : from == CHOIR_BF16 ? choir__f32_from_bf16(half)
                                      : choir__f32_from_f16(half);
    }
}

static void narrow(void *out, choir_dtype to, const float *in, size_t n)
{
    if (to == CHOIR_F32) {
        memcpy(out, in, n * sizeof *in);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double wide = (double)in[i];
        uint16_t half =
            to == CHOIR_BF16 ? choir__bf16_from_f32(in[i]) : choir__f16_from_f32(in[i]);
        if (to == CHOIR_F64)
            memcpy((char *)out + i * sizeof wide, &wide, sizeof wide);
        else
            memcpy((char *)out + i * sizeof half, &half, sizeof half);
    }
}

bool choir__convertible(choir_dtype to, choir_dtype from)
{
    return to == from || (choir__is_float(to) && choir__is_float(from));
}

void choir__numbers_convert(
    void *out, choir_dtype to, const void *in, choir_dtype from, size_t count)
{
    CHOIR__DEFAULT_FLOATS;
    float block[BLOCK];
    if (to == from) {
        memcpy(out, in, count * choir_dtype_size(to));
        return;
    }
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < BLOCK ? count - at : BLOCK;
        widen(block, (const char *)in + at * choir_dtype_size(from), from, n);
        narrow((char *)out + at * choir_dtype_size(to), to, block, n);
    }
}

/* The loop has no branch, because nearly always all are finite. */
static bool all_finite(const float *in, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, sizeof bits);
        bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    return !bad;
}

int64_t choir__first_nonfinite(const void *in, choir_dtype dtype, size_t count, float *value)
{
    CHOIR__DEFAULT_FLOATS;
    float block[BLOCK];
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < BLOCK ? count - at : BLOCK;
        widen(block, (const char *)in + at * choir_dtype_size(dtype), dtype, n);
        for (size_t i = 0; !all_finite(block, n) && i < n; i++)
            if (!isfinite(block[i])) {
                *value = block[i];
                return (int64_t)(at + i);
            }
    }
    return -1;
}

choir_status choir__check_finite(
    choir_status code, const choir__checked *what, const void *in, size_t count)
{
    float value;
    int64_t at = choir__is_float(what->dtype)
                     ? choir__first_nonfinite(in, what->dtype, count, &value)
                     : -1;
    return at < 0 ? CHOIR_OK
                  : choir__error(code,
                        "%s: tensor '%.200s' %s holds %g, as f32, at index %lld%s; "
                        "weights must be finite",
                        what->path, what->name, choir__shape_text(what->whole), (double)value,
                        (long long)at, what->part ? " of its part" : "");
}
