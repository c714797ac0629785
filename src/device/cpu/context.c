/* A context is a team of threads, blocks of scratch memory that only grow, and oneDNN's
 * primitives if oneDNN is built in. It belongs to a device; at any time it is current on one
 * thread, the queue's runner. */
#include "device/cpu/context.h"

#include <pthread.h>
#include <stdlib.h>

#include "device/cpu/team.h"
#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"
#endif

struct block {
    void *p;
    size_t bytes;
};

struct choir__cpu_context {
    int threads;
    choir__team *team; /* NULL: none yet */
    struct block scratch, workspace, panel, wide, packed;
#ifdef CHOIR_HAVE_ONEDNN
    choir__onednn *onednn; /* created on first use: it takes oneDNN a millisecond */
#endif
};

static _Thread_local choir__cpu_context *current;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static pthread_key_t own_key; /* a thread's own context, freed when the thread ends */

choir__cpu_context *choir__cpu_context_new(int threads)
{
    choir__cpu_context *context = choir__calloc(1, sizeof *context);
    context->threads = threads > 1 ? threads : 1;
    return context;
}

void choir__cpu_context_free(choir__cpu_context *context)
{
    if (!context)
        return;
    if (current == context)
        current = NULL;
#ifdef CHOIR_HAVE_ONEDNN
    choir__onednn_free(context->onednn);
#endif
    choir__team_free(context->team);
    free(context->scratch.p);
    free(context->workspace.p);
    free(context->panel.p);
    free(context->wide.p);
    free(context->packed.p);
    free(context);
}

void choir__cpu_context_enter(void *arg)
{
    current = arg;
}

static void own_free(void *context)
{
    choir__cpu_context_free(context);
}

static void own_key_new(void)
{
    pthread_key_create(&own_key, own_free);
}

choir__cpu_context *choir__cpu_context_current(void)
{
    if (!current) {
        pthread_once(&own_once, own_key_new);
        choir__cpu_context *own = pthread_getspecific(own_key);
        if (!own) {
            own = choir__cpu_context_new(1);
            pthread_setspecific(own_key, own);
        }
        choir__cpu_context_enter(own);
    }
    return current;
}

int choir__cpu_context_threads(const choir__cpu_context *context)
{
    return context->threads;
}

struct work {
    choir__cpu_part *part;
    const void *arg;
    int64_t count, parts;
};

static void run_range(const struct work *w, int64_t i)
{
    int64_t first = w->count / w->parts * i + choir__min(i, w->count % w->parts);
    w->part(w->arg, first, w->count / w->parts + (i < w->count % w->parts));
}

/* Inside, a thread computes alone, with its own context. */
static void run_ranges(const void *work, int thread, int threads)
{
    const struct work *w = work;
    choir__cpu_context *outer = current;
    current = NULL;
    choir__cpu_context_current();
    for (int64_t i = thread; i < w->parts; i += threads)
        run_range(w, i);
    current = outer;
}

void choir__cpu_parallel(int64_t count, int64_t least, choir__cpu_part *part, const void *arg)
{
    int threads = current ? current->threads : 1;
    struct work w = {part, arg, count, choir__min(threads, count / choir__max(1, least))};
    if (w.parts <= 1) {
        part(arg, 0, count);
        return;
    }
    if (!current->team)
        current->team = choir__team_new(threads);
    choir__team_run(current->team, run_ranges, &w);
}

static void *at_least(struct block *block, size_t bytes)
{
    bytes += !bytes; /* memset and others need a valid pointer, even for 0 bytes */
    if (bytes > block->bytes) {
        free(block->p);
        block->bytes = (bytes + 4095) & ~(size_t)4095;
        block->p = aligned_alloc(64, block->bytes);
        if (!block->p)
            block->p = choir__alloc(SIZE_MAX); /* prints the error and ends the process */
    }
    return block->p;
}

void *choir__cpu_scratch(choir__cpu_context *context, size_t bytes)
{
    return at_least(&context->scratch, bytes);
}

void *choir__cpu_workspace(choir__cpu_context *context, size_t bytes)
{
    return at_least(&context->workspace, bytes);
}

void *choir__cpu_panel(choir__cpu_context *context, size_t bytes)
{
    return at_least(&context->panel, bytes);
}

void *choir__cpu_wide(choir__cpu_context *context, size_t bytes)
{
    return at_least(&context->wide, bytes);
}

void *choir__cpu_packed(choir__cpu_context *context, size_t bytes)
{
    return at_least(&context->packed, bytes);
}

#ifdef CHOIR_HAVE_ONEDNN
choir__onednn *choir__cpu_context_onednn(choir__cpu_context *context)
{
    if (!context->onednn)
        context->onednn = choir__onednn_new();
    return context->onednn;
}
#endif
