/* A watch that keeps what each op has computed. Numbers go to a file without a name as soon as
 * they are there, so a step needs memory for its largest tensor alone; at the end they are
 * copied to the file of the step, whose header must come first.
 *
 * Backward finds the name of an op's forward by the handle of its result, which is unique among
 * open scopes; it walks the other way, so the search begins where the one before ended. */
#include "audit/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/board/board.h"
#include "base/files/folders.h"
#include "base/files/map.h"
#include "base/nan.h"
#include "base/text.h"
#include "checkpoint/format/safetensors.h"
#include "nn/module.h"
#include "tensor/watch.h"

typedef struct kept {
    char *name;
    choir_dtype dtype;
    choir_shape shape;
    off_t at; /* place in the file */
    int64_t when;
} kept;

/* A handle whose gradient will be asked for: an op's result, or a module's. */
typedef struct seen {
    const choir_tensor *out;
    char *suffix; /* "MODULE/OP#CALL", or "MODULE#CALL" */
    int64_t micro;
    bool module;
} seen;

struct choir__ops {
    choir__op_watch watch;
    choir__run *run;
    choir_status status; /* first failure */
    char *message;
    FILE *file;
    kept *list;
    int count;
    seen *handles;
    int handle_count, cursor; /* cursor: the handle that was found last */
    choir__map calls;         /* calls by name without a number; and gradients by name */
    char **keys;              /* (key_count) the map's keys, to be freed */
    int key_count;
};

char *choir__ops_path(const char *folder, int64_t step, int rank)
{
    return choir__format(
        "%s/audit/step-%08lld.ops-%d.safetensors", folder, (long long)step, rank);
}

static void fail(choir__ops *o, choir_status status)
{
    if (o->status == CHOIR_OK) {
        o->status = status;
        o->message = choir__strdup(choir__message());
    }
}

/* Returns how often the name was counted before; the map keeps it. */
static int64_t count_call(choir__ops *o, char *name)
{
    int64_t before = choir__map_find(&o->calls, name);
    if (before >= 0) {
        choir__map_put(&o->calls, name, before + 1);
        free(name);
        return before;
    }
    CHOIR__GROW(o->keys, o->key_count);
    o->keys[o->key_count++] = name;
    choir__map_put(&o->calls, name, 1);
    return 0;
}

/* Adds the numbers of a tensor under a name, which becomes the list's. A rank of a pipeline
 * issues all ops, and has the numbers of its own stages. */
static void keep(choir__ops *o, char *name, const choir_tensor *t)
{
    if (!t->storage || choir__device_of(t)->away) {
        free(name);
        return;
    }
    size_t bytes = (size_t)t->count * choir_dtype_size(t->dtype);
    void *data = o->status == CHOIR_OK ? malloc(bytes + 1) : NULL;
    if (o->status != CHOIR_OK || !data) {
        if (o->status == CHOIR_OK)
            fail(o, choir__error(CHOIR_ERR_MEMORY, "no memory to keep '%.200s'", name));
        free(name);
        return;
    }
    choir_status status = choir_read(t, data, bytes);
    choir__one_nan(data, t->dtype, (size_t)t->count);
    CHOIR__GROW(o->list, o->count);
    o->list[o->count++] = (kept){.name = name,
        .dtype = t->dtype,
        .shape = t->shape,
        .at = ftello(o->file),
        .when = (int64_t)(choir__now() * 1e6)};
    if (status == CHOIR_OK && fwrite(data, 1, bytes, o->file) != bytes)
        status =
            choir__error(CHOIR_ERR_IO, "cannot keep the results of ops: %s", choir__why(errno));
    if (status != CHOIR_OK)
        fail(o, status);
    free(data);
    choir__board_beat();
}

static void note_handle(
    choir__ops *o, const choir_tensor *out, char *suffix, int64_t micro, bool module)
{
    CHOIR__GROW(o->handles, o->handle_count);
    o->cursor = o->handle_count;
    o->handles[o->handle_count++] = (seen){out, suffix, micro, module};
}

/* Returns the handle's entry: a module's or an op's; NULL: it was not seen. */
static const seen *find(choir__ops *o, const choir_tensor *out, bool module)
{
    for (int k = 0; k < o->handle_count; k++) {
        int i = (o->cursor - k + o->handle_count) % o->handle_count;
        if (o->handles[i].out == out && o->handles[i].module == module) {
            o->cursor = i;
            return &o->handles[i];
        }
    }
    return NULL;
}

/* --- what the watch sees --- */

/* Keeps a result of forward as "MICROBATCH/pass/SUFFIX#CALL". */
static void keep_forward(
    choir__ops *o, const char *pass, char *name, const choir_tensor *out, bool module)
{
    int64_t micro = out->scope->micro;
    char *counted = choir__format("%lld/%s/%s", (long long)micro, pass, name);
    char *suffix = choir__format("%s#%lld", name, (long long)count_call(o, counted));
    keep(o, choir__format("%lld/%s/%s", (long long)micro, pass, suffix), out);
    note_handle(o, out, suffix, micro, module);
    free(name);
}

static void computed(choir__op_watch *w, const choir__op *op, const choir_tensor *out)
{
    choir__ops *o = (choir__ops *)w;
    if (out->scope->kind == CHOIR__RUN) /* results of the run belong to no micro-batch */
        return;
    keep_forward(o, CHOIR__OPS_FORWARD,
        choir__format("%s/%s", o->run->at ? o->run->at->path : "", op->name), out, false);
}

/* A result that other ops are in, as the ReLU behind a norm, is no other program's. */
static void forward(choir__op_watch *w, const choir_module *m, const choir_tensor *out)
{
    choir__ops *o = (choir__ops *)w;
    if (out->scope->kind != CHOIR__RUN && !m->inside->fused)
        keep_forward(o, CHOIR__OPS_OUTPUT, choir__strdup(m->path), out, true);
}

static void keep_once(choir__ops *o, char *name, const choir_tensor *t)
{
    if (count_call(o, choir__strdup(name)) == 0)
        keep(o, name, t);
    else
        free(name);
}

static void reached(choir__op_watch *w, const choir__tape_entry *r, const choir_tensor *gy)
{
    choir__ops *o = (choir__ops *)w;
    const seen *s = find(o, r->out, true);
    /* modules that return what a module inside them has returned follow each other */
    for (; s && s >= o->handles && s->module && s->out == r->out; s--)
        keep_once(o,
            choir__format("%lld/" CHOIR__OPS_OUTPUT_GRAD "/%s", (long long)s->micro, s->suffix),
            gy);
}

static void given(choir__op_watch *w, const choir__tape_entry *r, int input, int64_t part,
    const choir_tensor *g)
{
    choir__ops *o = (choir__ops *)w;
    const seen *s = find(o, r->out, false);
    char which[32] = "";
    if (!s)
        return;
    if (part >= 0)
        snprintf(which, sizeof which, ".%lld", (long long)part);
    keep_once(o,
        choir__format("%lld/" CHOIR__OPS_BACKWARD "/%s/%d%s", (long long)s->micro, s->suffix,
            input, which),
        g);
}

/* --- the file --- */

/* Opens a file without a name in FOLDER/audit. */
static choir_status open_file(choir__ops *o, const char *folder)
{
    char *inside = choir__format("%s/audit", folder);
    char *path = choir__format("%s/ops.XXXXXX", inside);
    int error = choir__folders_make(inside), fd = error ? -1 : mkstemp(path);
    error = error ? error : errno;
    if (fd >= 0) {
        unlink(path);
        o->file = fdopen(fd, "w+");
    }
    choir_status status =
        o->file ? CHOIR_OK
                : choir__error(CHOIR_ERR_IO, "cannot keep the results of ops in %s: %s", inside,
                      choir__why(error));
    free(path);
    free(inside);
    return status;
}

choir__ops *choir__ops_begin(choir_scope *run, const char *folder)
{
    choir__ops *o = choir__calloc(1, sizeof *o);
    o->watch = (choir__op_watch){computed, forward, reached, given};
    o->run = run->run;
    choir_status status = open_file(o, folder);
    if (status != CHOIR_OK)
        fail(o, status);
    o->run->watch = &o->watch;
    return o;
}

static void release(choir__ops *o)
{
    for (int i = 0; i < o->count; i++)
        free(o->list[i].name);
    for (int i = 0; i < o->handle_count; i++)
        free(o->handles[i].suffix);
    for (int i = 0; i < o->key_count; i++)
        free(o->keys[i]);
    choir__map_free(&o->calls);
    if (o->file)
        fclose(o->file);
    free(o->keys);
    free(o->list);
    free(o->handles);
    free(o->message);
    free(o);
}

static char *order_of(const choir__ops *o)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '[');
    for (int i = 0; i < o->count; i++) {
        choir__text_open(&t, NULL, '[');
        choir__text_string(&t, NULL, o->list[i].name);
        choir__text_value(&t, NULL, "%lld", (long long)o->list[i].when);
        choir__text_close(&t, ']');
    }
    choir__text_close(&t, ']');
    choir__text_buffer_add(&t, "", 1);
    return t.bytes;
}

typedef struct source {
    const choir__ops *ops;
    const char *data; /* the file, mapped */
} source;

static choir_status next(void *arg, int i, const void **data)
{
    const source *s = arg;
    *data = s->data + s->ops->list[i].at;
    return CHOIR_OK;
}

static choir_status write_file(const choir__ops *o, const char *path)
{
    static const char nothing[1];
    source from = {o, nothing};
    if (fflush(o->file) != 0)
        return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, choir__why(errno));
    size_t bytes = (size_t)ftello(o->file);
    void *map = bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fileno(o->file), 0) : NULL;
    if (map == MAP_FAILED)
        return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, choir__why(errno));
    from.data = map ? map : nothing;
    choir__st_tensor *tensors = choir__calloc((size_t)o->count + 1, sizeof *tensors);
    for (int i = 0; i < o->count; i++)
        tensors[i] = (choir__st_tensor){.name = o->list[i].name,
            .dtype = o->list[i].dtype,
            .shape = o->list[i].shape,
            .bytes = (size_t)choir__shape_count(o->list[i].shape) *
                     choir_dtype_size(o->list[i].dtype)};
    char *order = order_of(o);
    const char *metadata[] = {CHOIR__OPS_ORDER, order, NULL};
    choir__digest digest;
    choir_status status =
        choir__st_stream(path, tensors, o->count, metadata, next, &from, &digest);
    free(order);
    free(tensors);
    if (map)
        munmap(map, bytes);
    return status;
}

choir_status choir__ops_end(choir__ops *o, const char *path)
{
    choir_status status = o->status;
    o->run->watch = NULL;
    if (status != CHOIR_OK)
        status = choir__error(status, "%s", o->message);
    else if (path)
        status = write_file(o, path);
    release(o);
    return status;
}
