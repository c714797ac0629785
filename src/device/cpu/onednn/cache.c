/* A hash table from problems to primitives. After a thousand problems (inputs of many lengths)
 * it is cleared and starts again. */
#include "device/cpu/onednn/onednn.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/hold_signals.h"

enum { BUCKETS = 512, MOST = 1024 };

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    size_t bytes;
    choir__onednn_plan plan;
    unsigned char key[];
} entry;

struct choir__onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    int count;
    entry *buckets[BUCKETS];
};

choir__onednn *choir__onednn_new(void)
{
    choir__onednn *cache = choir__calloc(1, sizeof *cache);
    choir__dnnl_open();
    choir__dnnl.set_primitive_cache_capacity(
        0); /* this table caches primitives, without a lock */
    if (choir__dnnl.engine_create(&cache->engine, dnnl_cpu, 0) ||
        choir__dnnl.stream_create(&cache->stream, cache->engine, dnnl_stream_default_flags) ||
        choir__dnnl.primitive_attr_create(&cache->attr) ||
        choir__dnnl.primitive_attr_set_scratchpad_mode(cache->attr, dnnl_scratchpad_mode_user))
        abort(); /* out of host memory */
    return cache;
}

static void op_free(choir__onednn_op *op)
{
    for (int i = 0; i < op->arg_count; i++)
        choir__dnnl.memory_destroy(op->args[i].memory);
    if (op->primitive)
        choir__dnnl.primitive_destroy(op->primitive);
    memset(op, 0, sizeof *op);
}

void choir__onednn_plan_free(choir__onednn_plan *plan)
{
    op_free(&plan->op);
    for (size_t i = 0; i < CHOIR_COUNT(plan->reorder); i++)
        op_free(&plan->reorder[i]);
}

size_t choir__onednn_scratch(const choir__onednn_plan *plan)
{
    size_t bytes = 0, most = plan->op.scratchpad;
    for (size_t i = 0; i < CHOIR_COUNT(plan->reorder); i++) {
        bytes += plan->bytes[i];
        if (plan->reorder[i].scratchpad > most)
            most = plan->reorder[i].scratchpad;
    }
    return bytes + most;
}

static void forget(choir__onednn *cache)
{
    for (int b = 0; b < BUCKETS; b++)
        for (entry *e = cache->buckets[b], *next; e; e = next) {
            next = e->next;
            choir__onednn_plan_free(&e->plan);
            free(e);
        }
    memset(cache->buckets, 0, sizeof cache->buckets);
    cache->count = 0;
}

void choir__onednn_free(choir__onednn *cache)
{
    if (!cache)
        return;
    forget(cache);
    choir__dnnl.primitive_attr_destroy(cache->attr);
    choir__dnnl.stream_destroy(cache->stream);
    choir__dnnl.engine_destroy(cache->engine);
    free(cache);
}

dnnl_engine_t choir__onednn_engine(const choir__onednn *cache)
{
    return cache->engine;
}

const_dnnl_primitive_attr_t choir__onednn_attr(const choir__onednn *cache)
{
    return cache->attr;
}

bool choir__onednn_describe(dnnl_memory_desc_t *md, choir_dtype dtype, int ndims,
    const int64_t *dims, const int64_t *strides)
{
    dnnl_data_type_t type = dtype == CHOIR_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t d = {0}, s = {0};
    memcpy(d, dims, (size_t)ndims * sizeof *d);
    if (!strides)
        return !choir__dnnl.memory_desc_init_by_tag(md, ndims, d, type, dnnl_format_tag_any);
    memcpy(s, strides, (size_t)ndims * sizeof *s);
    return !choir__dnnl.memory_desc_init_by_strides(md, ndims, d, type, s);
}

dnnl_primitive_desc_t choir__onednn_fast(choir__onednn *cache, const_dnnl_op_desc_t desc,
    const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_t pd;
    const char *name = "";
    if (choir__dnnl.primitive_desc_create(&pd, desc, attr, cache->engine, hint))
        return NULL;
    if (!choir__dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) &&
        strncmp(name, "ref", 3) != 0)
        return pd;
    choir__dnnl.primitive_desc_destroy(pd);
    return NULL;
}

/* Keys are arrays of int64. Hashing one word at a time keeps the look-up short, which every
 * product needs; the shift moves high bits down to those that select the bucket. */
static uint64_t hash_of(const void *key, size_t bytes)
{
    uint64_t hash = CHOIR__HASH_SEED, word;
    for (size_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const char *)key + at, sizeof word);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}

choir__onednn_plan *choir__onednn_lookup(
    choir__onednn *cache, const void *key, size_t bytes, bool *fresh)
{
    uint64_t hash = hash_of(key, bytes);
    for (entry *e = cache->buckets[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && e->bytes == bytes && !memcmp(e->key, key, bytes)) {
            *fresh = false;
            return &e->plan;
        }
    if (cache->count >= MOST)
        forget(cache);
    entry *e = choir__calloc(1, sizeof *e + bytes);
    e->hash = hash;
    e->bytes = bytes;
    memcpy(e->key, key, bytes);
    e->next = cache->buckets[hash % BUCKETS];
    cache->buckets[hash % BUCKETS] = e;
    cache->count++;
    *fresh = true;
    return &e->plan;
}

static bool add_arg(
    choir__onednn *cache, choir__onednn_op *op, int id, const dnnl_memory_desc_t *md)
{
    dnnl_exec_arg_t *arg = &op->args[op->arg_count];
    arg->arg = id;
    if (choir__dnnl.memory_create(&arg->memory, md, cache->engine, DNNL_MEMORY_NONE))
        return false;
    op->arg_count++;
    return true;
}

bool choir__onednn_build(choir__onednn *cache, choir__onednn_op *op, dnnl_primitive_desc_t pd,
    int count, const int *ids, const dnnl_memory_desc_t *const *mds)
{
    bool ok = choir__dnnl.primitive_create(&op->primitive, pd) == dnnl_success;
    op->threads = choir__dnnl_team();
    for (int i = 0; ok && i < count; i++)
        ok = add_arg(cache, op, ids[i], mds[i]);
    const dnnl_memory_desc_t *scratch =
        choir__dnnl.primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    op->scratchpad = scratch ? choir__dnnl.memory_desc_get_size(scratch) : 0;
    if (ok && op->scratchpad)
        ok = add_arg(cache, op, DNNL_ARG_SCRATCHPAD, scratch);
    choir__dnnl.primitive_desc_destroy(pd);
    if (!ok)
        op_free(op);
    return ok;
}

/* Some of oneDNN's kernels for products use the stack pointer for a block of the heap. A
 * handler that interrupted one would write its frame over the memory before that block, so
 * signals wait until the kernel ends. */
bool choir__onednn_run(
    choir__onednn *cache, choir__onednn_op *op, void *const *data, void *scratchpad)
{
    int count = op->arg_count - (op->scratchpad > 0);
    for (int i = 0; i < count; i++)
        if (choir__dnnl.memory_set_data_handle_v2(op->args[i].memory, data[i], cache->stream))
            return false;
    if (op->scratchpad && choir__dnnl.memory_set_data_handle_v2(
                              op->args[count].memory, scratchpad, cache->stream))
        return false;
    choir__dnnl_set_team(op->threads);
    sigset_t before;
    choir__hold_signals(&before);
    bool ok = choir__dnnl.primitive_execute(
                  op->primitive, cache->stream, op->arg_count, op->args) == dnnl_success;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}
