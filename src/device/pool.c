/* The caching pool: free lists by size class.
 *
 * Sizes round up to one of four steps per octave (at most 25 % over), from 1 MiB on of 16 (6
 * %), so freed blocks fit again. A freed block goes to the head of its class's list and is the
 * next one reused, while it is warm in the cache. A large block also serves a request that is
 * at most 25 % smaller, if no block of its class is free.
 *
 * A device runs its queue in order, so a block may be reused as soon as its owner frees it on
 * the host, even if the device is still reading it: the new owner's work runs later. Only
 * readers in *other* queues need care; their events stay with the block. A replay does not wait
 * for reads that happened while the recording was made, so a block of a recording keeps its
 * readers, and its next owner makes the queue wait for them.
 *
 * When the system or the limit refuses memory, cached blocks of all classes are released and
 * the request is tried once more. A recording's pool releases none: there the smallest block
 * with room serves, of whatever class. Live bytes and their peak count what was handed out. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/dry/dry.h"
#include "device/dry/ledger.h"

/* Octaves 0 to 13 are below 1 MiB and have 4 classes each, the others 16. */
enum { SMALLEST = 64, LARGE = 4 * 14, CLASSES = LARGE + 16 * 34, NEAR = 16 / 4 };

struct choir__pool_block {
    void *data;
    size_t bytes;  /* size of its class */
    size_t handed; /* size of the class that was requested */
    size_t used;   /* the most bytes that a request wanted of it */
    int class;
    choir__memory_kind kind;
    choir__dry_ledger_line line; /* line of the pool's ledger that counts the block */
    choir__pool *pool;
    choir__pool_block *next;
    choir__event *readers; /* events of other queues */
    int reader_count;
};

struct choir__pool {
    const choir__memory_ops *ops;
    void *arg; /* argument of the ops */
    pthread_mutex_t lock;
    choir__pool_block *cached[CLASSES + NEAR]; /* the last ones stay empty */
    choir__pool *next;                         /* in a list of retired ones */
    choir__pool_block *awaiting;               /* free, except for readers in other queues */
    /* the pool whose counters are used: itself, or the pool it was split from */
    choir__pool *counts;
    size_t live, peak, reserved, limit;  /* under counts->lock, with the next */
    size_t used;                         /* what requests wanted of the reserved bytes */
    choir__pool_taken most;              /* maxima of reserved and used */
    size_t of_kind[CHOIR__MEMORY_KINDS]; /* parts of live */
    size_t peak_of[CHOIR__MEMORY_KINDS]; /* parts of peak */
    choir__pool_gauges *gauges;          /* these figures for other processes; NULL: none */
    choir__dry_ledger *ledger;           /* who holds the live bytes; NULL: not asked */
};

/* Class c holds blocks of (4 + c % 4) << (c / 4) units of 16 bytes; large ones, counted from
 * LARGE, of (16 + c % 16) << (c / 16) units of 64 KiB. */
static size_t class_bytes(int class)
{
    int large = class - LARGE;
    return large < 0 ? (size_t)(4 + class % 4) << (class / 4 + 4)
                     : (size_t)(16 + large % 16) << (large / 16 + 16);
}

static int class_of(size_t bytes)
{
    if (bytes <= SMALLEST)
        return 0;
    int octave = 63 - __builtin_clzll(bytes - 1) - 6; /* 64 << octave < bytes */
    int class = octave < LARGE / 4 ? 4 * octave : LARGE + 16 * (octave - LARGE / 4);
    while (class_bytes(class) < bytes)
        class ++;
    return class;
}

size_t choir__block_size(size_t bytes)
{
    return bytes ? class_bytes(class_of(bytes)) : 0;
}

choir__pool *choir__pool_new(
    const choir__memory_ops *ops, void *arg, choir__pool_gauges *gauges)
{
    choir__pool *pool = choir__calloc(1, sizeof *pool);
    pool->ops = ops;
    pool->arg = arg;
    pool->gauges = gauges;
    pool->counts = pool;
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

/* Under lock. */
static void show(const choir__pool *counts)
{
    choir__pool_gauges *g = counts->gauges;
    if (!g)
        return;
    atomic_store_explicit(&g->now, counts->live, memory_order_relaxed);
    atomic_store_explicit(&g->peak, counts->peak, memory_order_relaxed);
    atomic_store_explicit(&g->reserved, counts->reserved, memory_order_relaxed);
    atomic_store_explicit(&g->limit, counts->limit, memory_order_relaxed);
    for (int k = 0; k < CHOIR__MEMORY_KINDS; k++)
        atomic_store_explicit(&g->of_kind[k], counts->of_kind[k], memory_order_relaxed);
}

/* Under lock. */
static void note_taken(choir__pool *counts)
{
    counts->most.reserved = choir__max(counts->most.reserved, counts->reserved);
    counts->most.used = choir__max(counts->most.used, counts->used);
}

/* Notes the parts of a peak also when it is reached again: a block's kind is set after the
 * block is made. Under lock. */
static void note_peak(choir__pool *counts)
{
    if (counts->live < counts->peak)
        return;
    counts->peak = counts->live;
    memcpy(counts->peak_of, counts->of_kind, sizeof counts->peak_of);
}

/* Notes who holds live bytes, and who held the peak, before it is left. Under lock. */
static void note_holder(
    choir__pool *c, ptrdiff_t live, choir__memory_kind kind, choir__dry_ledger_line line)
{
    if (live < 0 && c->live == c->peak)
        choir__dry_ledger_keep(c->ledger);
    choir__dry_ledger_add(c->ledger, kind, line, live);
}

/* Adds to the counters, and `live` also to a kind's counters; returns false and changes nothing
 * if the limit forbids it. */
static bool count_of(choir__pool *pool, ptrdiff_t live, choir__memory_kind kind,
    choir__dry_ledger_line line, ptrdiff_t reserved)
{
    choir__pool *c = pool->counts;
    bool fits = reserved <= 0 || !c->limit || c->reserved + (size_t)reserved <= c->limit;
    if (c != pool)
        pthread_mutex_lock(&c->lock);
    if (fits) {
        if (c->ledger && live)
            note_holder(c, live, kind, line);
        c->live += (size_t)live;
        c->of_kind[kind] += (size_t)live;
        c->reserved += (size_t)reserved;
        note_taken(c);
        note_peak(c);
        show(c);
    }
    if (c != pool)
        pthread_mutex_unlock(&c->lock);
    return fits;
}

/* Counts bytes that requests want of the memory reserved. Under pool->lock. */
static void count_used(choir__pool *pool, ptrdiff_t bytes)
{
    choir__pool *c = pool->counts;
    if (c != pool)
        pthread_mutex_lock(&c->lock);
    c->used += (size_t)bytes;
    note_taken(c);
    if (c != pool)
        pthread_mutex_unlock(&c->lock);
}

/* Counts memory that has no block. */
static bool count(
    choir__pool *pool, ptrdiff_t live, choir__memory_kind kind, ptrdiff_t reserved)
{
    return count_of(pool, live, kind, (choir__dry_ledger_line){0}, reserved);
}

static void forget_readers(choir__pool_block *block)
{
    for (int i = 0; i < block->reader_count; i++)
        choir__queue_let_go(block->readers[i].queue);
    block->reader_count = 0;
}

static void give_back(choir__pool *pool, choir__pool_block *block)
{
    forget_readers(block);
    pool->ops->put(pool->arg, block->data, block->bytes);
    count(pool, 0, CHOIR__MEMORY_OTHER, -(ptrdiff_t)block->bytes);
    count_used(pool, -(ptrdiff_t)block->used);
    free(block->readers);
    free(block);
}

static void cache(choir__pool *pool, choir__pool_block *block)
{
    block->next = pool->cached[block->class];
    pool->cached[block->class] = block;
}

static bool readers_done(const choir__pool_block *block)
{
    for (int i = 0; i < block->reader_count; i++)
        if (!choir__event_done(block->readers[i]))
            return false;
    return true;
}

/* Moves blocks whose readers are done to the free lists. */
static void collect(choir__pool *pool)
{
    choir__pool_block **link = &pool->awaiting;
    while (*link) {
        choir__pool_block *block = *link;
        if (!readers_done(block)) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        if (!choir__recording_active())
            forget_readers(block);
        cache(pool, block);
    }
}

static void wait_for_readers(choir__pool *pool)
{
    for (choir__pool_block *block = pool->awaiting; block; block = block->next)
        for (int i = 0; i < block->reader_count; i++)
            choir__event_wait(block->readers[i]);
    collect(pool);
}

static void trim(choir__pool *pool)
{
    for (int c = 0; c < CLASSES; c++)
        while (pool->cached[c]) {
            choir__pool_block *block = pool->cached[c];
            pool->cached[c] = block->next;
            give_back(pool, block);
        }
}

/* Returns unused memory to the system. A recording's own pool keeps its blocks, since its list
 * names their addresses at every replay; the pool that it was split from releases its own.
 * Under pool->lock. */
static void make_room(choir__pool *pool)
{
    choir__pool *idle = pool->counts;
    if (idle != pool)
        pthread_mutex_lock(&idle->lock);
    wait_for_readers(idle);
    trim(idle);
    if (idle != pool)
        pthread_mutex_unlock(&idle->lock);
}

void choir__pool_trim(choir_device *device)
{
    choir__queue_wait(device->queue); /* queued tasks may still read cached blocks */
    pthread_mutex_lock(&device->pool->lock);
    make_room(device->pool);
    pthread_mutex_unlock(&device->pool->lock);
}

void choir__pool_free(choir__pool *pool)
{
    if (!pool)
        return;
    wait_for_readers(pool);
    trim(pool);
    choir__dry_ledger_free(pool->ledger);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void choir__pool_retire(choir__pool *pool, choir__pool **list)
{
    if (!pool)
        return;
    wait_for_readers(pool);
    trim(pool); /* the caller has waited for the device */
    pool->next = *list;
    *list = pool;
}

void choir__pools_free(choir__pool **list)
{
    while (*list) {
        choir__pool *pool = *list;
        *list = pool->next;
        choir__pool_free(pool);
    }
}

/* Takes a cached block of the class or, if it is a large one, of the next ones. */
static choir__pool_block *take_cached(choir__pool *pool, int class)
{
    int last = class < LARGE ? class : class + NEAR;
    while (class < last && !pool->cached[class])
        class ++;
    choir__pool_block *block = pool->cached[class];
    if (block)
        pool->cached[class] = block->next;
    return block;
}

/* Takes the smallest cached block that has room, however much of it stays unused. */
static choir__pool_block *take_larger(choir__pool *pool, int class)
{
    while (class < CLASSES && !pool->cached[class])
        class ++;
    choir__pool_block *block = pool->cached[class]; /* behind the last class: none */
    if (block)
        pool->cached[class] = block->next;
    return block;
}

static choir__pool_block *fresh(choir__pool *pool, int class)
{
    size_t bytes = class_bytes(class);
    if (!count(pool, 0, CHOIR__MEMORY_OTHER, (ptrdiff_t)bytes))
        return NULL;
    void *data = pool->ops->get(pool->arg, bytes);
    if (!data) {
        count(pool, 0, CHOIR__MEMORY_OTHER, -(ptrdiff_t)bytes);
        return NULL;
    }
    choir__pool_block *block = choir__calloc(1, sizeof *block);
    *block = (choir__pool_block){.data = data, .bytes = bytes, .class = class, .pool = pool};
    return block;
}

/* Returns cached blocks to the system. Queued tasks may still read them: those finish first.
 * Under pool->lock. */
static void release_unused(choir_device *device)
{
    choir__queue_wait(device->queue);
    wait_for_readers(device->pool);
    make_room(device->pool);
}

choir__pool_block *choir__block_new(choir_device *device, size_t bytes)
{
    choir__pool *pool = device->pool;
    if (bytes > class_bytes(CLASSES - 1))
        return NULL;
    int class = class_of(bytes);
    pthread_mutex_lock(&pool->lock);
    if (pool->awaiting)
        collect(pool);
    choir__pool_block *block = take_cached(pool, class);
    if (!block && !(block = fresh(pool, class))) {
        release_unused(device);
        block = fresh(pool, class);
    }
    if (!block) /* a recording's own pool has kept its blocks */
        block = take_larger(pool, class);
    if (block) {
        block->handed = class_bytes(class);
        block->kind = CHOIR__MEMORY_OTHER;
        block->line = (choir__dry_ledger_line){0};
        count(pool, (ptrdiff_t)block->handed, block->kind, 0);
        if (bytes > block->used) {
            count_used(pool, (ptrdiff_t)(bytes - block->used));
            block->used = bytes;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (block && block->reader_count)
        choir__block_wait_readers(block, device->queue);
    return block;
}

void choir__block_free(choir__pool_block *block)
{
    if (!block)
        return;
    choir__pool *pool = block->pool;
    pthread_mutex_lock(&pool->lock);
    count_of(pool, -(ptrdiff_t)block->handed, block->kind, block->line, 0);
    if (block->reader_count) {
        block->next = pool->awaiting;
        pool->awaiting = block;
    } else {
        cache(pool, block);
    }
    pthread_mutex_unlock(&pool->lock);
}

void choir__block_holds(choir__pool_block *block, choir__memory_kind kind)
{
    choir__pool *pool = block->pool;
    ptrdiff_t bytes = (ptrdiff_t)block->handed;
    pthread_mutex_lock(&pool->lock);
    count_of(pool, -bytes, block->kind, block->line, 0);
    count_of(pool, bytes, kind, block->line, 0);
    block->kind = kind;
    pthread_mutex_unlock(&pool->lock);
}

void choir__block_tell(choir__pool_block *block, choir__memory_use use, const char *name)
{
    choir__pool *pool = block->pool;
    choir__dry_ledger *ledger = pool->counts->ledger;
    const ptrdiff_t bytes = (ptrdiff_t)block->handed;
    if (!ledger)
        return;
    pthread_mutex_lock(&pool->lock);
    count_of(pool, -bytes, block->kind, block->line, 0);
    block->line = choir__dry_ledger_line_of(ledger, use, name);
    count_of(pool, bytes, block->kind, block->line, 0);
    pthread_mutex_unlock(&pool->lock);
}

choir__memory_kind choir__block_kind(const choir__pool_block *block)
{
    return block->kind;
}

void *choir__block_data(const choir__pool_block *block)
{
    return block->data;
}

void choir__block_used_by(choir__pool_block *block, choir__event event)
{
    for (int i = 0; i < block->reader_count; i++)
        /* the later place covers the earlier one */
        if (block->readers[i].queue == event.queue) {
            block->readers[i] = event;
            return;
        }
    CHOIR__GROW(block->readers, block->reader_count);
    block->readers[block->reader_count++] = event;
    choir__queue_hold(event.queue);
}

void choir__block_wait_readers(choir__pool_block *block, choir__queue *queue)
{
    for (int i = 0; i < block->reader_count; i++)
        choir__queue_wait_event(queue, block->readers[i]);
    forget_readers(block);
}

bool choir__block_read_elsewhere(const choir__pool_block *block)
{
    return block->reader_count;
}

choir__pool *choir__pool_swap(choir_device *device, choir__pool *pool)
{
    choir__pool *old = device->pool;
    if (!pool) {
        pool = choir__pool_new(old->ops, old->arg, NULL);
        pool->counts = old->counts;
    }
    device->pool = pool;
    return old;
}

bool choir__pool_charge(
    choir_device *device, ptrdiff_t bytes, choir__memory_kind kind, const char *holder)
{
    choir__pool *pool = device->pool;
    choir__dry_ledger_line line = {0};
    pthread_mutex_lock(&pool->lock);
    if (pool->counts->ledger)
        line = choir__dry_ledger_line_of(pool->counts->ledger, CHOIR__FOR_WORK, holder);
    bool fits = count_of(pool, bytes, kind, line, bytes);
    if (!fits) {
        release_unused(device);
        fits = count_of(pool, bytes, kind, line, bytes);
    }
    if (fits)
        count_used(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

void choir_device_set_limit(choir_device *device, size_t bytes)
{
    if (choir__lacks(device, __func__, "device"))
        return;
    choir__pool *pool = device->pool->counts;
    pthread_mutex_lock(&pool->lock);
    pool->limit = bytes;
    show(pool);
    pthread_mutex_unlock(&pool->lock);
}

void choir_device_reset_peak(choir_device *device)
{
    if (choir__lacks(device, __func__, "device"))
        return;
    choir__pool *pool = device->pool->counts;
    pthread_mutex_lock(&pool->lock);
    pool->peak = 0;
    note_peak(pool);
    pool->most = (choir__pool_taken){pool->reserved, pool->used};
    show(pool);
    pthread_mutex_unlock(&pool->lock);
}

void choir_device_get_stats(choir_device *device, choir_device_stats *stats)
{
    if (choir__lacks(device, __func__, "device"))
        return;
    if (choir__lacks(stats, __func__, "device stats"))
        return;
    choir__queue_stats queue = choir__queue_get_stats(device->queue);
    choir__pool *pool = device->pool->counts;
    pthread_mutex_lock(&pool->lock);
    *stats = (choir_device_stats){
        .bytes_now = pool->live,
        .bytes_peak = pool->peak,
        .bytes_reserved = pool->reserved,
        .bytes_limit = pool->limit,
        .bytes_weights = pool->of_kind[CHOIR__MEMORY_WEIGHTS],
        .bytes_gradients = pool->of_kind[CHOIR__MEMORY_GRADIENTS],
        .bytes_optimizer = pool->of_kind[CHOIR__MEMORY_OPTIMIZER],
        .busy_s = queue.busy_s,
        .age_s = choir__now() - device->born,
        .queue_depth = queue.issued - queue.finished,
        .tasks = queue.finished,
        .bytes_moved = queue.moved,
    };
    pthread_mutex_unlock(&pool->lock);
}

void choir__pool_peak(choir_device *device, size_t of[CHOIR__MEMORY_KINDS])
{
    choir__pool *pool = device->pool->counts;
    pthread_mutex_lock(&pool->lock);
    memcpy(of, pool->peak_of, sizeof pool->peak_of);
    pthread_mutex_unlock(&pool->lock);
}

choir__pool_taken choir__pool_most_taken(choir_device *device)
{
    choir__pool *pool = device->pool->counts;
    pthread_mutex_lock(&pool->lock);
    const choir__pool_taken most = pool->most;
    pthread_mutex_unlock(&pool->lock);
    return most;
}

void choir__pool_keep_ledger(choir__pool *pool)
{
    pool->ledger = choir__dry_ledger_new();
}

const choir__dry_ledger *choir__pool_ledger(choir_device *device)
{
    choir__pool *pool = device->pool->counts;
    pthread_mutex_lock(&pool->lock);
    if (pool->ledger && pool->live == pool->peak)
        choir__dry_ledger_keep(pool->ledger);
    pthread_mutex_unlock(&pool->lock);
    return pool->ledger;
}
