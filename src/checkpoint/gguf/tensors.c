/* Opens a GGUF file as a file of tensors with transformers' names (format/safetensors.h), so
 * that loaders need not know the format. Tensors point into the mapping wherever packed.h
 * can express them; transposed matrices and norms are converted to f32 in memory. The
 * mapping then belongs to the opened file. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/gguf/model.h"
#include "tensor/tensor.h"

/* --- opening --- */

choir_status choir__gguf_refuse(const choir__gguf_model *m, const char *what, const char *name)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED, "%s: %s '%.200s'", m->path, what, name);
}

bool choir__gguf_model_number(const choir__gguf_model *m, const char *end, double *value)
{
    char *key = choir__format("%s.%s", m->family->arch, end);
    bool there = choir__gguf_number(m->in, key, value);
    free(key);
    return there;
}

static choir_status read_heads(choir__gguf_model *m)
{
    double heads = 0, kv;
    choir__gguf_model_number(m, "attention.head_count", &heads);
    kv = heads;
    choir__gguf_model_number(m, "attention.head_count_kv", &kv);
    if (!(heads >= 1 && heads <= 1 << 20 && kv >= 1 && kv <= heads))
        return choir__gguf_refuse(
            m, "no sensible number under the key", "attention.head_count");
    m->heads = (choir__gguf_heads){(int64_t)heads, (int64_t)kv};
    return CHOIR_OK;
}

choir_status choir__gguf_model_open(choir__gguf_model *m, const char *path)
{
    double parts;
    *m = (choir__gguf_model){.path = path};
    choir_status status = choir__gguf_open(&m->in, path);
    if (status != CHOIR_OK)
        return status;
    if (choir__gguf_number(m->in, "split.count", &parts) && parts > 1)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s is one of the %.0f files of a model that was split: 'llama-gguf-split --merge "
            "FIRST NEW.gguf' makes one file of them, which is read",
            path, parts);
    const char *arch = choir__gguf_string(m->in, "general.architecture");
    m->family = arch ? choir__gguf_family_of_arch(arch) : NULL;
    if (!m->family)
        return choir__gguf_refuse(
            m, "a model of an architecture that is not read:", arch ? arch : "");
    return read_heads(m);
}

void choir__gguf_model_close(choir__gguf_model *m)
{
    choir__gguf_close(m->in);
    m->in = NULL;
}

/* --- tensors --- */

static choir_dtype dtype_of(choir__quant type)
{
    return type == CHOIR__F16 ? CHOIR_F16 : type == CHOIR__BF16 ? CHOIR_BF16 : CHOIR_F32;
}

/* Keeps the file's bytes. Rows in another order are blocks of one number each. */
static void keep(choir__st_tensor *t, const choir__gguf_tensor_info *from, int64_t heads)
{
    const bool plain = !heads && from->type <= CHOIR__BF16;
    t->data = from->data;
    t->bytes = (size_t)from->bytes;
    t->dtype = plain ? dtype_of(from->type) : CHOIR_F32;
    t->blocks = plain ? CHOIR__F32 : from->type;
    t->heads = heads;
}

/* Makes the values that transformers has. */
static choir_status make(const choir__gguf_model *m, choir__st_tensor *t,
    const choir__gguf_tensor_info *from, choir__gguf_change change)
{
    const int64_t n = choir__shape_count(from->shape);
    t->dtype = CHOIR_F32;
    t->bytes = (size_t)n * sizeof(float);
    t->data = t->own = malloc(t->bytes + 1);
    float *values = malloc(t->bytes + 1);
    if (values && t->own) {
        choir__quant_decode(from->type, values, from->data, 0, n); /* rows are whole blocks */
        choir__gguf_change_values(change, false, from->shape, m->heads, values, t->own);
    }
    bool made = values && t->own;
    free(values);
    return made ? CHOIR_OK
                : choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for the %zu bytes of '%s'",
                      m->path, t->bytes, t->name);
}

static choir_status add(const choir__gguf_model *m, int i, choir__st_file *f)
{
    const choir__gguf_tensor_info *from = choir__gguf_get(m->in, i);
    choir__st_tensor *t = &f->tensors[f->count];
    choir__gguf_change change;
    int layer;
    char *name = choir__gguf_rename(m->family, from->name, false, &change, &layer);
    if (!name && !strcmp(from->name, CHOIR__GGUF_FACTORS)) /* config.c reads it */
        return CHOIR_OK;
    if (!name)
        return choir__gguf_refuse(m, "a tensor has no place in such a model:", from->name);
    *t = (choir__st_tensor){.name = name, .shape = from->shape};
    f->count++;
    const int64_t heads = choir__gguf_paired_heads(change, m->heads);
    if (t->shape.ndim > 2 || (change == CHOIR__GGUF_TRANSPOSED && t->shape.ndim != 2) ||
        (heads && t->shape.dim[0] % (2 * heads)) ||
        (heads && t->shape.ndim == 1 && from->type > CHOIR__BF16))
        return choir__gguf_refuse(m, "a tensor's shape does not fit such a model:", from->name);
    if (change != CHOIR__GGUF_TRANSPOSED && change != CHOIR__GGUF_PLUS_ONE) {
        keep(t, from, heads);
        return CHOIR_OK;
    }
    if (change == CHOIR__GGUF_TRANSPOSED)
        t->shape = choir_dims(t->shape.dim[1], t->shape.dim[0]);
    return make(m, t, from, change);
}

choir_status choir__gguf_tensors_open(const char *path, choir__st_file **file)
{
    choir__gguf_model m;
    choir__st_file *f = choir__calloc(1, sizeof *f);
    choir_status status = choir__gguf_model_open(&m, path);
    const int count = status == CHOIR_OK ? choir__gguf_count(m.in) : 0;
    f->path = choir__strdup(path);
    f->tensors = choir__calloc((size_t)count + 1, sizeof *f->tensors);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = add(&m, i, f);
    if (status == CHOIR_OK) {
        f->map = (char *)choir__gguf_take_map(m.in, &f->size);
        choir__st_sort(f);
        *file = f;
    } else {
        choir__st_close(f);
    }
    choir__gguf_model_close(&m);
    return status;
}
