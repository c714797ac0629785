/* choir_step: a step as a function, run twice, recorded once, then replayed.
 *
 * The first two calls let everything that is made lazily be made (state of optimizers, layouts
 * of gradients, primitives). The third runs under a recording, with a memory pool of its own,
 * so that the addresses in the list stay good: nobody else is ever given that memory. Scopes
 * that close while recording keep their arenas, since host calls of the list point into them.
 */
#include <stdlib.h>

#include "tensor/tensor.h"

enum { WARM_UP = 2 };

struct choir__replay {
    choir_scope *run;
    choir_step_fn *fn;
    void *arg;
    int calls;
    choir__recording *recording;
    choir__pool *pool;
};

static void forget(void *arg)
{
    choir_scope *run = arg;
    struct choir__replay *r = run->replay;
    choir__run_sync(run);
    choir__recording_free(r->recording);
    choir__scopes_free(&run->recorded);
    choir__pool_retire(r->pool, &run->retired);
    r->recording = NULL;
    r->pool = NULL;
    r->calls = 0;
}

void choir__step_forget(choir_scope *run)
{
    if (run->replay)
        forget(run);
}

static void close_replay(void *arg)
{
    forget(arg);
    free(((choir_scope *)arg)->replay);
}

static choir_status run_once(struct choir__replay *r, choir_scope *step)
{
    choir_status status = r->fn(step, r->arg);
    choir_status closed = choir_scope_close(step);
    return status != CHOIR_OK ? status : closed;
}

static choir_status record(struct choir__replay *r, choir_scope *step)
{
    choir_device *device = r->run->device;
    choir__pool_trim(device); /* what the steps before have cached is about to be had twice */
    choir__pool *shared = choir__pool_swap(device, NULL);
    r->recording = choir__recording_open();
    choir_status status = run_once(r, step);
    choir__recording_close(r->recording);
    r->pool = choir__pool_swap(device, shared);
    if (status != CHOIR_OK)
        forget(r->run);
    return status;
}

choir_status choir_step(choir_scope *run, choir_step_fn *fn, void *arg)
{
    if (!run->replay) {
        run->replay = choir__calloc(1, sizeof *run->replay);
        run->replay->run = run;
        choir__on_close(run, close_replay, run);
    }
    struct choir__replay *r = run->replay;
    if (r->fn != fn || r->arg != arg) {
        forget(run);
        r->fn = fn;
        r->arg = arg;
    }
    uint64_t number = run->next_step++;
    if (r->recording) {
        choir__store_step(run, number);
        choir_status status = choir__recording_replay(r->recording);
        return status != CHOIR_OK ? status : choir__run_failure(run);
    }
    choir_scope *step = choir_step_open(run, number);
    return r->calls++ < WARM_UP ? run_once(r, step) : record(r, step);
}
