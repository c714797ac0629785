/* The files of a save: parts of tensors as safetensors, read from the tensors or from a
 * copy. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checkpoint/file.h"
#include "checkpoint/numbers.h"
#include "checkpoint/save.h"
#include "checkpoint/state.h"
#include "checkpoint/stored.h"
#include "tensor/tensor.h"

enum { ALIGNMENT = 64 };

static const choir__item *item_of(const choir__saver *s, const choir__plan_part *part)
{
    return &s->items.list[part->item];
}

/* --- a copy --- */

void choir__save_forget_copy(choir__saver *s)
{
    if (s->copy)
        munmap(s->copy, s->copy_bytes);
    free(s->copy_at);
    s->copy = NULL;
    s->copy_at = NULL;
}

choir_status choir__save_copy(choir__saver *s)
{
    choir_status status = CHOIR_OK;
    s->copy_bytes = ALIGNMENT;
    s->copy_at = choir__calloc((size_t)s->plan.part_count + 1, sizeof *s->copy_at);
    for (int p = 0; p < s->plan.part_count; p++) {
        s->copy_at[p] = s->copy_bytes;
        if (s->plan.parts[p].owner == s->rank)
            s->copy_bytes +=
                ((size_t)s->plan.parts[p].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    void *copy =
        mmap(NULL, s->copy_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return CHOIR_OK;
    madvise(copy, s->copy_bytes, MADV_HUGEPAGE); /* fewer faults delay training less */
    s->copy = copy;
    for (int p = 0; p < s->plan.part_count && status == CHOIR_OK; p++) {
        const choir__plan_part *part = &s->plan.parts[p];
        if (part->owner == s->rank)
            status = choir__item_read(item_of(s, part), part->box, s->copy + s->copy_at[p]);
    }
    return status;
}

/* --- a file --- */

typedef struct writing {
    choir__saver *s;
    const char *path;
    const int *parts; /* (count) indices in the plan */
    void *room;       /* memory for the largest of them */
} writing;

static choir_status check_finite(
    const writing *f, const choir__item *item, const choir__plan_part *part, const void *data)
{
    choir__checked what = {f->path, item->name, item->whole, item->dtype,
        !choir__box_region_is_whole(&part->region, item->whole)};
    return choir__check_finite(
        CHOIR_ERR_NONFINITE, &what, data, (size_t)part->bytes / choir_dtype_size(item->dtype));
}

static choir_status part_bytes(void *arg, int i, const void **data)
{
    writing *f = arg;
    choir__saver *s = f->s;
    const choir__plan_part *part = &s->plan.parts[f->parts[i]];
    const choir__item *item = item_of(s, part);
    choir_status status = CHOIR_OK;
    *data = s->copy ? s->copy + s->copy_at[f->parts[i]] : f->room;
    if (!s->copy)
        status = choir__item_read(item, part->box, f->room);
    if (status == CHOIR_OK && !item->moment)
        status = check_finite(f, item, part, *data);
    return status;
}

/* Returns the name and shape of a part. */
static choir__st_tensor header_of(const choir__item *item, const choir__plan_part *part)
{
    choir__st_tensor t = {.name = item->name, .dtype = item->dtype, .shape = item->whole};
    for (int d = 0; d < item->whole.ndim; d++)
        t.shape.dim[d] = part->region.size[d];
    t.bytes = (size_t)part->bytes;
    return t;
}

static json_t *numbers_json(const int64_t *numbers, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer(numbers[i]));
    return array;
}

/* Returns the metadata's text with the offsets of a file's parts; the caller frees it. */
static char *sharding_info(const choir__saver *s, const int *parts, int count)
{
    json_t *info = json_object();
    for (int i = 0; i < count; i++) {
        const choir__plan_part *part = &s->plan.parts[parts[i]];
        const choir__item *item = item_of(s, part);
        json_object_set_new(info, item->name,
            json_pack("{s:o, s:o}", "saved_offsets",
                numbers_json(part->region.from, item->whole.ndim), "shape",
                numbers_json(item->whole.dim, item->whole.ndim)));
    }
    char *text = json_dumps(info, JSON_COMPACT);
    json_decref(info);
    return text;
}

choir_status choir__save_file(choir__saver *s, int index)
{
    const choir__plan_file *planned = &s->plan.files[index];
    int count = 0;
    size_t largest = 0;
    int *parts = choir__calloc((size_t)s->plan.part_count + 1, sizeof *parts);
    choir__st_tensor *tensors = choir__calloc((size_t)s->plan.part_count + 1, sizeof *tensors);
    for (int p = 0; p < s->plan.part_count; p++)
        if (s->plan.parts[p].file == index) {
            parts[count] = p;
            tensors[count] = header_of(item_of(s, &s->plan.parts[p]), &s->plan.parts[p]);
            largest = tensors[count].bytes > largest ? tensors[count].bytes : largest;
            count++;
        }
    char *path = choir__format("%s/%s", s->fresh, planned->name);
    char *info = planned->parted ? sharding_info(s, parts, count) : NULL;
    const char *metadata[] = {"DCP_VERSION", "1.0", CHOIR__SHARDING_KEY, info, NULL};
    writing f = {s, path, parts, s->copy ? NULL : malloc(largest + 1)};
    choir_status status = CHOIR_OK;
    if (!s->copy && !f.room)
        status =
            choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes", path, largest);
    if (status == CHOIR_OK)
        status = choir__st_stream(
            path, tensors, count, info ? metadata : NULL, part_bytes, &f, &s->digests[index]);
    free(f.room);
    free(info);
    free(path);
    free(tensors);
    free(parts);
    return status;
}

/* --- the index --- */

static choir_status save_index(choir__saver *s, bool moments)
{
    int64_t total = 0;
    json_t *map = json_object();
    for (int p = s->plan.part_count; p-- > 0;) { /* backwards: the first part counts */
        const choir__plan_part *part = &s->plan.parts[p];
        const choir__plan_file *file = &s->plan.files[part->file];
        if (file->moments != moments)
            continue;
        json_object_set_new(map, item_of(s, part)->name, json_string(file->name));
        total += part->bytes;
    }
    json_t *root = json_pack(
        "{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    char *path = choir__format(
        "%s/%s.index.json", s->fresh, moments ? CHOIR__OPTIM_FILE : CHOIR__MODEL_FILE);
    choir_status status = choir__write_file(path, text, strlen(text));
    free(path);
    free(text);
    json_decref(root);
    return status;
}

choir_status choir__save_indices(choir__saver *s)
{
    int of[2] = {0, 0};
    choir_status status = CHOIR_OK;
    for (int f = 0; f < s->plan.file_count; f++)
        of[s->plan.files[f].moments]++;
    for (int moments = 0; moments < 2 && status == CHOIR_OK; moments++)
        if (of[moments] > 1)
            status = save_index(s, moments);
    return status;
}
