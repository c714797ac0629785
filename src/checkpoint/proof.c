/* Proofs of a save: a program that has hashed its tensors where they were computed (an audit)
 * says what the numbers must be. Between that moment and the disk they pass through a copy, the
 * writer's chunks and the system's memory, and all of this may be faulty. So the files are read
 * again, as a job that resumes would read them, and must have the names, types and numbers that
 * were hashed. Else the save fails, and the checkpoint before stays. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/file.h"
#include "checkpoint/save.h"
#include "checkpoint/state.h"
#include "device/kernels/hash.h"

void choir__saver_proves(choir__saver *s, choir__proof_fn *know, void *arg)
{
    s->know = know;
    s->know_arg = arg;
}

void choir__save_note_proofs(choir__saver *s)
{
    free(s->proofs);
    s->proofs = choir__calloc((size_t)s->plan.part_count + 1, sizeof *s->proofs);
    s->own_parts = 0;
    for (int p = 0; s->know && p < s->plan.part_count; p++) {
        const choir__save_plan_part *part = &s->plan.parts[p];
        if (part->owner != s->rank)
            continue;
        s->own_parts++;
        s->know(s->know_arg, &s->items.list[part->item], &part->region, &s->proofs[p]);
    }
}

/* Returns the hash of a region of row-major numbers. Each number counts with its place in the
 * whole tensor. */
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

static choir_status is_other(const choir__saver *s, const char *name)
{
    return choir__error(CHOIR_ERR_STATE,
        "%s: rank %d: %.200s is not what step %lld has left: it changed in this machine's memory",
        s->dir, s->rank, name, (long long)s->state.step);
}

/* Compares a tensor of a file with the proof of part p. */
static choir_status prove(const choir__saver *s, const choir__st_tensor *t, int p)
{
    const choir__save_plan_part *part = &s->plan.parts[p];
    const choir__item *item = &s->items.list[part->item];
    const choir__proof *proof = &s->proofs[p];
    if (proof->missing)
        return is_other(s, t->name);
    const bool same = !proof->known ||
                      (choir__rng_key(0, t->name) == proof->name && t->dtype == item->dtype &&
                          t->bytes == (size_t)part->bytes &&
                          hash_of(item, &part->region, proof->place, t->data) == proof->hash);
    return same ? CHOIR_OK : is_other(s, t->name);
}

/* Returns the part of a file that has a name, or -1. Looks at part `from` first. */
static int part_named(const choir__saver *s, int file, int from, const char *name)
{
    for (int k = 0; k < s->plan.part_count; k++) {
        const int p = (from + k) % s->plan.part_count;
        const choir__save_plan_part *part = &s->plan.parts[p];
        if (part->file == file && !strcmp(s->items.list[part->item].name, name))
            return p;
    }
    return -1;
}

/* Opens a file that has just been written. If it is damaged, that happened in memory. */
static choir_status reopen(const choir__saver *s, const char *path, choir__st_file **read)
{
    choir_status status = choir__st_open(path, read);
    if (status != CHOIR_ERR_FORMAT)
        return status;
    char *why = choir__strdup(choir__message());
    status = choir__error(CHOIR_ERR_STATE, "%s: rank %d: the file differs from step %lld: %s",
        s->dir, s->rank, (long long)s->state.step, why);
    free(why);
    return status;
}

/* Compares the tensors of a file, and adds their number to *count. */
static choir_status prove_file(const choir__saver *s, int file, int *count)
{
    choir__st_file *read = NULL;
    char *path = choir__format("%s/%s", s->fresh, s->plan.files[file].name);
    choir_status status = reopen(s, path, &read);
    const int tensors = status == CHOIR_OK ? choir__st_count(read) : 0;
    for (int i = 0, p = 0; i < tensors && status == CHOIR_OK; i++) {
        const choir__st_tensor *t = choir__st_get(read, i);
        p = part_named(s, file, p, t->name);
        status = p < 0 ? is_other(s, t->name) : prove(s, t, p);
        p = p < 0 ? 0 : p;
    }
    *count += tensors;
    choir__st_close(read);
    free(path);
    return status;
}

choir_status choir__save_prove(const choir__saver *s)
{
    choir_status status = CHOIR_OK;
    int count = 0;
    for (int f = 0; s->know && f < s->plan.file_count && status == CHOIR_OK; f++)
        if (s->plan.files[f].owner == s->rank)
            status = prove_file(s, f, &count);
    if (status == CHOIR_OK && s->know && count != s->own_parts)
        return is_other(s, "the list of tensors");
    return status;
}

/* --- the state beside tensors --- */

/* Returns the rank whose text differs from the one that most ranks have, or -1; *known: there
 * is such a text. texts: (world, bytes). */
static int odd_one(const char *texts, size_t bytes, int world, bool *known)
{
    int most = 0, best = 0;
    for (int r = 0; r < world; r++) {
        int same = 0;
        for (int other = 0; other < world; other++)
            same += !strcmp(texts + (size_t)r * bytes, texts + (size_t)other * bytes);
        if (same > most)
            most = same, best = r;
    }
    *known = 2 * most > world;
    for (int r = 0; r < world; r++)
        if (strcmp(texts + (size_t)r * bytes, texts + (size_t)best * bytes) != 0)
            return r;
    return -1;
}

/* Compares the numbers that the training continues with. Losses may be a rank's own, and loss
 * scales a worker's. */
static choir_status compare(const choir__saver *s)
{
    enum { BYTES = CHOIR__SHA256_HEX };
    char mine[BYTES] = "", *all = choir__calloc((size_t)s->world, BYTES);
    const choir_train_state none = choir_train_state_none();
    choir_train_state same = s->state;
    bool known;
    same.loss = none.loss;
    same.eval_loss = none.eval_loss;
    same.epoch_loss = none.epoch_loss;
    same.epoch_without = none.epoch_without;
    if (s->workers) {
        same.loss_scale = none.loss_scale;
        same.scale_clean = none.scale_clean;
        same.scale_in_a_row = none.scale_in_a_row;
        same.skipped_steps = none.skipped_steps;
    }
    choir_status hashed = choir__state_digest(&same, mine),
                 status = choir_group_all_gather(s->group, mine, all, BYTES, CHOIR_U8, NULL);
    status = status == CHOIR_OK ? hashed : status;
    int odd = status == CHOIR_OK ? odd_one(all, BYTES, s->world, &known) : -1;
    if (odd >= 0)
        status = choir__error(CHOIR_ERR_STATE,
            "%s: rank %d has other numbers of the training (step, seed, place in the data) than "
            "%s: they changed in a machine's memory",
            s->dir, odd, known ? "most ranks" : "another rank");
    free(all);
    return status;
}

choir_status choir__save_note_state(choir__saver *s)
{
    choir_status status = choir__state_digest(&s->state, s->state_hash),
                 compared = s->know && s->world > 1 ? compare(s) : CHOIR_OK;
    return status == CHOIR_OK ? compared : status;
}

choir_status choir__save_prove_state(const choir__saver *s)
{
    char hash[CHOIR__SHA256_HEX];
    choir_train_state read;
    json_t *files = NULL;
    choir_status status = choir__state_read(s->fresh, &read, &files);
    if (status == CHOIR_OK)
        status = choir__state_digest(&read, hash);
    json_decref(files);
    if (status == CHOIR_ERR_IO || (status == CHOIR_OK && !strcmp(hash, s->state_hash)))
        return status;
    return is_other(s, CHOIR__STATE_FILE);
}
