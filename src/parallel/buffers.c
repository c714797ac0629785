/* Copies a module's tensors from one rank to all. Before each forward, buffers become rank 0's.
 * They are packed into flat blocks, so that a network of 53 batch norms needs one broadcast and
 * not 159:
 *
 *     rank 0   buffers -> block -> broadcast
 *     others                       broadcast -> block -> buffers
 *
 * When a strategy is made, rank 0's parameters are sent in the same way. A tensor that is alone
 * in its block is sent without a copy. */
#include <stdlib.h>

#include "comm/far/far.h"
#include "parallel/ranks.h"
#include "tensor/launch.h"
#include "tensor/run.h"
#include "tensor/strategy.h"

/* Bytes per broadcast. For buffers this is PyTorch's number. Parameters include large ones,
 * which gain nothing from a block, and the pool would keep the block's memory. */
static const size_t BLOCK_CAP = (size_t)250 << 20, MODEL_CAP = (size_t)4 << 20;

typedef struct piece {
    choir_tensor *tensor;
    size_t at; /* bytes into the block */
} piece;

/* Tensors of one device: at most BLOCK_CAP bytes, or one larger tensor. */
typedef struct block {
    choir_device *device;
    choir__storage *storage;
    size_t bytes;
    int from, to; /* indices of pieces */
} block;

typedef struct flat {
    piece *pieces;
    block *blocks;
    int piece_count, block_count;
    bool params; /* includes the parameters */
} flat;

static void add(const char *name, choir_tensor *t, void *arg)
{
    flat *b = arg;
    (void)name;
    if ((t->param && !b->params) || !t->storage || !t->storage->bytes)
        return;
    CHOIR__GROW(b->pieces, b->piece_count);
    block *open = b->block_count ? &b->blocks[b->block_count - 1] : NULL;
    if (!open || open->device != choir__device_of(t) ||
        open->bytes + t->storage->bytes > (b->params ? MODEL_CAP : BLOCK_CAP)) {
        CHOIR__GROW(b->blocks, b->block_count);
        open = &b->blocks[b->block_count++];
        *open = (block){
            .device = choir__device_of(t), .from = b->piece_count, .to = b->piece_count};
    }
    b->pieces[b->piece_count++] = (piece){t, open->bytes};
    open->bytes += (t->storage->bytes + 63) & ~(size_t)63;
    open->to++;
}

static void let_go(flat *b)
{
    for (int i = 0; i < b->block_count; i++)
        choir__storage_unref(b->blocks[i].storage);
    free(b->pieces);
    free(b->blocks);
}

static void copy(const flat *b, const block *k, bool in)
{
    for (int i = k->from; i < k->to; i++) {
        choir__storage *s = b->pieces[i].tensor->storage;
        char *there = (char *)k->storage->data + b->pieces[i].at;
        if (!in)
            choir__storage_claim(s);
        choir__launch_bytes(k->device, in ? there : s->data, in ? s->data : there, s->bytes);
    }
}

static choir_status broadcast_alone(
    choir_group *group, choir_device *device, choir__storage *s, int root)
{
    choir_work work;
    if (choir_group_rank(group) != root)
        choir__storage_claim(s);
    choir__group_waits(group, device);
    choir_status status =
        choir_group_broadcast(group, s->data, (int64_t)s->bytes, CHOIR_U8, root, &work);
    choir__device_waits(device, group);
    return status;
}

static choir_status broadcast(choir_group *group, const flat *b, block *k, int root)
{
    choir_work work;
    if (k->to - k->from == 1)
        return broadcast_alone(group, k->device, b->pieces[k->from].tensor->storage, root);
    if (!k->storage && !(k->storage = choir__storage_new(k->device, k->bytes)))
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for %zu bytes of buffers",
            choir_device_name(k->device), k->bytes);
    choir__storage_tell(k->storage, CHOIR__FOR_MESSAGES, "(buffers of modules)");
    bool sends = choir_group_rank(group) == root;
    if (sends)
        copy(b, k, true);
    choir__group_waits(group, k->device);
    choir_status status = choir_group_broadcast(
        group, k->storage->data, (int64_t)k->bytes, CHOIR_U8, root, &work);
    if (status != CHOIR_OK)
        return status;
    choir__device_waits(k->device, group);
    if (!sends)
        copy(b, k, false);
    return CHOIR_OK;
}

/* The device waits for the group, so the order of its queue protects the block's memory. */
choir_status choir__ranks_broadcast_buffers(choir_group *group, choir_module *module)
{
    flat b = {0};
    choir_status status = CHOIR_OK;
    if (choir_group_world(group) == 1)
        return CHOIR_OK;
    choir__module_visit_named(module, true, add, &b);
    for (int i = 0; i < b.block_count && status == CHOIR_OK; i++)
        status = broadcast(group, &b, &b.blocks[i], 0);
    let_go(&b);
    return status;
}

/* Works block by block, so there is never a second copy of the whole model. */
choir_status choir__ranks_broadcast_model(choir_group *group, choir_module *module, int root)
{
    flat b = {.params = true};
    choir_status status = CHOIR_OK;
    if (choir_group_world(group) == 1)
        return CHOIR_OK;
    choir_module_visit(module, true, add, &b);
    for (int i = 0; i < b.block_count && status == CHOIR_OK; i++) {
        status = broadcast(group, &b, &b.blocks[i], root);
        if (status == CHOIR_OK)
            status = choir__queue_wait(choir__group_queue(group));
        if (status == CHOIR_OK)
            status = choir_device_sync(b.blocks[i].device);
        choir__storage_unref(b.blocks[i].storage);
        b.blocks[i].storage = NULL;
    }
    let_go(&b);
    return status;
}

/* Returns whether every rank will draw the parameters, from one seed. */
static choir_status draw_alike(choir_group *group, const choir_module *module, bool *alike)
{
    int world = choir_group_world(group);
    uint64_t mine[2] = {module->run->seed, module->inside->drawn};
    uint64_t *all = choir__calloc((size_t)world, sizeof mine);
    choir_status status = choir_group_all_gather(group, mine, all, 2, CHOIR_I64, NULL);
    *alike = true;
    for (int r = 0; r < world; r++)
        *alike &= all[2 * r] == all[0] && !all[2 * r + 1];
    free(all);
    return status;
}

choir_status choir__ranks_share_model(choir_group *group, choir_module *module)
{
    bool alike;
    choir_status status = draw_alike(group, module, &alike);
    if (status != CHOIR_OK)
        return status;
    return alike ? choir__ranks_broadcast_buffers(group, module)
                 : choir__ranks_broadcast_model(group, module, 0);
}

void choir__ranks_sync_buffers(
    choir_group *group, choir_module *module, const choir_scope *scope, uint64_t *synced)
{
    if (*synced == scope->step + 1)
        return;
    *synced = scope->step + 1;
    choir_status status = choir__ranks_broadcast_buffers(group, module);
    if (status != CHOIR_OK)
        choir__scope_fail(module->run, status);
}

/* --- copies that undo a step --- */

struct choir__kept_buffers {
    choir_scope *run;
    flat flat; /* each block ends with the step's number: 64 bytes more */
};

choir_status choir__ranks_make_kept(choir_module *module, choir__kept_buffers **made)
{
    choir__kept_buffers *kept = choir__calloc(1, sizeof *kept);
    kept->run = module->run;
    choir_module_visit(module, true, add, &kept->flat);
    for (int i = 0; i < kept->flat.block_count; i++) {
        block *k = &kept->flat.blocks[i];
        k->storage = choir__storage_new(k->device, k->bytes + 64);
        if (k->storage && choir__step_word(kept->run, k->device))
            continue;
        choir__ranks_free_kept(kept);
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for a copy of buffers",
            choir_device_name(k->device));
    }
    *made = kept;
    return CHOIR_OK;
}

void choir__ranks_free_kept(choir__kept_buffers *kept)
{
    if (!kept)
        return;
    let_go(&kept->flat);
    free(kept);
}

static char *step_of(const block *k)
{
    return (char *)k->storage->data + k->bytes;
}

void choir__ranks_keep_buffers(choir__kept_buffers *kept)
{
    for (int i = 0; i < kept->flat.block_count; i++) {
        const block *k = &kept->flat.blocks[i];
        copy(&kept->flat, k, true);
        choir__launch_bytes(
            k->device, step_of(k), choir__step_word(kept->run, k->device), sizeof(uint64_t));
    }
}

/* The number says whether the device has come to the copy: if it has not, it has not come to
 * the forward that changes the buffers either. */
void choir__ranks_undo_buffers(choir__kept_buffers *kept, uint64_t step)
{
    for (int i = 0; i < kept->flat.block_count; i++) {
        const block *k = &kept->flat.blocks[i];
        uint64_t made = CHOIR__NO_STEP;
        if (choir_device_sync(k->device) == CHOIR_OK &&
            choir__far_copy(&made, step_of(k), sizeof made) == CHOIR_OK && made == step)
            copy(&kept->flat, k, false);
    }
}
