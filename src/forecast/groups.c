/* Sizes of a call: its bytes, and how many members of its group each component of the
 * cluster has at most, by arithmetic for groups with a stride and by counting for listed
 * ones. */
#include <stdlib.h>

#include "base/base.h"
#include "forecast/network.h"

double choir__call_bytes(const choir__call_shape *call)
{
    return (double)call->count * (double)choir_dtype_size(call->dtype);
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the most members of a listed group that one component of `size` ranks has. */
static int64_t most_listed_in(const choir__step_group *group, int64_t size)
{
    int64_t *components = choir__alloc((size_t)group->size * sizeof *components), most = 0;
    for (int64_t m = 0; m < group->size; m++)
        components[m] = group->ranks[m] / size;
    qsort(components, (size_t)group->size, sizeof *components, by_number);
    for (int64_t m = 0, first = 0; m < group->size; m++) {
        first = components[m] == components[first] ? first : m;
        most = choir__max(most, m + 1 - first);
    }
    free(components);
    return most;
}

int64_t choir__group_members_in(
    const choir__cluster *c, const choir__call_shape *call, choir__level level, int64_t *groups)
{
    const int64_t stride = call->group.stride, size = choir__cluster_component(c, level);
    int64_t end = (call->first / size + 1) * size - call->first; /* ranks up to the border */
    int64_t members = call->group.ranks
                          ? most_listed_in(&call->group, size)
                          : choir__min((end + stride - 1) / stride, call->group.size);
    int64_t all = choir__max(call->world / call->group.size, 1);
    *groups = choir__max(choir__min(choir__min(size, call->world) / members, all), 1);
    return members;
}
