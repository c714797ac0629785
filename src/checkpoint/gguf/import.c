/* Reading a GGUF file as a model's folder: config.json and the tokenizer's files, and its
 * tensors as a file of safetensors. */
#include "checkpoint/gguf/import.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/base.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/packed.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/gguf/vocab.h"
#include "checkpoint/stored.h"
#include "tensor/tensor.h"

typedef struct import {
    const char *path, *folder, *advice;
    bool weights; /* the folder has them, too */
    choir_dtype dtype;
    choir__st_file *in;
    choir__st_tensor *tensors; /* as they are written */
    float *values;
    void *cast;
} import;

bool choir__is_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".gguf");
}

bool choir__is_gguf_file(const char *path)
{
    return choir__is_gguf(path) && !choir__is_folder(path);
}

/* --- weights --- */

static choir_status next(void *arg, int i, const void **data)
{
    import *m = arg;
    const choir__st_tensor *t = choir__st_get(m->in, i);
    const int64_t n = choir__shape_count(t->shape);
    if (choir__is_packed(t))
        choir__packed_read(t, 0, n, m->values);
    else
        choir__numbers_convert(m->values, CHOIR_F32, t->data, t->dtype, (size_t)n);
    choir__numbers_convert(m->cast, m->dtype, m->values, CHOIR_F32, (size_t)n);
    *data = m->cast;
    choir__checked what = {m->path, t->name, t->shape, m->dtype, false};
    return choir__check_finite(CHOIR_ERR_NONFINITE, &what, m->cast, (size_t)n);
}

/* Blocks of few bits become several times as large. */
static choir_status check_room(const import *m, const char *folder)
{
    struct statvfs disk;
    double needs = 0;
    for (int i = 0; i < choir__st_count(m->in); i++)
        needs += (double)m->tensors[i].bytes;
    if (statvfs(folder, &disk) != 0)
        return CHOIR_OK; /* writing says more */
    const double room = (double)disk.f_bavail * (double)disk.f_frsize;
    return needs <= room
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_IO,
                     "%s: its weights take %.2f GB as %s, and the disk of %s has %.2f GB free: %s",
                     m->path, needs / 1e9, choir_dtype_name(m->dtype), m->folder, room / 1e9,
                     m->advice);
}

static choir_status write_weights(import *m, const char *folder)
{
    const int count = choir__st_count(m->in);
    int64_t most = 1;
    choir__digest digest;
    m->tensors = choir__calloc((size_t)count + 1, sizeof *m->tensors);
    for (int i = 0; i < count; i++) {
        const choir__st_tensor *t = choir__st_get(m->in, i);
        const int64_t n = choir__shape_count(t->shape);
        m->tensors[i] = (choir__st_tensor){.name = t->name,
            .dtype = m->dtype,
            .shape = t->shape,
            .bytes = (size_t)n * choir_dtype_size(m->dtype)};
        most = choir__max(most, n);
    }
    choir_status status = check_room(m, folder);
    if (status != CHOIR_OK)
        return status;
    const size_t bytes = (size_t)most * sizeof(float);
    m->values = malloc(bytes);
    m->cast = malloc(bytes);
    char *path = choir__format("%s/model.safetensors", folder);
    status = m->values && m->cast
                 ? choir__st_stream(path, m->tensors, count,
                       (const char *const[]){"format", "pt", NULL}, next, m, &digest)
                 : choir__error(CHOIR_ERR_MEMORY, "no host memory for %zu bytes", bytes);
    free(path);
    return status;
}

/* --- the folder --- */

static choir_status write_small(const import *m, const char *folder)
{
    choir__gguf_model model;
    char *text = NULL, *path = choir__format("%s/config.json", folder);
    choir_status status = choir__gguf_model_open(&model, m->path);
    if (status == CHOIR_OK)
        status = choir__gguf_config(&model, &text);
    if (status == CHOIR_OK)
        status = choir__write_file(path, text, strlen(text));
    if (status == CHOIR_OK && choir__gguf_has_vocab(model.in))
        status = choir__gguf_write_vocab(model.in, folder);
    choir__gguf_model_close(&model);
    free(text);
    free(path);
    return status;
}

static choir_status fill(const char *folder, void *arg)
{
    import *m = arg;
    choir_status status = write_small(m, folder);
    if (status == CHOIR_OK && m->weights)
        status = choir__gguf_tensors_open(m->path, &m->in);
    if (status == CHOIR_OK && m->weights)
        status = write_weights(m, folder);
    return status == CHOIR_OK ? choir__sync_path(folder) : status;
}

static choir_status make_folder(import *m)
{
    choir_status status = choir__folder_is_free(m->folder);
    if (status == CHOIR_OK)
        status = choir__folder_make(m->folder, fill, m);
    choir__st_close(m->in);
    free(m->tensors);
    free(m->values);
    free(m->cast);
    return status;
}

choir_status choir__gguf_import(
    const char *path, const char *folder, choir_dtype dtype, const char *advice)
{
    return make_folder(&(import){
        .path = path, .folder = folder, .advice = advice, .weights = true, .dtype = dtype});
}

choir_status choir__gguf_import_small(const char *path, const char *folder)
{
    return make_folder(&(import){.path = path, .folder = folder});
}
