/* Hogwild: the master's memory, and when a process becomes a worker.
 *
 *     master      [ head | weight | bias | running_mean | ... ]    a memfd, mapped by all
 *     worker      one storage per tensor, and one snapshot with the master's layout
 *
 * In the process that shared the module, its tensors are views of the master. A worker's
 * tensors get private memory; a watcher of its run's steps queues an exchange when a step
 * begins and after each update of the optimizer. Everything is queued, so a recorded step
 * replays it. */
#include "parallel/hogwild/hogwild.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/hash.h"
#include "comm/far/far.h"
#include "device/dry/dry.h"
#include "nn/module.h"
#include "tensor/handle.h"

/* --- steps --- */

static void step_begins(choir__strategy *s)
{
    choir__hogwild_queue_exchange(CHOIR__STRATEGY_OF(s, choir__hogwild, strategy), false);
}

static void step_updated(choir__strategy *s)
{
    choir__hogwild_queue_exchange(CHOIR__STRATEGY_OF(s, choir__hogwild, strategy), true);
}

static const choir__strategy_ops hogwild_ops = {.name = "hogwild",
    .pins = "its weights are shared with other processes",
    .step_begins = step_begins,
    .step_updated = step_updated,
    .ranks_changed = choir__hogwild_ranks_changed,
    .ranks_settled = choir__hogwild_ranks_settled,
    .apart = choir__hogwild_is_apart};

/* Returns the module's Hogwild state; NULL: its weights are not shared. */
static choir__hogwild *hogwild_of(const choir_module *module)
{
    choir__strategy *s = module->inside->pinned_by;
    return s ? CHOIR__STRATEGY_OF(s, choir__hogwild, strategy) : NULL;
}

choir_status choir_hogwild_exchange(choir_module *module)
{
    choir_status use = choir__use_module(module, __func__);
    if (use != CHOIR_OK)
        return use;
    choir_status status = choir__scope_status(module->run);
    choir__hogwild *h = hogwild_of(module);
    if (status == CHOIR_OK && h && h->worker)
        choir__hogwild_queue_exchange(h, true);
    return status;
}

int64_t choir_hogwild_updates(const choir_module *module)
{
    if (choir__use_module(module, __func__) != CHOIR_OK)
        return 0;
    const choir__hogwild *h = hogwild_of(module);
    return h ? (int64_t)atomic_load(&choir__hogwild_head_of(h)->updates) : 0;
}

/* --- the layout --- */

struct layout {
    choir__hogwild *h;
    choir_status status;
    uint64_t model;
};

static choir_status check_piece(
    const choir__hogwild *h, const char *name, const choir_tensor *t, bool parameter)
{
    const choir_device *device = h->module->run->device;
    if (t->poisoned)
        return choir__scope_status(t->scope);
    if (choir__device_of(t) != device)
        return choir__error(CHOIR_ERR_DEVICE,
            "hogwild: '%s' is on %s, its run on %s; a worker has one device", name,
            choir_device_name(choir__device_of(t)), choir_device_name(device));
    if (t->dtype != CHOIR_F32 && (parameter || t->dtype != CHOIR_I64))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "hogwild: '%s' is %s; parameters are shared as f32, buffers as f32 or i64", name,
            choir_dtype_name(t->dtype));
    return CHOIR_OK;
}

static void add_piece(const char *name, choir_tensor *t, void *arg)
{
    struct layout *l = arg;
    choir__hogwild *h = l->h;
    if (t->held) /* frozen: each worker keeps its own copy */
        return;
    if (l->status == CHOIR_OK)
        l->status = check_piece(h, name, t, t->param);
    if (l->status != CHOIR_OK)
        return;
    size_t bytes = (size_t)t->count * choir_dtype_size(t->dtype);
    CHOIR__GROW(h->pieces, h->count);
    h->pieces[h->count++] = (choir__hogwild_piece){.tensor = t,
        .rule = t->dtype == CHOIR_I64 ? CHOIR__ADD_I64
                : t->param            ? CHOIR__ADD_F32
                                      : CHOIR__PUT_F32,
        .offset = h->bytes,
        .bytes = bytes};
    h->bytes += (bytes + CHOIR__HOGWILD_LINE - 1) & ~(size_t)(CHOIR__HOGWILD_LINE - 1);
    l->model = choir__hash_text(l->model, name);
    for (int i = 0; i < t->shape.ndim; i++)
        l->model = choir__hash_step(l->model, (uint64_t)(t->shape.dim[i] * 31 + t->stride[i]));
}

static void close_hogwild(void *arg)
{
    choir__hogwild *h = arg;
    choir_scope *run = h->module->run;
    (void)!choir_device_sync(run->device);
    choir__spawn_unwatch(&h->spawns);
    choir__strategy_leave(&h->strategy, run);
    choir__storage_unref(h->words);
    if (h->mirror) {
        choir__queue_free(h->queue);
        free(h->mirror);
        free(h->snapshot);
    }
    choir__mapping_unref(h->mapping);
    choir__shared_free(h->shared);
    h->module->inside->pinned_by = NULL;
    free(h->pieces);
    free(h);
}

/* Lists the pieces of a module that is not shared yet; *model identifies the model. */
static choir_status lay_out(choir_module *module, choir__hogwild **made, uint64_t *model)
{
    choir__hogwild *h = choir__calloc(1, sizeof *h);
    *h = (choir__hogwild){.module = module, .bytes = CHOIR__HOGWILD_LINE};
    struct layout l = {h, choir__scope_status(module->run), CHOIR__HASH_SEED};
    choir_module_visit(module, true, add_piece, &l);
    if (l.status != CHOIR_OK) {
        free(h->pieces);
        free(h);
        return l.status;
    }
    h->strategy.ops = &hogwild_ops;
    module->inside->pinned_by = &h->strategy;
    choir__on_close(module->run, close_hogwild, h);
    *made = h;
    *model = l.model;
    return CHOIR_OK;
}

/* Gives t other memory. The run must no longer use the old one. */
static void rebind(choir_tensor *t, choir__storage *storage)
{
    storage->version = t->storage->version + 1;
    choir__storage_unref(t->storage);
    t->storage = storage;
}

/* --- workers --- */

/* Allocates the memory in which words are exchanged: on the device, or copies on the host if
 * the device's memory is far. */
static bool make_room(choir__hogwild *h)
{
    choir_device *device = h->module->run->device;
    if (!device->far) {
        h->queue = device->queue;
        h->words = choir__storage_new(device, h->bytes);
        choir__storage_tell(h->words, CHOIR__FOR_MESSAGES, "(exchanged weights)");
        h->snapshot = h->words ? h->words->data : NULL;
        return h->words;
    }
    h->mirror = aligned_alloc(CHOIR__HOGWILD_LINE, h->bytes);
    h->snapshot = aligned_alloc(CHOIR__HOGWILD_LINE, h->bytes);
    if (!h->mirror || !h->snapshot) {
        free(h->mirror);
        free(h->snapshot);
        h->mirror = h->snapshot = NULL;
        return false;
    }
    h->queue = choir__queue_new((choir__queue_opts){.name = "hogwild"});
    return true;
}

static choir_status become_worker(choir__hogwild *h)
{
    choir_scope *run = h->module->run;
    bool room = make_room(h);
    for (int i = 0; i < h->count && room; i++) {
        choir__hogwild_piece *p = &h->pieces[i];
        choir__storage *mine = choir__storage_new(run->device, p->bytes);
        choir__storage_holds(mine, CHOIR__MEMORY_WEIGHTS);
        choir__storage_tell(mine, CHOIR__FOR_WORK, "(this worker's weights)");
        room = mine;
        if (room) {
            rebind(p->tensor, mine);
            p->mine = h->mirror ? h->mirror + p->offset : mine->data;
            p->far = h->mirror ? mine->data : NULL;
        }
    }
    if (!room)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for a worker's copies of %zu bytes of weights",
            choir_device_name(run->device), h->bytes);
    choir__step_forget(run); /* recordings contain the addresses of the old memory */
    choir__hogwild_queue_take(h);
    choir__strategy_join(&h->strategy, run);
    h->worker = true;
    return CHOIR_OK;
}

/* --- sharing --- */

/* Runs in a child of choir_spawn, which inherited the module and its run. */
static void in_child(void *arg, int rank)
{
    choir__hogwild *h = arg;
    choir_scope *run = h->module->run;
    choir_status status = CHOIR_OK;
    choir__run_of(run)->micro_first = rank;
    choir__device_place(run->device, run->device->index + rank);
    if (!h->worker)
        status = become_worker(h);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
}

static choir_status write_master(choir__hogwild *h, uint64_t model)
{
    choir_status status = choir_device_sync(h->module->run->device);
    if (choir__is_dry(h->master))
        return status;
    choir__hogwild_head_of(h)->model = model;
    for (int i = 0; i < h->count && status == CHOIR_OK; i++)
        status = choir__far_copy(h->master + h->pieces[i].offset,
            choir__data(h->pieces[i].tensor), h->pieces[i].bytes);
    return status;
}

choir_status choir_module_share_memory(choir_module *module)
{
    choir_status use = choir__use_module(module, __func__);
    if (use != CHOIR_OK)
        return use;
    choir_scope *run = module->run;
    choir__hogwild *h;
    char why[200];
    uint64_t model;
    if (hogwild_of(module))
        return choir__scope_status(run);
    if (run->device->far)
        return choir__scope_fail(run,
            choir__error(CHOIR_ERR_UNSUPPORTED,
                "share_memory: the module is on %s, and processes share the host's memory: keep "
                "the master on a CPU, or give choir_hogwild a group",
                choir_device_name(run->device)));
    choir_status status = lay_out(module, &h, &model);
    if (status == CHOIR_OK && !(h->mapping = choir__mapping_new(h->bytes, why)))
        status = choir__error(
            CHOIR_ERR_MEMORY, "out of memory: cannot share the module among ranks: %s", why);
    if (status != CHOIR_OK)
        return choir__scope_fail(run, status);
    h->master = h->mapping->at;
    status = write_master(h, model);
    if (status != CHOIR_OK)
        return choir__scope_fail(run, status);
    choir__step_forget(run);
    for (int i = 0; i < h->count; i++) {
        choir__hogwild_piece *p = &h->pieces[i];
        rebind(p->tensor, choir__storage_mapped(run->device, h->mapping, p->offset, p->bytes));
    }
    h->spawns = (choir__spawn_watcher){.child = in_child, .arg = h};
    choir__spawn_watch(&h->spawns);
    return CHOIR_OK;
}

/* --- workers of a master in another run or process --- */

static choir_status join_module(choir__hogwild *h, uint64_t model, const choir_module *master)
{
    const choir__hogwild *of = hogwild_of(master);
    if (!of || !of->mapping)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "hogwild: opts.master is not shared: call choir_module_share_memory on it first");
    h->mapping = choir__mapping_ref(of->mapping);
    h->master = h->mapping->at;
    if (choir__hogwild_head_of(of)->model != model)
        return choir__error(CHOIR_ERR_MISMATCH,
            "hogwild: the module has other parameters than the master that it is to share");
    return become_worker(h);
}

/* The data that ranks compare: their model, and whether they can access rank 0's memory. */
typedef struct report {
    uint64_t model;
    int64_t reaches;
} report;

static choir_status compare(choir_group *group, const report *mine)
{
    int world = choir_group_world(group);
    report *all = choir__calloc((size_t)world, sizeof *all);
    choir_status status =
        choir_group_all_gather(group, mine, all, sizeof *mine, CHOIR_U8, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++) {
        if (all[r].model != all[0].model)
            status = choir__error(CHOIR_ERR_MISMATCH,
                "hogwild: the model of rank %d has other parameters than rank 0's", r);
        else if (!all[r].reaches)
            status = choir__error(CHOIR_ERR_DEVICE,
                "hogwild: rank %d cannot reach rank 0's memory by %s: %s", r,
                choir_group_backend(group),
                choir_group_nodes(group) > 1 ? "workers are of one machine"
                                             : "take --backend shm");
    }
    free(all);
    return status;
}

static choir_status join_group(choir__hogwild *h, uint64_t model, choir_group *group)
{
    bool first = choir_group_rank(group) == 0;
    h->group = group;
    choir_status status = choir__shared_new(group, first ? h->bytes : 0, &h->shared);
    if (status != CHOIR_OK)
        return status;
    h->master = choir__shared_at(h->shared, 0);
    status = compare(group, &(report){model, h->master != NULL});
    if (status == CHOIR_OK && first)
        status = write_master(h, model);
    if (status == CHOIR_OK)
        status = choir_group_barrier(group, NULL); /* the master has been written */
    return status == CHOIR_OK ? become_worker(h) : status;
}

choir_status choir_hogwild_restart(choir_module *module, choir_group *group)
{
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    if (!group)
        return choir__missing(__func__, "group");
    choir__hogwild *h = hogwild_of(module);
    if (!h)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "hogwild_restart: expected a module that choir_hogwild has shared");
    choir_device *device = module->run->device;
    choir_status status = choir_device_sync(device);
    if (status == CHOIR_OK)
        status = choir_group_barrier(group, NULL); /* no rank uses the master any more */
    if (status == CHOIR_OK && choir_group_rank(group) == 0)
        status = write_master(h, choir__hogwild_head_of(h)->model);
    if (status == CHOIR_OK)
        status = choir_group_barrier(group, NULL);
    if (status == CHOIR_OK)
        choir__hogwild_queue_take(h);
    return status;
}

choir_hogwild_opts choir_hogwild_defaults(void)
{
    return (choir_hogwild_opts){NULL, NULL};
}

static choir_status join(choir_module *module, choir_hogwild_opts opts)
{
    choir__hogwild *h = hogwild_of(module);
    uint64_t model;
    if (h && h->worker)
        return CHOIR_OK;
    if (h || (!opts.group && !opts.master))
        return choir__error(CHOIR_ERR_ARGUMENT, "hogwild: %s",
            h ? "this process holds the master itself; its workers are children "
                "of choir_spawn, or modules of other runs"
              : "no master: call choir_module_share_memory before choir_spawn, "
                "or give a group or a master");
    choir_status status = lay_out(module, &h, &model);
    if (status != CHOIR_OK)
        return status;
    return opts.group ? join_group(h, model, opts.group) : join_module(h, model, opts.master);
}

choir_module *choir_hogwild(choir_scope *run, choir_module *module, choir_hogwild_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    choir_status status = join(module, opts);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return module;
}
