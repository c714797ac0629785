/* Initial values of parameters: keyed by the run's seed and the parameter's name, so any part
 * of them can be drawn alone. Words of few bits are rounded from values, some rows at a time.
 */
#include <stdlib.h>

#include <choir/dry.h>
#include "base/quant/quant.h"
#include "base/rng.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/held.h"
#include "tensor/launch.h"

enum { DRAWN_TOGETHER = 4 }; /* drawing starts at multiples of this number */

/* Fills the row of padding with zeros, as far as it is among y's entries. */
static void clear_padding(const choir__param *p, choir_tensor *y, int64_t first)
{
    int64_t width = choir__param_values(p).dim[1], last = first + y->count;
    int64_t from = choir__max(first, p->padding * width);
    int64_t to = choir__min(last, (p->padding + 1) * width);
    if (from >= to)
        return;
    choir_tensor row = *y;
    row.shape = choir_dims(to - from);
    row.stride[0] = 1;
    row.offset += from - first;
    row.count = to - from;
    choir__launch_fill(&row, 0);
}

static void draw_values(const choir__param *p, choir_tensor *y, int64_t first)
{
    choir_scope *run = p->tensor->scope;
    int64_t before = first % DRAWN_TOGETHER;
    if (y->count == 0)
        return;
    if (p->init_kind == CHOIR_INIT_ORTHOGONAL) {
        choir__draw_orthogonal(p, y, first);
        return;
    }
    if (p->init_kind == CHOIR_INIT_CONSTANT) {
        choir__launch_fill(y, p->init_a);
        return;
    }
    choir__k_random args = {.y = choir__data(y),
        .n = before + y->count,
        .first = (uint64_t)(first - before),
        .key = choir__rng_key(run->seed, p->name),
        .a = p->init_a,
        .b = p->init_b,
        .normal = p->init_kind == CHOIR_INIT_NORMAL,
        .dtype = CHOIR_F32};
    choir__storage *more = NULL;
    if (before) { /* drawn into a second buffer, from the multiple before `first` */
        more = choir__storage_new(choir__device_of(y), (size_t)args.n * sizeof(float));
        if (!more) {
            choir__poison(run, CHOIR_ERR_MEMORY, "out of memory for the values of %s", p->name);
            return;
        }
        args.y = more->data;
    }
    choir__launch(choir__device_of(y), CHOIR_F32, random, &args);
    if (before)
        choir__launch_bytes(choir__device_of(y), choir__data(y), (float *)more->data + before,
            (size_t)y->count * sizeof(float));
    choir__storage_unref(more);
}

/* Draws the values from `first` on, in row-major order, as f32. */
static void draw(const choir__param *p, choir_tensor *y, int64_t first)
{
    draw_values(p, y, first);
    if (p->padding >= 0)
        clear_padding(p, y, first);
}

/* Zeros, until a file's blocks take their place: of types that are not written, nothing else
 * has any. */
static choir_status clear_held(choir_tensor *t, int64_t rows, int64_t most)
{
    choir_status status = CHOIR_OK;
    if (choir_device_is_dry(choir__device_of(t)))
        return CHOIR_OK;
    for (int64_t r = 0; r < rows && status == CHOIR_OK; r += most)
        status = choir__held_clear_rows(t, r, choir__min(most, rows - r));
    return status;
}

static void draw_held(const choir__param *p, choir_tensor *y, int64_t first)
{
    choir_scope *run = p->tensor->scope;
    const int64_t words = y->shape.dim[1], rows = words ? y->count / words : 0;
    const int64_t most = CHOIR__HELD_SLAB / choir__max(1, p->cols) + 1;
    const bool away = choir__device_of(y)->away; /* another rank has the words */
    float *room = malloc((size_t)(most * p->cols) * sizeof *room + 1);
    choir_status status = room ? CHOIR_OK : choir__held_no_room(most * p->cols);
    struct choir__held whole = {p->tensor->held->type, p->cols};
    const bool drawn = choir__quant_is_written(whole.type);
    choir_tensor t = *y;
    t.held = &whole;
    if (!drawn && !away && status == CHOIR_OK)
        status = clear_held(&t, rows, most);
    for (int64_t r = 0; r < rows && drawn && !away && status == CHOIR_OK; r += most) {
        const int64_t n = choir__min(most, rows - r);
        choir_tensor *some =
            choir__tensor_new(run, choir__device_of(y), CHOIR_F32, choir_dims(n, p->cols));
        if (!some->poisoned)
            draw(p, some, (first / words + r) * p->cols);
        status = choir__scope_status(run);
        if (status == CHOIR_OK)
            status = choir__held_round_rows(&t, r, some, n, room);
        if (!some->poisoned)
            choir__tensor_release(some);
    }
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    free(room);
}

void choir__param_draw(const choir__param *p, choir_tensor *y, int64_t first)
{
    if (p->tensor->held && y->dtype == p->tensor->dtype)
        draw_held(p, y, first);
    else
        draw(p, y, first);
}
