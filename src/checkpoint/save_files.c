/* The files of a save: parts of tensors as safetensors, read from the tensors or from a copy.
 *
 * A rank usually has a file of weights and one of the optimizer's state. It fills them in turn,
 * always the one that is least complete, so that they are hashed and written at once. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checkpoint/writer.h"
#include "checkpoint/format/file.h"
#include "checkpoint/save.h"
#include "checkpoint/state.h"
#include "checkpoint/stored.h"
#include "tensor/held.h"
#include "tensor/tensor.h"

enum {
    ALIGNMENT = 64,
    MOST_OPEN = 4 /* files at once: each is hashed and written by threads of its own */
};

static const choir__item *item_of(const choir__saver *s, const choir__save_plan_part *part)
{
    return &s->items.list[part->item];
}

/* --- a copy --- */

/* Ends the thread that touches the copy's memory. */
static void stop_touching(choir__saver *s)
{
    if (!s->touching)
        return;
    atomic_store(&s->enough, true);
    pthread_join(s->toucher, NULL);
    s->touching = false;
}

void choir__save_free_copy(choir__saver *s)
{
    stop_touching(s);
    if (s->copy)
        munmap(s->copy, s->copy_bytes);
    free(s->copy_at);
    s->copy = NULL;
    s->copy_at = NULL;
    s->copy_bytes = 0;
}

/* Sets the offsets of this rank's parts in the copy. Returns the bytes that it needs. */
static size_t lay_out(choir__saver *s)
{
    size_t bytes = ALIGNMENT;
    free(s->copy_at);
    s->copy_at = choir__calloc((size_t)s->plan.part_count + 1, sizeof *s->copy_at);
    for (int p = 0; p < s->plan.part_count; p++) {
        s->copy_at[p] = bytes;
        if (s->plan.parts[p].owner == s->rank)
            bytes += ((size_t)s->plan.parts[p].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

/* Makes room for a copy. The memory is kept from save to save: when a page is touched first,
 * the kernel clears it, and a virtual machine may have to ask its host for it, which takes ten
 * times as long as the copy. */
static bool make_room(choir__saver *s, size_t bytes)
{
    if (s->copy && s->copy_bytes >= bytes)
        return true;
    if (s->copy)
        munmap(s->copy, s->copy_bytes);
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->copy = copy == MAP_FAILED ? NULL : copy;
    s->copy_bytes = s->copy ? bytes : 0;
    if (s->copy)
        /* huge pages take fewer faults at the first write */
        madvise(copy, bytes, MADV_HUGEPAGE);
    return s->copy;
}

/* Writes a byte to each page. They are zeros already, and nothing else uses them yet. */
static void *touch(void *arg)
{
    enum { PAGE = 4096 }; /* bytes of the smallest page on any machine */
    choir__saver *s = arg;
    choir__background_thread_yield();
    for (size_t at = 0; at < s->copy_bytes && !s->enough; at += PAGE)
        ((volatile char *)s->copy)[at] = 0;
    return NULL;
}

void choir__save_touch_copy(choir__saver *s)
{
    size_t bytes = lay_out(s);
    stop_touching(s);
    if (s->copy_bytes >= bytes || !make_room(s, bytes))
        return;
    s->enough = false;
    s->touching = choir__background_thread_start(&s->toucher, touch, s);
}

choir_status choir__save_copy(choir__saver *s)
{
    choir_status status = CHOIR_OK;
    stop_touching(s);
    s->copied = make_room(s, lay_out(s));
    for (int p = 0; s->copied && p < s->plan.part_count && status == CHOIR_OK; p++) {
        const choir__save_plan_part *part = &s->plan.parts[p];
        if (part->owner == s->rank)
            status = choir__item_read(item_of(s, part), part->box, s->copy + s->copy_at[p]);
    }
    return status;
}

/* --- files --- */

/* A file that is being written. */
typedef struct writing {
    int file; /* index in the plan */
    char *path;
    int *parts; /* (count) indices in the plan */
    choir__st_tensor *tensors;
    int count;
    choir__st_out *out; /* NULL: not open */
} writing;

/* Returns the name and shape of a part. */
static choir__st_tensor header_of(const choir__item *item, const choir__save_plan_part *part)
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
        const choir__save_plan_part *part = &s->plan.parts[parts[i]];
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

/* Returns the metadata's text with the types of a file's blocks, or NULL; the caller frees it.
 */
static char *blocks_info(const choir__saver *s, const int *parts, int count)
{
    json_t *info = json_object();
    for (int i = 0; i < count; i++) {
        const choir__item *item = item_of(s, &s->plan.parts[parts[i]]);
        const struct choir__held *held = item->param ? item->param->tensor->held : NULL;
        if (held && held->type > CHOIR__BF16)
            json_object_set_new(
                info, item->name, json_string(choir__quant_types[held->type].name));
    }
    char *text =
        json_object_size(info) ? json_dumps(info, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(info);
    return text;
}

static choir_status open_file(choir__saver *s, int file, writing *w)
{
    const choir__save_plan_file *planned = &s->plan.files[file];
    size_t room = (size_t)s->plan.part_count + 1;
    *w = (writing){.file = file,
        .path = choir__format("%s/%s", s->fresh, planned->name),
        .parts = choir__calloc(room, sizeof *w->parts),
        .tensors = choir__calloc(room, sizeof *w->tensors)};
    for (int p = 0; p < s->plan.part_count; p++)
        if (s->plan.parts[p].file == file) {
            w->parts[w->count] = p;
            w->tensors[w->count++] =
                header_of(item_of(s, &s->plan.parts[p]), &s->plan.parts[p]);
        }
    char *info = planned->parted ? sharding_info(s, w->parts, w->count) : NULL;
    char *blocks = blocks_info(s, w->parts, w->count);
    const char *metadata[7] = {NULL};
    int n = 0;
    if (info) {
        metadata[n++] = "DCP_VERSION";
        metadata[n++] = "1.0";
        metadata[n++] = CHOIR__SHARDING_KEY;
        metadata[n++] = info;
    }
    if (blocks) {
        metadata[n++] = CHOIR__BLOCKS_KEY;
        metadata[n++] = blocks;
    }
    choir_status status =
        choir__st_out_open(&w->out, w->path, w->tensors, w->count, n ? metadata : NULL);
    free(blocks);
    free(info);
    return status;
}

static choir_status close_file(choir__saver *s, writing *w, choir_status status)
{
    if (w->out)
        status = choir__st_out_close(w->out, status, &s->digests[w->file]);
    free(w->path);
    free(w->parts);
    free(w->tensors);
    *w = (writing){0};
    return status;
}

static choir_status check_finite(const writing *w, const choir__item *item,
    const choir__save_plan_part *part, const void *data)
{
    choir__checked what = {w->path, item->name, item->whole, item->dtype,
        !choir__box_region_is_whole(&part->region, item->whole)};
    return choir__check_finite(
        CHOIR_ERR_NONFINITE, &what, data, (size_t)part->bytes / choir_dtype_size(item->dtype));
}

/* Writes part p, which comes next in its file. room: memory for it; NULL if there is a copy. */
static choir_status write_part(choir__saver *s, writing *w, int p, void *room)
{
    const choir__save_plan_part *part = &s->plan.parts[p];
    const choir__item *item = item_of(s, part);
    const void *data = room ? room : s->copy + s->copy_at[p];
    choir_status status = room ? choir__item_read(item, part->box, room) : CHOIR_OK;
    if (status == CHOIR_OK && !item->moment)
        status = check_finite(w, item, part, data);
    return status == CHOIR_OK ? choir__st_out_put(w->out, data) : status;
}

/* Returns the open file that is least complete, or NULL. */
static writing *most_behind(writing *open)
{
    writing *found = NULL;
    for (writing *w = open; w < open + MOST_OPEN; w++)
        if (w->out &&
            (!found || choir__st_out_progress(w->out) < choir__st_out_progress(found->out)))
            found = w;
    return found;
}

/* Opens the next files of this rank while there is room. */
static choir_status open_more(choir__saver *s, writing *open, int *next)
{
    choir_status status = CHOIR_OK;
    for (writing *w = open; w < open + MOST_OPEN && status == CHOIR_OK; w++) {
        while (*next < s->plan.file_count && s->plan.files[*next].owner != s->rank)
            ++*next;
        if (!w->out && *next < s->plan.file_count)
            status = open_file(s, (*next)++, w);
    }
    return status;
}

static choir_status write_files(choir__saver *s, void *room)
{
    writing open[MOST_OPEN] = {{0}}, *w;
    int next = 0;
    choir_status status = open_more(s, open, &next);
    while (status == CHOIR_OK && (w = most_behind(open))) {
        int i = choir__st_out_next(w->out);
        if (i >= 0)
            status = write_part(s, w, w->parts[i], room);
        else if ((status = close_file(s, w, status)) == CHOIR_OK)
            status = open_more(s, open, &next);
    }
    for (w = open; w < open + MOST_OPEN; w++)
        status = close_file(s, w, status);
    return status;
}

/* Writes from the tensors, one after another. */
static choir_status write_from_tensors(choir__saver *s)
{
    size_t largest = 0;
    for (int p = 0; p < s->plan.part_count; p++)
        if (s->plan.parts[p].owner == s->rank)
            largest = choir__max(largest, s->plan.parts[p].bytes);
    void *room = malloc(largest + 1);
    if (!room)
        return choir__error(
            CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes", s->fresh, largest);
    choir_status status = write_files(s, room);
    free(room);
    return status;
}

choir_status choir__save_files(choir__saver *s)
{
    choir_status status = s->copied ? write_files(s, NULL) : write_from_tensors(s);
    return status == CHOIR_OK ? choir__save_prove(s) : status;
}

/* --- the index --- */

static choir_status save_index(choir__saver *s, bool moments)
{
    int64_t total = 0;
    json_t *map = json_object();
    for (int p = s->plan.part_count; p-- > 0;) { /* backwards: the first part counts */
        const choir__save_plan_part *part = &s->plan.parts[p];
        const choir__save_plan_file *file = &s->plan.files[part->file];
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
