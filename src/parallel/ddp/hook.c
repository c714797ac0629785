/* Communication hooks: setting them, the exact hook, and the hooks that send 16 bits.
 *
 * A hook's work runs on the group's queue: a function rounds the bucket into a scratch array,
 * an all-reduce adds it up, and a function widens it back. The queue runs in order, so all
 * buckets of a group share one scratch array, as large as the largest of them. */
#include <stdlib.h>

#include "base/half.h"
#include "comm/reduce.h"
#include "parallel/ddp/ddp.h"

choir_status choir_ddp_set_hook(choir_module *ddp, choir_ddp_hook *hook, void *arg)
{
    choir__ddp *d;
    choir_status status = choir__ddp_of(ddp, "choir_ddp_set_hook", &d);
    if (status == CHOIR_OK)
        status = choir__ddp_between_steps(d, "choir_ddp_set_hook");
    if (status != CHOIR_OK)
        return status;
    choir__step_forget(d->base.run); /* a recorded step contains the previous hook */
    d->hook = hook;
    d->hook_arg = arg;
    for (int i = 0; i < d->part_count; i++)
        d->parts[i].book->uses_scaled = hook != NULL;
    return CHOIR_OK;
}

/* --- the exact hook --- */

static choir_status scale_bucket(const void *args)
{
    const choir_ddp_bucket *b = args;
    choir__arith_find(CHOIR_F32, CHOIR_SUM)->rescale(b->data, b->count, (double)b->scale, 1);
    return CHOIR_OK;
}

choir_status choir_ddp_all_reduce(const choir_ddp_bucket *b, void *arg)
{
    if (!b)
        return choir__missing(__func__, "ddp bucket");
    choir_work work;
    (void)arg;
    choir_status status =
        choir_group_all_reduce(b->group, b->data, b->count, CHOIR_F32, CHOIR_SUM, &work);
    if (status != CHOIR_OK || b->scale == 1)
        return status;
    return choir_group_call(b->group, scale_bucket, b, sizeof *b, &work);
}

/* --- 16 bits --- */

typedef struct narrow_task {
    choir_ddp_bucket bucket;
    void *half; /* (count) */
    choir_dtype dtype;
} narrow_task;

/* half = round(data * scale), in pieces */
static choir_status narrow(const void *args)
{
    enum { PIECE = 2048 };
    const narrow_task *t = args;
    const choir_ddp_bucket *b = &t->bucket;
    float scaled[PIECE];
    for (int64_t i = 0; i < b->count; i += PIECE) {
        int64_t n = choir__min(b->count - i, PIECE);
        for (int64_t k = 0; k < n; k++)
            scaled[k] = b->data[i + k] * b->scale;
        if (t->dtype == CHOIR_BF16)
            choir__narrow_bf16((uint16_t *)t->half + i, scaled, n);
        else
            choir__narrow_f16((uint16_t *)t->half + i, scaled, n);
    }
    return CHOIR_OK;
}

static choir_status widen(const void *args)
{
    const narrow_task *t = args;
    if (t->dtype == CHOIR_BF16)
        choir__widen_bf16(t->bucket.data, t->half, t->bucket.count);
    else
        choir__widen_f16(t->bucket.data, t->half, t->bucket.count);
    return CHOIR_OK;
}

static choir_status compress(const choir_ddp_bucket *b, choir_dtype dtype)
{
    choir_work work;
    narrow_task t = {.bucket = *b, .dtype = dtype};
    choir_status status =
        choir__group_scratch(b->group, (size_t)b->count * sizeof(uint16_t), &t.half);
    if (status == CHOIR_OK)
        status = choir_group_call(b->group, narrow, &t, sizeof t, &work);
    if (status == CHOIR_OK)
        status = choir_group_all_reduce(b->group, t.half, b->count, dtype, CHOIR_SUM, &work);
    if (status == CHOIR_OK)
        status = choir_group_call(b->group, widen, &t, sizeof t, &work);
    return status;
}

choir_status choir_ddp_bf16_compress(const choir_ddp_bucket *bucket, void *arg)
{
    if (!bucket)
        return choir__missing(__func__, "ddp bucket");
    (void)arg;
    return compress(bucket, CHOIR_BF16);
}

choir_status choir_ddp_f16_compress(const choir_ddp_bucket *bucket, void *arg)
{
    if (!bucket)
        return choir__missing(__func__, "ddp bucket");
    (void)arg;
    return compress(bucket, CHOIR_F16);
}
