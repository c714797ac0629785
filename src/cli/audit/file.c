/* choir audit diff RUN FILE: a step's tensors beside another program's. That program adds in
 * another order, so the distance counts, and not the bits. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/dump.h"
#include "base/text.h"
#include "cli/audit/audit.h"
#include "line/printed.h"
#include "tensor/tensor.h"

/* How far a tensor is from another one. */
typedef struct distance {
    double error, scale; /* largest difference; largest magnitude of the file's */
    int64_t index;       /* place of the largest difference */
    double value[2];
} distance;

/* Returns the step of the newest dump; -1: none. */
static int64_t newest_dump(const char *run)
{
    char *path = choir__format("%s/audit", run);
    DIR *dir = opendir(path);
    long long step, newest = -1;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (sscanf(e->d_name, "step-%lld.safetensors", &step) == 1 && step > newest)
            newest = step;
    if (dir)
        closedir(dir);
    free(path);
    return newest;
}

/* Reads a tensor as f32; NULL: no memory, or no floats. */
static float *read_floats(const choir__stored_tensor *t)
{
    choir__box_region whole = choir__box_region_whole(t->whole);
    float *data = choir__convertible(CHOIR_F32, t->dtype)
                      ? malloc((size_t)choir__shape_count(t->whole) * sizeof *data + 1)
                      : NULL;
    if (data)
        choir__stored_read(t, &whole, data, CHOIR_F32);
    return data;
}

/* The tensors that the run has kept of the step. */
typedef struct kept {
    choir__stored tensors;
    choir__op_files ops;
} kept;

/* Reads the run's tensor of this name, or the output of a module; NULL: it has no such
 * tensor. */
static float *read_own(const kept *own, const char *name, int64_t *count)
{
    const choir__stored_tensor *t = choir__stored_find(&own->tensors, name);
    if (!t)
        return choir__ops_output(&own->ops, name, count);
    *count = choir__shape_count(t->whole);
    return read_floats(t);
}

/* Returns whether the run's own tensor has another shape. Outputs of modules have the samples
 * of all micro-batches one after another. */
static bool own_shape_differs(const kept *own, const choir__stored_tensor *other)
{
    const choir__stored_tensor *t = choir__stored_find(&own->tensors, other->name);
    return t && !choir__same_shape(t->whole, other->whole);
}

/* Measures. Returns false if the tensors cannot be compared. */
static bool measure(const kept *own, const choir__stored_tensor *other, distance *d)
{
    int64_t count = 0;
    *d = (distance){.index = -1};
    if (own_shape_differs(own, other))
        return false;
    float *x = read_own(own, other->name, &count), *y = NULL;
    if (x && count == choir__shape_count(other->whole))
        y = read_floats(other);
    bool good = x && y;
    for (int64_t i = 0; good && i < count; i++) {
        double error = fabs((double)x[i] - (double)y[i]), size = fabs((double)y[i]);
        d->scale = size > d->scale ? size : d->scale;
        if (!(error <= d->error) && !(isnan(x[i]) && isnan(y[i]))) { /* NaN is the largest */
            d->error = isnan(error) ? (double)INFINITY : error;
            d->index = i;
            d->value[0] = (double)x[i];
            d->value[1] = (double)y[i];
        }
    }
    free(x);
    free(y);
    return good;
}

static void print_tensor(bool json, const char *name, const distance *d, double part, bool good)
{
    if (json) {
        choir__text_buffer t = {0};
        choir__text_open(&t, NULL, '{');
        choir__text_string(&t, "event", "tensor");
        choir__text_string(&t, "tensor", name);
        choir__text_value(&t, "equal", "%s", good ? "true" : "false");
        choir__text_buffer_number(&t, "error", part);
        if (d->index < 0)
            choir__text_value(&t, "index", "null");
        else
            choir__text_value(&t, "index", "%lld", (long long)d->index);
        choir__text_open(&t, "values", '[');
        for (int i = 0; i < 2; i++)
            choir__text_buffer_number(&t, NULL, d->value[i]);
        choir__text_close(&t, ']');
        choir__text_finish(&t, stdout);
        return;
    }
    printf("%s %-10.3g ", good ? "  " : "! ", part);
    choir__print_word(stdout, name, 0);
    if (!good)
        printf("[%lld]: %.9g, and %.9g in the file", (long long)d->index, d->value[0],
            d->value[1]);
    printf("\n");
}

/* Compares all tensors of the file that the dump has, and names the output that was computed
 * first among those that differ. */
static choir_status compare(const kept *own, const choir__stored *file, const char *path,
    double tolerance, bool json, bool *equal)
{
    int compared = 0, unknown = 0, wrong = 0;
    int64_t first = INT64_MAX;
    const char *first_name = NULL;
    for (int i = 0; i < file->count; i++) {
        const choir__stored_tensor *other = &file->tensors[i];
        distance d;
        if (!measure(own, other, &d)) {
            unknown++;
            continue;
        }
        double part = d.scale > 0 ? d.error / d.scale : d.error;
        bool good = part <= tolerance;
        print_tensor(json, other->name, &d, part, good);
        compared++;
        wrong += !good;
        int64_t place = good ? INT64_MAX : choir__ops_place(&own->ops, other->name);
        if (place < first) {
            first = place;
            first_name = other->name;
        }
    }
    if (!compared)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has no tensor that the run's dump has: expected names such as '%.200s', and "
            "equal shapes",
            path, own->tensors.count ? own->tensors.tensors[0].name : "?");
    *equal = !wrong;
    if (!json)
        printf(
            "%d of %d tensors differ by more than %g of their largest number; %d of the file "
            "were not compared\n",
            wrong, compared, tolerance, unknown);
    if (!json && first_name) {
        printf("first in program order: ");
        choir__print_word(stdout, first_name, 0);
        printf("\n");
    }
    return CHOIR_OK;
}

/* Error: argument: the run has not kept the tensors of the step. */
static choir_status no_dump(const char *run, int64_t step)
{
    int64_t newest = newest_dump(run);
    if (newest < 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s has no tensors of a step: train with --audit=dump", run);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s has not kept the tensors of step %lld; the newest that it has are of step %lld",
        run, (long long)step, (long long)newest);
}

choir_status choir__audit_diff_file(
    const char *run, const char *path, int64_t step, double tolerance, bool json, bool *equal)
{
    choir__stored file;
    kept own;
    step = step < 0 ? newest_dump(run) : step;
    char *dump = choir__audit_dump_path(run, step);
    const char *dumps[] = {dump}, *files[] = {path};
    choir_status status = choir__audit_find(run, false);
    if (status == CHOIR_OK && access(dump, R_OK) != 0)
        status = no_dump(run, step);
    if (status == CHOIR_OK)
        status = choir__stored_open(&own.tensors, dump, dumps, 1);
    free(dump);
    if (status != CHOIR_OK)
        return status;
    choir__ops_open(&own.ops, run, step);
    status = choir__stored_open(&file, path, files, 1);
    if (status == CHOIR_OK) {
        status = compare(&own, &file, path, tolerance, json, equal);
        choir__stored_close(&file);
    }
    choir__ops_close(&own.ops);
    choir__stored_close(&own.tensors);
    return status;
}
