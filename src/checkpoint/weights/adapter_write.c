/* Writing adapters, and weights with adapters added to them: see adapter.h. One tensor after
 * another is read from the module, changed on the host, and written. A sum W + scale B A is a
 * chain of fused multiply-adds per number of B A, in f32, as products are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/hold.h>
#include <jansson.h>

#include "base/floats.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/stored.h"
#include "checkpoint/weights/adapter.h"
#include "nn/lora.h"
#include "tensor/held.h"
#include "tensor/tensor.h"

typedef struct part {
    choir_tensor *tensor;
    choir__linear *layer; /* the tensor is the weight of this layer with an adapter; or NULL */
    bool in_out;          /* the layer's */
} part;

typedef struct parts {
    const char *path;
    bool adapters; /* adapters, and modules beside them; else all weights but adapters */
    choir_dtype dtype;
    choir__st_tensor *tensors;
    part *list; /* (count), as tensors */
    int count;
    void *room, *cast; /* room for the largest tensor, as f32 and as dtype */
} parts;

/* --- the list of tensors --- */

static void add(parts *p, const char *lead, const char *name, choir_tensor *t)
{
    int64_t n = choir__shape_count(choir__values_shape(t));
    choir_dtype dtype = choir__is_float(t->dtype) || t->held ? p->dtype : t->dtype;
    int count = p->count;
    CHOIR__GROW(p->tensors, count);
    CHOIR__GROW(p->list, count);
    p->tensors[count] = (choir__st_tensor){.name = choir__format("%s%s", lead, name),
        .dtype = dtype,
        .shape = choir__values_shape(t),
        .bytes = (size_t)n * choir_dtype_size(dtype)};
    p->list[count] = (part){.tensor = t};
    p->count++;
}

static void add_own(const char *name, choir_tensor *t, void *arg)
{
    parts *p = arg;
    bool adapts = t->param && t->param->adapts, beside = t->param && t->param->beside_adapters;
    if (p->adapters ? adapts || beside : !adapts)
        add(p, p->adapters ? CHOIR__ADAPTER_LEAD : "", name, t);
}

/* Programs that do not tie the two load both. */
static void add_tied(const char *name, choir_tensor *t, void *arg)
{
    if (t->param && t->param->beside_adapters)
        add(arg, CHOIR__ADAPTER_LEAD, name, t);
}

static void find_layer(choir_module *m, void *arg)
{
    parts *p = arg;
    bool in_out;
    choir__linear *l = choir__linear_of_module(m, &in_out);
    for (int i = 0; l && l->adapter.a && i < p->count; i++)
        if (p->list[i].tensor == l->weight)
            p->list[i] = (part){l->weight, l, in_out};
}

/* --- their numbers --- */

static choir_status read_floats(choir_tensor *t, float **values)
{
    size_t bytes = (size_t)choir_tensor_count(t) * sizeof **values;
    *values = malloc(bytes + 1);
    if (!*values)
        return choir__error(CHOIR_ERR_MEMORY, "no host memory for %zu bytes", bytes);
    return choir_read(t, *values, bytes);
}

/* w (out, in), or (in, out), += scale b (out, r) a (r, in) */
static void add_product(float *w, const float *a, const float *b, const part *p)
{
    int64_t in = choir__linear_in(p->layer, p->in_out),
            out = choir__linear_out(p->layer, p->in_out),
            r = choir_tensor_size(p->layer->adapter.a, 0);
    float *row = choir__calloc((size_t)in, sizeof *row);
    for (int64_t o = 0; o < out; o++) {
        memset(row, 0, (size_t)in * sizeof *row);
        for (int64_t k = 0; k < r; k++)
            for (int64_t i = 0; i < in; i++)
                row[i] = fmaf(b[o * r + k], a[k * in + i], row[i]);
        for (int64_t i = 0; i < in; i++) {
            float *to = p->in_out ? &w[i * out + o] : &w[o * in + i];
            *to += p->layer->adapter.scale * row[i];
        }
    }
    free(row);
}

static choir_status merge(parts *p, const part *one)
{
    float *a = NULL, *b = NULL;
    choir_status status = read_floats(one->layer->adapter.a, &a);
    if (status == CHOIR_OK)
        status = read_floats(one->layer->adapter.b, &b);
    if (status == CHOIR_OK)
        add_product(p->room, a, b, one);
    free(a);
    free(b);
    return status;
}

/* Stores the values of part i in the room, in their own dtype. */
static choir_status read_merged(parts *p, int i)
{
    const part *one = &p->list[i];
    choir_tensor *from = one->tensor;
    size_t n = (size_t)choir__shape_count(p->tensors[i].shape);
    choir_status status = from->held
                              ? choir__held_read(from, p->room)
                              : choir_read(from, p->room, n * choir_dtype_size(from->dtype));
    return status == CHOIR_OK && one->layer ? merge(p, one) : status;
}

static choir_status next(void *arg, int i, const void **data)
{
    parts *p = arg;
    const choir__st_tensor *t = &p->tensors[i];
    const choir_tensor *from = p->list[i].tensor;
    size_t n = (size_t)choir__shape_count(t->shape);
    choir_dtype dtype = from->held ? CHOIR_F32 : from->dtype;
    choir_status status = read_merged(p, i);
    *data = p->room;
    if (status != CHOIR_OK || !choir__is_float(dtype))
        return status;
    choir__numbers_convert(p->cast, t->dtype, p->room, dtype, n);
    *data = p->cast;
    choir__checked what = {p->path, t->name, t->shape, t->dtype, false};
    return choir__check_finite(CHOIR_ERR_NONFINITE, &what, p->cast, n);
}

/* --- files --- */

static size_t largest(const parts *p)
{
    size_t most = 0;
    for (int i = 0; i < p->count; i++)
        if ((size_t)choir__shape_count(p->tensors[i].shape) > most)
            most = (size_t)choir__shape_count(p->tensors[i].shape);
    return most;
}

static void free_parts(parts *p)
{
    for (int i = 0; i < p->count; i++)
        free(p->tensors[i].name);
    free(p->tensors);
    free(p->list);
    free(p->room);
    free(p->cast);
}

static choir_status write_parts(parts *p, const char *const *metadata)
{
    choir__digest digest;
    size_t most = largest(p);
    p->room = malloc(most * sizeof(int64_t) + 1);
    p->cast = malloc(most * sizeof(int64_t) + 1);
    choir_status status =
        p->room && p->cast
            ? choir__st_stream(p->path, p->tensors, p->count, metadata, next, p, &digest)
            : choir__error(
                  CHOIR_ERR_MEMORY, "%s: no host memory for %zu numbers", p->path, most);
    free_parts(p);
    return status;
}

/* --- one by one --- */

struct choir__merged {
    parts parts;
};

choir__merged *choir__merged_open(choir_module *module)
{
    choir__merged *m = choir__calloc(1, sizeof *m);
    m->parts.dtype = CHOIR_F32;
    choir_module_visit(module, true, add_own, &m->parts);
    choir_module_each(module, find_layer, &m->parts);
    return m;
}

void choir__merged_close(choir__merged *m)
{
    if (m)
        free_parts(&m->parts);
    free(m);
}

int choir__merged_count(const choir__merged *m)
{
    return m->parts.count;
}

const char *choir__merged_name(const choir__merged *m, int i, choir_shape *shape)
{
    *shape = m->parts.tensors[i].shape;
    return m->parts.tensors[i].name;
}

static choir_status make_room(parts *p)
{
    if (!p->room)
        p->room = malloc(largest(p) * sizeof(int64_t) + 1);
    return p->room ? CHOIR_OK : choir__error(CHOIR_ERR_MEMORY, "no host memory for a weight");
}

choir_status choir__merged_blocks(
    choir__merged *m, int i, choir__quant type, const uint8_t **blocks)
{
    parts *p = &m->parts;
    choir_tensor *t = p->list[i].tensor;
    *blocks = NULL;
    if (p->list[i].layer || !t->held || t->held->type != type)
        return CHOIR_OK;
    choir_status status = make_room(p);
    uint8_t *to = (uint8_t *)p->room;
    const size_t padded = (size_t)t->shape.dim[1] * choir_dtype_size(t->dtype),
                 row = (size_t)choir__quant_bytes(type, t->held->cols);
    if (status == CHOIR_OK)
        status = choir_read(t, to, (size_t)t->shape.dim[0] * padded);
    for (int64_t r = 1; r < t->shape.dim[0] && status == CHOIR_OK; r++)
        memmove(to + (size_t)r * row, to + (size_t)r * padded, row);
    *blocks = to;
    return status;
}

choir_status choir__merged_read(choir__merged *m, int i, const float **values)
{
    CHOIR__DEFAULT_FLOATS;
    parts *p = &m->parts;
    const choir_tensor *t = p->list[i].tensor;
    choir_status room = make_room(p);
    if (room != CHOIR_OK)
        return room;
    if (t->dtype != CHOIR_F32 && !t->held)
        return choir__error(CHOIR_ERR_DTYPE, "weight '%s' is of %s, expected f32",
            p->tensors[i].name, choir_dtype_name(t->dtype));
    *values = p->room;
    return read_merged(p, i);
}

choir_status choir__merged_write(choir_module *module, choir_dtype dtype, const char *path)
{
    CHOIR__DEFAULT_FLOATS;
    parts p = {.path = path, .dtype = dtype};
    choir_module_visit(module, true, add_own, &p);
    choir_module_each(module, find_layer, &p);
    return write_parts(&p, (const char *const[]){"format", "pt", NULL});
}

/* The choice of layers, as peft's configuration has it. */
typedef struct choice {
    json_t *targets, *whole; /* lists of names */
    bool paths;              /* targets are whole paths, not their last names */
    const choir__adapter *one;
    int64_t rank;
    bool in_out;
} choice;

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool has(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (!strcmp(json_string_value(json_array_get(names, i)), name))
            return true;
    return false;
}

static void put(json_t *names, const char *name)
{
    if (!has(names, name))
        json_array_append_new(names, json_string(name));
}

static void list_layer(choir_module *m, void *arg)
{
    choice *c = arg;
    bool in_out;
    const choir__linear *l = choir__linear_of_module(m, &in_out);
    if (l && l->adapter.a) {
        c->one = &l->adapter;
        c->rank = choir_tensor_size(l->adapter.a, 0);
        c->in_out |= in_out;
        put(c->targets, c->paths ? m->path : last_name(m->path));
    }
    for (const choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__PARAM && e->tensor->param->beside_adapters)
            put(c->whole, m->path);
}

/* Another layer may have a name of a target. */
static void check_layer(choir_module *m, void *arg)
{
    choice *c = arg;
    bool in_out;
    const choir__linear *l = choir__linear_of_module(m, &in_out);
    c->paths |= l && !l->adapter.a && has(c->targets, last_name(m->path));
}

/* A module that shares a weight trained whole is one of them: peft would train a copy. */
static void list_tie(const char *name, choir_tensor *t, void *arg)
{
    const char *dot = strrchr(name, '.');
    if (!t->param || !t->param->beside_adapters || !dot)
        return;
    char *path = choir__format("%.*s", (int)(dot - name), name);
    put(((choice *)arg)->whole, path);
    free(path);
}

static json_t *config_of(choir_module *module, const choir__adapter_made *made)
{
    choice c = {json_array(), json_array(), false, NULL, 0, false};
    choir_module_each(module, list_layer, &c);
    choir_module_each(module, check_layer, &c);
    if (c.paths) {
        json_array_clear(c.targets);
        choir_module_each(module, list_layer, &c);
    }
    choir__module_visit_ties(module, list_tie, &c);
    double alpha = c.one->alpha;
    json_t *scale = alpha == (double)(json_int_t)alpha ? json_integer((json_int_t)alpha)
                                                       : json_real(alpha),
           *whole = json_array_size(c.whole) ? json_incref(c.whole) : json_null();
    json_t *root = json_pack(
        "{s:s, s:s?, s:s?, s:I, s:o, s:f, s:o, s:o, s:b, s:b, s:s, s:b, s:b, s:b, s:{}, s:{}}",
        "peft_type", "LORA", "base_model_name_or_path", made->base, "task_type", made->task,
        "r", (json_int_t)c.rank, "lora_alpha", scale, "lora_dropout", (double)c.one->dropout,
        "target_modules", c.targets, "modules_to_save", whole, "use_rslora", c.one->rslora,
        "fan_in_fan_out", c.in_out, "bias", "none", "inference_mode", true, "init_lora_weights",
        true, "use_dora", false, "rank_pattern", "alpha_pattern");
    json_decref(c.whole);
    return root;
}

choir_status choir__adapter_write(
    choir_module *module, const choir__adapter_made *made, const char *folder)
{
    CHOIR__DEFAULT_FLOATS;
    char *path = choir__format("%s/" CHOIR__ADAPTER_WEIGHTS, folder);
    parts p = {.path = path, .adapters = true, .dtype = made->dtype};
    choir_module_visit(module, false, add_own, &p);
    choir__module_visit_ties(module, add_tied, &p);
    choir_status status = write_parts(
        &p, (const char *const[]){"format", "pt",
                *made->base_sha256 ? CHOIR__ADAPTER_HASHED : NULL, made->base_sha256, NULL});
    json_t *root = config_of(module, made);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    char *config = choir__format("%s/" CHOIR__ADAPTER_CONFIG, folder);
    if (status == CHOIR_OK)
        status = choir__write_file(config, text, strlen(text));
    free(config);
    free(text);
    json_decref(root);
    free(path);
    return status;
}

choir_status choir_adapter_save(choir_module *module, const char *base, const char *folder)
{
    char hex[65] = "";
    choir_status status = choir__use_module(module, __func__);
    if (status == CHOIR_OK && !folder)
        status = choir__missing(__func__, "folder");
    if (status == CHOIR_OK && !choir__has_adapters(module))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "choir_adapter_save: the model has no adapters; choir_lora adds them");
    if (status == CHOIR_OK && !choir_module_held_bytes(module)) /* held weights are rounded */
        status = choir__base_sha256(module, NULL, hex);
    return status == CHOIR_OK ? choir__adapter_write(module,
                                    &(choir__adapter_made){
                                        .base = base, .base_sha256 = hex, .dtype = CHOIR_F32},
                                    folder)
                              : status;
}
