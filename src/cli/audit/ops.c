/* The ops of a step, from the files beside its dump (src/audit/ops.h): the first one in program
 * order whose result differs, and outputs of modules for other programs.
 *
 * Program order is the order of micro-batches, and within one of them the order of time, since
 * the stages of a pipeline write files of their own. The operands of an op came before it, so
 * the first one that differs has computed otherwise from equal operands. */
#include "cli/audit/audit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/ops.h"
#include "tensor/tensor.h"

/* --- opening --- */

static void add_entries(choir__op_files *ops, const choir__st_file *file)
{
    const char *text = choir__st_metadata(file, CHOIR__OPS_ORDER);
    json_t *order = text ? json_loads(text, 0, NULL) : NULL, *pair;
    choir__map times = {0};
    size_t i;
    json_array_foreach(order, i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        if (name)
            choir__map_put(&times, name,
                choir__max((int64_t)json_integer_value(json_array_get(pair, 1)), (int64_t)0));
    }
    for (int k = 0; k < choir__st_count(file); k++) {
        const choir__st_tensor *t = choir__st_get(file, k);
        CHOIR__GROW(ops->list, ops->count);
        ops->list[ops->count++] = (choir__op_entry){.tensor = t,
            .micro = strtoll(t->name, NULL, 10),
            .when = choir__map_find(&times, t->name),
            .same_name = -1};
    }
    choir__map_free(&times);
    json_decref(order);
}

static int by_time(const void *a, const void *b)
{
    const choir__op_entry *x = a, *y = b;
    int64_t order = x->micro != y->micro ? x->micro - y->micro : x->when - y->when;
    return order ? (order > 0) - (order < 0) : strcmp(x->tensor->name, y->tensor->name);
}

bool choir__ops_open(choir__op_files *ops, const char *folder, int64_t step)
{
    char *inside = choir__format("%s/audit", folder);
    DIR *dir = opendir(inside);
    *ops = (choir__op_files){0};
    for (struct dirent *e; dir && (e = readdir(dir));) {
        long long of;
        int rank, used = 0;
        if (sscanf(e->d_name, "step-%lld.ops-%d.safetensors%n", &of, &rank, &used) != 2 ||
            !used || e->d_name[used] || of != step)
            continue;
        char *path = choir__ops_path(folder, step, rank);
        choir__st_file *file;
        if (choir__st_open(path, &file) == CHOIR_OK) {
            CHOIR__GROW(ops->files, ops->file_count);
            ops->files[ops->file_count++] = file;
        } else {
            (void)choir_error_message(); /* marks the error as read: these are not compared */
        }
        free(path);
    }
    if (dir)
        closedir(dir);
    free(inside);
    for (int i = 0; i < ops->file_count; i++)
        add_entries(ops, ops->files[i]);
    if (ops->count)
        qsort(ops->list, (size_t)ops->count, sizeof *ops->list, by_time);
    for (int i = 0; i < ops->count; i++)
        ops->list[i].same_name = choir__map_put(&ops->names, ops->list[i].tensor->name, i);
    return ops->count > 0;
}

void choir__ops_close(choir__op_files *ops)
{
    for (int i = 0; i < ops->file_count; i++)
        choir__st_close(ops->files[i]);
    choir__map_free(&ops->names);
    free(ops->files);
    free(ops->list);
    *ops = (choir__op_files){0};
}

/* --- the first op that differs --- */

static bool same_shape(const choir__st_tensor *a, const choir__st_tensor *b)
{
    return a->dtype == b->dtype && choir__same_shape(a->shape, b->shape);
}

/* Returns whether all tensors of a name are the same one: each rank has computed the whole.
 * Ranks of tp and cp have parts, which may be terms of a sum in the shape of the whole. */
static bool is_whole(const choir__op_files *ops, int64_t first)
{
    const choir__st_tensor *t = ops->list[first].tensor;
    for (int64_t i = ops->list[first].same_name; i >= 0; i = ops->list[i].same_name) {
        const choir__st_tensor *u = ops->list[i].tensor;
        if (!same_shape(t, u) || memcmp(t->data, u->data, t->bytes) != 0)
            return false;
    }
    return true;
}

/* Returns the tensor of the other side that differs from entry i, or NULL. *unknown: they
 * cannot be compared, since the other side has parts of the result. */
static const choir__st_tensor *differing(
    const choir__op_files *ops, int64_t i, const choir__op_files *other, bool *unknown)
{
    const choir__st_tensor *t = ops->list[i].tensor;
    int64_t k = choir__map_find(&other->names, t->name);
    *unknown = k >= 0 && (!is_whole(other, k) || !same_shape(t, other->list[k].tensor) ||
                             !is_whole(ops, choir__map_find(&ops->names, t->name)));
    const choir__st_tensor *u = k < 0 || *unknown ? NULL : other->list[k].tensor;
    return u && memcmp(t->data, u->data, t->bytes) != 0 ? u : NULL;
}

/* Takes "0/backward/fc1/linear#0/1" apart. */
static void note_op(choir__parting *p, const char *name)
{
    const char *pass = strchr(name, '/'), *rest = pass ? strchr(pass + 1, '/') : NULL;
    if (!rest)
        return;
    size_t n = (size_t)(rest - pass - 1);
    bool back = n == strlen(CHOIR__OPS_BACKWARD) && !strncmp(pass + 1, CHOIR__OPS_BACKWARD, n),
         forth = n == strlen(CHOIR__OPS_FORWARD) && !strncmp(pass + 1, CHOIR__OPS_FORWARD, n);
    char *text = choir__strdup(rest + 1), *end = back ? strrchr(text, '/') : NULL;
    if (end) {
        *end = '\0';
        p->operand = strtoll(end + 1, NULL, 10);
    }
    char *op = back || forth ? strrchr(text, '/') : NULL, *call = strrchr(text, '#');
    if (call)
        *call = '\0';
    if (op) {
        *op = '\0';
        p->op = choir__strdup(op + 1);
    }
    p->op_module = choir__strdup(text);
    bool grad =
        n == strlen(CHOIR__OPS_OUTPUT_GRAD) && !strncmp(pass + 1, CHOIR__OPS_OUTPUT_GRAD, n);
    p->pass = back || grad ? "backward" : "forward";
    p->microbatch = strtoll(name, NULL, 10);
    free(text);
}

/* *unknown: the number of results that cannot be compared, up to the first that differs. */
static bool compare(
    const choir__op_files *a, const choir__op_files *b, choir__parting *p, int64_t *unknown)
{
    for (int i = 0; i < a->count; i++) {
        bool parts;
        const choir__st_tensor *t = a->list[i].tensor, *other = differing(a, i, b, &parts);
        *unknown += parts;
        if (!other)
            continue;
        size_t each = choir_dtype_size(t->dtype);
        const char *x = t->data, *y = other->data;
        int64_t at = 0;
        while (!memcmp(x + (size_t)at * each, y + (size_t)at * each, each))
            at++;
        note_op(p, t->name);
        choir__parting_element(
            p, t->name, at, t->dtype, x + (size_t)at * each, y + (size_t)at * each);
        return true;
    }
    return false;
}

bool choir__ops_of_folders(const char *a, const char *b, choir__parting *p)
{
    choir__op_files x, y = {0};
    bool follows = !p->read && strcmp(p->kind, "batch") && strcmp(p->kind, "key");
    bool both = follows && choir__ops_open(&x, a, p->step);
    if (!both)
        return false;
    both = choir__ops_open(&y, b, p->step);
    int64_t unknown = 0;
    bool found = both && compare(&x, &y, p, &unknown);
    if (both && unknown && !p->note)
        p->note =
            choir__format("%lld result%s of ops %s not compared, since ranks have parts of "
                          "%s: the first one that differs may be among them",
                (long long)unknown, unknown > 1 ? "s" : "", unknown > 1 ? "were" : "was",
                unknown > 1 ? "them" : "it");
    if (both && !found && !unknown) { /* all ops are equal: what follows them is not */
        bool sum = !strcmp(p->kind, "gradient");
        p->op = choir__strdup(sum ? "gradient sum" : "update");
    }
    choir__ops_close(&x);
    choir__ops_close(&y);
    return found;
}

/* --- outputs of modules --- */

/* Returns the position of a module's tensor in a micro-batch, or -1. */
static int64_t of_micro(
    const choir__op_files *ops, int64_t micro, const char *pass, const char *path)
{
    char *name = choir__format("%lld/%s/%s#0", (long long)micro, pass, path);
    int64_t i = choir__map_find(&ops->names, name);
    free(name);
    return i;
}

int64_t choir__ops_place(const choir__op_files *ops, const char *name)
{
    const char *dot = strchr(name, '.');
    char *pass = dot ? choir__format("%.*s", (int)(dot - name), name) : NULL;
    int64_t i = pass ? of_micro(ops, 0, pass, dot + 1) : -1;
    free(pass);
    return i < 0 ? INT64_MAX : i;
}

float *choir__ops_output(const choir__op_files *ops, const char *name, int64_t *count)
{
    const char *dot = strchr(name, '.');
    char *pass = dot ? choir__format("%.*s", (int)(dot - name), name) : NULL;
    bool grad = pass && !strcmp(pass, CHOIR__OPS_OUTPUT_GRAD);
    float *list = NULL;
    int64_t micro = 0, room = 0, i;
    *count = 0;
    for (; (grad || (pass && !strcmp(pass, CHOIR__OPS_OUTPUT))) &&
           (i = of_micro(ops, micro, pass, dot + 1)) >= 0 &&
           choir__is_float(ops->list[i].tensor->dtype);
         micro++) {
        const choir__st_tensor *t = ops->list[i].tensor;
        int64_t more = choir__shape_count(t->shape);
        if (*count + more > room)
            room = 2 * (*count + more);
        list = choir__realloc(list, (size_t)room * sizeof *list);
        choir__numbers_convert(list + *count, CHOIR_F32, t->data, t->dtype, (size_t)more);
        *count += more;
    }
    for (int64_t k = 0; grad && k < *count; k++) /* the loss is the mean over them */
        list[k] /= (float)micro;
    free(pass);
    return list;
}
