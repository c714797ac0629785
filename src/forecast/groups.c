/* The sizes of a call: its bytes, and where the members of its group are. */
#include "base/base.h"
#include "forecast/network.h"

double choir__call_bytes(const choir__call_shape *call)
{
    return (double)call->count * (double)choir_dtype_size(call->dtype);
}

int64_t choir__group_members_in(
    const choir__cluster *c, const choir__call_shape *call, choir__level level, int64_t *groups)
{
    const int64_t stride = call->group.stride, size = choir__cluster_component(c, level);
    int64_t end = (call->first / size + 1) * size - call->first; /* ranks up to the border */
    int64_t members = choir__min((end + stride - 1) / stride, call->group.size);
    int64_t all = choir__max(call->world / call->group.size, 1);
    *groups = choir__max(choir__min(choir__min(size, call->world) / members, all), 1);
    return members;
}
