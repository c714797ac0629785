/* The room of a call, from its arguments: convolutions turn or transform their weights, and
 * recurrent layers pack theirs for all of their steps. */
#include "device/cpu/room.h"

#include "device/cpu/product/conv_algorithm.h"

static void raise(size_t *most, int64_t bytes)
{
    *most = choir__max(*most, (size_t)bytes);
}

static int64_t parts_of(int64_t size, int64_t stride)
{
    return (size + stride - 1) / stride;
}

/* The input's gradient by windows: one group's weights of the places that a class of pixels
 * has, and with a stride the class's pixels (product/convolution.c). */
static void room_of_windows(const choir__k_conv *k, choir__cpu_room *room)
{
    const choir__conv_shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups;
    const int64_t places = parts_of(s->kh, s->stride_h) * parts_of(s->kw, s->stride_w);
    const int64_t pixels = s->stride_h * s->stride_w > 1 ? s->n * parts_of(s->h, s->stride_h) *
                                                               parts_of(s->w, s->stride_w)
                                                         : 0;
    raise(&room->workspace, (places * out + pixels) * in * (int64_t)choir_dtype_size(k->dtype));
}

/* Quads: all weights, transformed and packed; for the weights' gradient some quads, and sums of
 * weights (product/winograd_weight.c). */
static void room_of_quads(const choir__k_conv *k, bool gradient, choir__cpu_room *room)
{
    const choir__conv_shape *s = &k->s;
    const int64_t each = CHOIR__QUAD_ELEMENTS * (int64_t)sizeof(float);
    const int64_t quads = s->n * parts_of(s->oh, 2) * parts_of(s->ow, 2);
    if (gradient) {
        raise(&room->workspace,
            each * (choir__quads_nodes(quads) * s->c * s->o +
                       choir__min(quads, CHOIR__QUADS_TOGETHER) * (s->c + s->o)));
        return;
    }
    raise(&room->workspace, each * s->c * s->o);
    raise(&room->packed, each * s->c * s->o);
}

void choir__cpu_room_for(choir__kernel_id id, const void *args, choir__cpu_room *room)
{
    const choir__k_recurrent *r = args;
    switch (id) {
    case CHOIR__KERNEL_conv:
    case CHOIR__KERNEL_conv_backward_input:
    case CHOIR__KERNEL_conv_backward_weight:
        if (choir__conv_algorithm_of(args) == CHOIR__BY_QUADS)
            room_of_quads(args, id == CHOIR__KERNEL_conv_backward_weight, room);
        else if (id == CHOIR__KERNEL_conv_backward_input)
            room_of_windows(args, room);
        break;
    case CHOIR__KERNEL_recurrent:
    case CHOIR__KERNEL_recurrent_backward:
        raise(&room->packed, choir__recurrent_cell_gates(r->cell) * r->width * r->width *
                                 (int64_t)sizeof(float));
        break;
    default: break;
    }
}
