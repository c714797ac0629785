/* Printing like PyTorch: nested brackets, with the middle of long dimensions left out. Only the
 * values that are shown are copied from the device, so a tensor of any size can be printed. */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/segment.h"

enum { EDGE = 3, LONG = 2 * EDGE + 1 };

static bool is_long(const choir_tensor *t, int dim)
{
    return t->shape.dim[dim] > LONG;
}

/* Returns the shape of the values that are shown: both ends of long dimensions. */
static choir_shape shown_of(const choir_tensor *t)
{
    choir_shape shown = t->shape;
    for (int i = 0; i < shown.ndim; i++)
        if (is_long(t, i))
            shown.dim[i] = 2 * EDGE;
    return shown;
}

/* Returns t's part at the ends that `ends` chooses: of long dimension i the end if bit i is
 * set, else the beginning. */
static choir_tensor part_of(const choir_tensor *t, unsigned ends)
{
    choir_tensor part = *t;
    for (int i = 0; i < t->shape.ndim; i++)
        if (is_long(t, i)) {
            part.shape.dim[i] = EDGE;
            part.offset += ends >> i & 1 ? (t->shape.dim[i] - EDGE) * t->stride[i] : 0;
        }
    part.count = choir__shape_count(part.shape);
    return part;
}

/* Copies the part's values, row-major in `from`, to their place among the printed values. */
static void place(
    double *shown, choir_shape all, const double *from, const choir_tensor *part, unsigned ends)
{
    for (int64_t n = 0; n < part->count; n++) {
        int64_t left = n, at = 0, step = 1;
        for (int i = all.ndim - 1; i >= 0; i--) {
            int64_t index = left % part->shape.dim[i] + (ends >> i & 1 ? EDGE : 0);
            left /= part->shape.dim[i];
            at += index * step;
            step *= all.dim[i];
        }
        shown[at] = from[n];
    }
}

/* Copies the values that are shown, part by part. */
static choir_status fetch(const choir_tensor *t, choir_shape all, double *shown)
{
    unsigned every = 0;
    choir_status status = CHOIR_OK;
    double *from = choir__alloc((size_t)choir__shape_count(all) * sizeof *from + 1);
    for (int i = 0; i < all.ndim; i++)
        every |= is_long(t, i) ? 1u << i : 0;
    for (unsigned ends = 0; ends <= every && status == CHOIR_OK; ends++) {
        if (ends & ~every)
            continue;
        choir_tensor part = part_of(t, ends);
        choir_tensor host = {
            .scope = t->scope, .dtype = CHOIR_F64, .shape = part.shape, .count = part.count};
        choir__storage memory = {.refs = 1, .device = choir__device_of(t), .data = from};
        host.storage = &memory;
        choir__set_row_major(&host);
        choir__launch_copy(&host, &part);
        status = choir_device_sync(choir__device_of(t));
        if (status == CHOIR_OK)
            place(shown, all, from, &part, ends);
    }
    free(from);
    return status;
}

/* Prints dimension dim of the values from `at` on. */
static void print_from(
    const choir_tensor *t, choir_shape all, const double *values, int dim, int64_t at)
{
    if (dim == all.ndim) {
        if (choir__is_float(t->dtype))
            printf("%8.4f", values[at]);
        else
            printf("%lld", (long long)values[at]);
        return;
    }
    int64_t step = 1;
    for (int i = dim + 1; i < all.ndim; i++)
        step *= all.dim[i];
    printf("[");
    for (int64_t i = 0; i < all.dim[dim]; i++) {
        const char *separator = dim + 1 == all.ndim ? ", " : ",\n";
        int indent = dim + 1 == all.ndim ? 0 : dim + 1;
        if (i > 0)
            printf("%s%*s", separator, indent, "");
        if (i == EDGE && is_long(t, dim))
            printf("...%s%*s", separator, indent, "");
        print_from(t, all, values, dim + 1, at + i * step);
    }
    printf("]");
}

void choir_print(const choir_tensor *t)
{
    choir_status status = choir__use_tensor(t, __func__);
    if (status == CHOIR_OK && !t->poisoned)
        status = choir__bring_back((choir_tensor *)t);
    if (status != CHOIR_OK || t->poisoned || t->freed || choir__device_of(t)->away) {
        printf("tensor(%s)\n", status != CHOIR_OK ? choir__message()
                               : t->poisoned      ? "never computed"
                               : t->freed         ? "freed by backward"
                                                  : "in another process");
        return;
    }
    choir_shape all = shown_of(t);
    double *values = choir__alloc((size_t)choir__shape_count(all) * sizeof *values + 1);
    if (fetch(t, all, values) == CHOIR_OK) {
        print_from(t, all, values, 0, 0);
        printf("  %s %s on %s\n", choir_dtype_name(t->dtype), choir__shape_text(t->shape),
            choir_device_name(choir__device_of(t)));
    } else {
        printf("tensor(%s)\n", choir__message());
    }
    free(values);
}
