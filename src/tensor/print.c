/* Printing like PyTorch: nested brackets, with the middle of long dimensions left out. */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/launch.h"

enum { EDGE = 3, LONG = 2 * EDGE + 1 };

static void print_from(const choir_tensor *t, const double *values, int dim, int64_t at)
{
    if (dim == t->shape.ndim) {
        if (choir__is_float(t->dtype))
            printf("%8.4f", values[at]);
        else
            printf("%lld", (long long)values[at]);
        return;
    }
    int64_t n = t->shape.dim[dim], step = 1;
    for (int i = dim + 1; i < t->shape.ndim; i++)
        step *= t->shape.dim[i];
    printf("[");
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            printf(dim + 1 == t->shape.ndim ? ", " : ",\n%*s", dim + 1, "");
        if (n > LONG && i == EDGE) {
            printf("...");
            i = n - EDGE - 1;
            continue;
        }
        print_from(t, values, dim + 1, at + i * step);
    }
    printf("]");
}

void choir_print(const choir_tensor *t)
{
    choir_tensor host = *t;
    host.dtype = CHOIR_F64;
    double *values = choir__alloc((size_t)t->count * sizeof *values + 1);
    choir__storage memory = {.refs = 1, .device = choir__device_of(t), .data = values};
    host.storage = &memory;
    host.offset = 0;
    choir__set_row_major(&host);
    if (t->poisoned || t->freed) {
        printf("tensor(%s)\n", t->poisoned ? "never computed" : "freed by backward");
    } else {
        choir__launch_copy(&host, t);
        if (choir_device_sync(choir__device_of(t)) == CHOIR_OK) {
            print_from(t, values, 0, 0);
            printf("  %s %s on %s\n", choir_dtype_name(t->dtype), choir__shape_text(t->shape),
                choir_device_name(choir__device_of(t)));
        } else {
            printf("tensor(%s)\n", choir_error_message());
        }
    }
    free(values);
}
