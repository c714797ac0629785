/* The tensors behind hashes: of a step's dump (--audit=dump), which has gradients, too, or of
 * its checkpoint. */
#include "cli/audit/audit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/dump.h"
#include "checkpoint/state.h"
#include "tensor/tensor.h"

/* --- opening --- */

/* Opens all files with tensors of a checkpoint's folder. */
static choir_status open_checkpoint(choir__stored *stored, const char *folder)
{
    choir_train_state state;
    json_t *files = NULL, *entry;
    const char *name;
    int count = 0;
    choir_status status = choir__state_read(folder, &state, &files);
    if (status != CHOIR_OK)
        return status;
    char **paths = choir__calloc(json_object_size(files) + 1, sizeof *paths);
    json_object_foreach(files, name, entry)
    {
        size_t n = strlen(name), m = strlen(".safetensors");
        if (n > m && !strcmp(name + n - m, ".safetensors"))
            paths[count++] = choir__format("%s/%s", folder, name);
    }
    status = choir__stored_open(stored, folder, (const char *const *)paths, count);
    while (count > 0)
        free(paths[--count]);
    free(paths);
    json_decref(files);
    return status;
}

bool choir__tensors_open(choir__stored *stored, const char *folder, int64_t step)
{
    char *path = choir__audit_dump_path(folder, step);
    char *checkpoint = choir__format("%s/step-%08lld", folder, (long long)step);
    const char *list[] = {path};
    choir_status status = access(path, R_OK) == 0 ? choir__stored_open(stored, path, list, 1)
                          : access(checkpoint, R_OK) == 0 ? open_checkpoint(stored, checkpoint)
                                                          : CHOIR_ERR_IO;
    if (status != CHOIR_OK)
        (void)choir_error_message(); /* the caller has a sentence */
    free(path);
    free(checkpoint);
    return status == CHOIR_OK;
}

static int by_step(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int64_t *choir__checkpoint_steps(const char *folder, int *count)
{
    int64_t *steps = NULL;
    DIR *dir = opendir(folder);
    *count = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        long long step;
        int used = 0;
        if (sscanf(e->d_name, "step-%lld%n", &step, &used) != 1 || e->d_name[used])
            continue;
        char *state = choir__format("%s/%s/" CHOIR__STATE_FILE, folder, e->d_name);
        if (access(state, R_OK) == 0) {
            CHOIR__GROW(steps, *count);
            steps[(*count)++] = step;
        }
        free(state);
    }
    if (dir)
        closedir(dir);
    if (*count)
        qsort(steps, (size_t)*count, sizeof *steps, by_step);
    return steps;
}

/* --- comparing --- */

/* Returns the module's tensors' names without the prefix of their kind, or NULL: the tensor is
 * of another kind. */
static const char *of_kind(const char *name, const char *kind)
{
    static const char *const states[] = {"exp_avg.", "exp_avg_sq.", "exp_avg_absmax.",
        "exp_avg_sq_absmax.", "max_exp_avg_sq.", "momentum_buffer.", "square_avg.", "grad_avg.",
        "variance.", "row_var.", "col_var.", "average."};
    size_t grad = strlen(CHOIR__AUDIT_GRAD);
    bool is_grad = !strncmp(name, CHOIR__AUDIT_GRAD, grad);
    const char *plain = is_grad ? name + grad : NULL;
    for (size_t i = 0; i < CHOIR_COUNT(states) && !plain; i++)
        if (!strncmp(name, states[i], strlen(states[i])))
            plain = name + strlen(states[i]);
    if (!kind)
        return plain ? plain : name;
    if (!strcmp(kind, "gradient"))
        return is_grad ? plain : NULL;
    if (!strcmp(kind, "state"))
        return is_grad ? NULL : plain;
    bool is_batch = !strncmp(name, CHOIR__AUDIT_BATCHES, strlen(CHOIR__AUDIT_BATCHES));
    if (!strcmp(kind, is_batch ? "batch" : "weight"))
        return plain ? NULL : name;
    return NULL;
}

static bool is_in(const char *name, const char *module)
{
    const char *dot = strrchr(name, '.');
    size_t length = dot ? (size_t)(dot - name) : 0;
    return !module || (strlen(module) == length && !strncmp(name, module, length));
}

static void *read_whole(const choir__stored_tensor *t)
{
    choir__box_region whole = choir__box_region_whole(t->whole);
    void *data = malloc((size_t)choir__shape_count(t->whole) * choir_dtype_size(t->dtype) + 1);
    if (data)
        choir__stored_read(t, &whole, data, t->dtype);
    return data;
}

static double value_of(const void *at, choir_dtype dtype)
{
    float value = 0;
    int64_t number = 0;
    if (choir__is_float(dtype)) {
        choir__numbers_convert(&value, CHOIR_F32, at, dtype, 1);
        return (double)value;
    }
    memcpy(&number, at, choir_dtype_size(dtype));
    return (double)number;
}

void choir__parting_element(choir__parting *p, const char *tensor, int64_t index,
    choir_dtype dtype, const void *x, const void *y)
{
    free(p->tensor);
    p->tensor = choir__strdup(tensor);
    p->index = index;
    p->bytes = (int)choir_dtype_size(dtype);
    memset(p->bits, 0, sizeof p->bits);
    memcpy(&p->bits[0], x, (size_t)p->bytes);
    memcpy(&p->bits[1], y, (size_t)p->bytes);
    p->value[0] = value_of(x, dtype);
    p->value[1] = value_of(y, dtype);
}

/* Compares two tensors. Returns whether an element differs, and notes the first. */
static bool compare_tensor(
    const choir__stored_tensor *a, const choir__stored_tensor *b, choir__parting *p)
{
    size_t each = choir_dtype_size(a->dtype);
    if (a->dtype != b->dtype || choir__shape_count(a->whole) != choir__shape_count(b->whole))
        return false;
    char *x = read_whole(a), *y = read_whole(b);
    int64_t at = 0, count = x && y ? choir__shape_count(a->whole) : 0;
    while (at < count && !memcmp(x + (size_t)at * each, y + (size_t)at * each, each))
        at++;
    if (at < count)
        choir__parting_element(
            p, a->name, at, a->dtype, x + (size_t)at * each, y + (size_t)at * each);
    free(x);
    free(y);
    return at < count;
}

/* Finds the first tensor of p->module and p->kind, or of all (module NULL), that differs, and
 * in it the first element. Returns whether it found one. */
static bool compare(const choir__stored *a, const choir__stored *b, choir__parting *p)
{
    for (int i = 0; i < a->count; i++) {
        const char *name = of_kind(a->tensors[i].name, p->kind);
        const choir__stored_tensor *other = choir__stored_find(b, a->tensors[i].name);
        if (!name || !other || !is_in(name, p->module) ||
            !compare_tensor(&a->tensors[i], other, p))
            continue;
        const char *dot = strrchr(name, '.');
        if (p->checkpoint && !p->module)
            p->module = choir__format("%.*s", dot ? (int)(dot - name) : 0, name);
        return true;
    }
    return false;
}

bool choir__left_compare(const char *a, const char *b, choir__parting *p, bool *found)
{
    choir__stored x, y;
    bool has_a = choir__tensors_open(&x, a, p->step),
         both = has_a && choir__tensors_open(&y, b, p->step);
    if (both) {
        *found = compare(&x, &y, p);
        choir__stored_close(&y);
    }
    if (has_a)
        choir__stored_close(&x);
    return both;
}
