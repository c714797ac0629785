/* Proofs of a save: a program that has hashed its tensors where they were computed (an audit)
 * says what the numbers must be. Between that moment and the file they pass through memory,
 * which may be faulty: a save whose numbers have changed fails, and the checkpoint before
 * stays. */
#include <stdlib.h>

#include "checkpoint/save.h"
#include "device/kernels_hash.h"

void choir__saver_proves(choir__saver *s, choir__proof_fn *know, void *arg)
{
    s->know = know;
    s->know_arg = arg;
}

void choir__save_note_proofs(choir__saver *s)
{
    free(s->proofs);
    s->proofs = choir__calloc((size_t)s->plan.part_count + 1, sizeof *s->proofs);
    for (int p = 0; s->know && p < s->plan.part_count; p++) {
        const choir__plan_part *part = &s->plan.parts[p];
        if (part->owner == s->rank)
            s->know(s->know_arg, &s->items.list[part->item], &part->region, &s->proofs[p]);
    }
}

/* Returns the hash of a region, whose numbers are row-major, by their places in the whole. */
static uint64_t hash_of(const choir__item *item, const choir__box_region *region,
    const int64_t *place, const char *data)
{
    int64_t index[CHOIR_MAX_DIMS] = {0},
            count = choir__box_region_count(region, item->whole.ndim);
    size_t each = choir_dtype_size(item->dtype);
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int d = 0; d < item->whole.ndim; d++)
            at += (region->from[d] + index[d]) * place[d];
        sum += choir__hash_element(data + (size_t)i * each, item->dtype, (uint64_t)at);
        for (int d = item->whole.ndim - 1; d >= 0 && ++index[d] == region->size[d]; d--)
            index[d] = 0;
    }
    return sum;
}

choir_status choir__save_prove(const choir__saver *s, int p, const void *data)
{
    const choir__plan_part *part = &s->plan.parts[p];
    const choir__item *item = &s->items.list[part->item];
    const choir__proof *proof = &s->proofs[p];
    if (!proof->known || hash_of(item, &part->region, proof->place, data) == proof->hash)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "%s: rank %d: %s is not what step %lld has left: it changed in this machine's memory",
        s->dir, s->rank, item->name, (long long)s->state.step);
}
