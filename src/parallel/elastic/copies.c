/* Writes copies: this rank's boxes, behind a head with the step, the generation and a hash of
 * the training, into its two files in turn. A flag in the head is cleared first and set last,
 * so a copy that was interrupted does not count. Tensors that every rank has alike are divided
 * among the ranks of a machine. */
#include "parallel/elastic/copies_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/board/board.h"
#include "base/hash.h"
#include "tensor/strategy.h"

/* --- opening --- */

/* Extends the hash by this process's command line: another command is another training. */
static uint64_t add_command(uint64_t hash)
{
    char part[4096];
    FILE *f = fopen("/proc/self/cmdline", "re");
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;)
        hash = choir__hash_bytes(hash, part, n);
    if (f)
        fclose(f);
    return hash;
}

static uint64_t print_of(const choir_elastic *e, const choir__items *items)
{
    uint64_t hash = add_command(CHOIR__HASH_SEED);
    hash = choir__hash_step(hash, (uint64_t)e->env->microbatches);
    hash = choir__hash_step(hash, e->opts.state_bytes);
    for (int i = 0; i < items->count; i++) {
        const choir__item *item = &items->list[i];
        hash = choir__hash_text(hash, item->name);
        hash = choir__hash_step(hash, (uint64_t)item->dtype);
        hash = choir__hash_bytes(hash, &item->whole, sizeof item->whole);
    }
    return hash;
}

/* Returns whether this rank has the tensor as a whole. Buffers differ between ranks. */
static bool is_whole(const choir__item *item)
{
    choir__box_region region;
    if (item->box_count != 1 || item->buffer)
        return false;
    region = choir__box_region_of(&item->boxes[0]);
    return choir__box_region_is_whole(&region, item->whole);
}

/* Finds the tensors that all ranks have as a whole, with the same numbers. */
static choir_status find_common(choir__copies *c, const choir__items *items)
{
    const choir_elastic *e = c->elastic;
    uint8_t *whole = choir__calloc((size_t)items->count + 1, sizeof *whole);
    bool differ = choir__strategies_may_part(e->run);
    c->items = items->count;
    c->common = choir__calloc((size_t)items->count + 1, sizeof *c->common);
    for (int i = 0; i < items->count; i++)
        whole[i] = !differ && is_whole(&items->list[i]);
    choir_status status =
        choir_group_all_reduce(e->env->group, whole, items->count, CHOIR_U8, CHOIR_MIN, NULL);
    for (int i = 0; i < items->count; i++)
        c->common[i] = whole[i];
    free(whole);
    return status;
}

static choir_status open_keeper(choir__keeper *keeper)
{
    if (choir__keeper_open(keeper))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "the memory for copies of the ranks' state, which the agent of 'choir run' keeps, "
        "cannot be opened on this rank's machine");
}

/* The environment may be lost on the way to a rank, and /proc may show other processes: in a
 * container, say. No agent keeps anything under other launchers. */
choir_status choir__copies_agents(const choir_elastic *e, bool *kept)
{
    choir__keeper keeper;
    uint8_t none = !choir__keeper_is_there();
    *kept = false;
    choir_status status =
        choir_group_all_reduce(e->env->group, &none, 1, CHOIR_U8, CHOIR_MIN, NULL);
    if (status != CHOIR_OK || none)
        return status;
    choir_status mine = open_keeper(&keeper);
    choir__keeper_close(&keeper);
    return choir__copies_agree(e, mine, kept);
}

/* Finds this machine's slots, and this rank's place among its ranks. */
static choir_status find_slots(choir__copies *c)
{
    const choir_elastic *e = c->elastic;
    const choir__crew *crew = choir__crew_mine();
    if (crew) {
        c->generation = e->env->generation;
        c->fds = (const int(*)[2])crew->copies;
        c->slots = crew->world;
        c->own = c->local_rank = e->env->rank;
        c->local_world = e->env->world;
        return CHOIR_OK;
    }
    c->kept = true;
    choir_status status = open_keeper(&c->keeper);
    if (status != CHOIR_OK)
        return status;
    c->generation = c->keeper.generation;
    c->fds = (const int(*)[2])c->keeper.fds;
    c->slots = c->keeper.own + c->keeper.others;
    c->own = c->local_rank = c->keeper.local_rank;
    c->local_world = c->keeper.own;
    return CHOIR_OK;
}

/* A new copy must not overwrite a copy that the ranks would continue from. */
static void spare_found(choir__copies *c)
{
    for (int r = 0; r < c->set.world; r++) {
        const choir__copy_place *p = &c->set.places[r];
        if (p->slot >= 0)
            c->next[p->slot] = (uint8_t)(1 - p->half);
    }
}

choir_status choir__copies_open(choir_elastic *e, choir__copies **made)
{
    choir__items items = {0};
    choir__copies *c = choir__calloc(1, sizeof *c);
    c->elastic = e;
    choir_status status = find_slots(c);
    if (status == CHOIR_OK)
        status = choir__items_collect(&items, e->t.module, e->t.optim);
    if (status == CHOIR_OK) {
        c->print = print_of(e, &items);
        status = find_common(c, &items);
    }
    choir__items_free(&items);
    if (status == CHOIR_OK)
        status = choir__copies_find(c, &c->set);
    if (status == CHOIR_OK && c->kept)
        status = choir__courier_new(c, &c->courier);
    spare_found(c);
    if (status == CHOIR_OK)
        *made = c;
    else
        choir__copies_close(c);
    return status;
}

void choir__copies_close(choir__copies *c)
{
    if (!c)
        return;
    choir__courier_free(c->courier);
    for (int i = 0; i < 2; i++)
        if (c->memory[i].at)
            munmap(c->memory[i].at, c->memory[i].bytes);
    if (c->kept)
        choir__keeper_close(&c->keeper);
    choir__copy_set_free(&c->set);
    free(c->common);
    free(c);
}

bool choir__copies_found(const choir__copies *c, int64_t *steps)
{
    *steps = c->set.steps;
    return c->set.world > 0;
}

/* --- writing --- */

/* Returns whether this rank copies a tensor that every rank has. */
static bool is_my_turn(const choir__copies *c, int item)
{
    return item % c->local_world == c->local_rank;
}

/* Adds the boxes of one kind to the list. */
static void add_boxes(const choir__copies *c, const choir__items *items, bool common,
    choir__copy_box *boxes, choir__copy_head *head)
{
    for (int i = 0; i < items->count; i++) {
        const choir__item *item = &items->list[i];
        if (c->common[i] != common || (common && !is_my_turn(c, i)))
            continue;
        for (int b = 0; b < item->box_count; b++) {
            choir__box_region region = choir__box_region_of(&item->boxes[b]);
            size_t bytes = (size_t)choir__box_region_count(&region, item->whole.ndim) *
                           choir_dtype_size(item->dtype);
            boxes[head->boxes++] = (choir__copy_box){i, b, region, head->bytes, bytes};
            head->bytes += choir__copy_align(bytes);
        }
    }
}

/* Makes a list of this rank's boxes, and the copy's head. */
static choir__copy_box *list_boxes(
    const choir__copies *c, const choir__items *items, choir__copy_head *head)
{
    const choir_elastic *e = c->elastic;
    int n = 0;
    for (int i = 0; i < items->count; i++)
        if (!c->common[i] || is_my_turn(c, i))
            n += items->list[i].box_count;
    choir__copy_box *boxes = choir__calloc((size_t)n + 1, sizeof *boxes);
    head->own_bytes = e->opts.state_bytes;
    head->own_at = choir__copy_align(sizeof *head + (size_t)n * sizeof *boxes);
    head->bytes = head->own_at + choir__copy_align(head->own_bytes);
    add_boxes(c, items, false, boxes, head);
    head->parts = head->boxes;
    head->parts_bytes = head->bytes;
    add_boxes(c, items, true, boxes, head);
    return boxes;
}

static choir_status write_boxes(const choir_elastic *e, const choir__items *items,
    const choir__copy_head *head, const choir__copy_box *boxes, char *at)
{
    choir_status status = CHOIR_OK;
    memcpy(at + sizeof *head, boxes, (size_t)head->boxes * sizeof *boxes);
    if (e->opts.state_bytes)
        memcpy(at + head->own_at, e->opts.state, e->opts.state_bytes);
    for (int i = 0; i < head->boxes && status == CHOIR_OK; i++) {
        status = choir__item_read(&items->list[boxes[i].item], boxes[i].box, at + boxes[i].at);
        choir__board_beat();
    }
    return status;
}

/* Gives back the memory of a slot that no rank of this generation writes to. */
static void empty(const choir__copies *c, int slot)
{
    for (int half = 0; half < 2; half++)
        if (ftruncate(c->fds[slot][half], 0) < 0) {
            /* the file keeps its memory */
        }
}

/* The copies of the generation before are not needed any more once this one has two: the memory
 * of ranks that are no more goes back. */
static void drop_others(const choir__copies *c)
{
    int used = c->local_world + (c->courier ? choir__courier_slots(c->courier) : 0);
    if (c->local_rank != 0 || c->taken != 2)
        return;
    for (int slot = used; slot < c->slots; slot++)
        empty(c, slot);
}

/* Returns whether a file is one of the copies that were found. */
static bool was_found(const choir__copies *c, int slot, int half)
{
    for (int r = 0; r < c->set.world; r++)
        if (c->set.places[r].slot == slot && c->set.places[r].half == half)
            return true;
    return false;
}

/* The ranks of a machine divide its slots among themselves. Copies that were found stay, since
 * a job without checkpoints has nothing else to continue from, but a file that has already been
 * extended for the next copy shrinks to this one's length. */
void choir__copies_drop(const choir__copies *c)
{
    for (int slot = c->local_rank; slot < c->slots; slot += c->local_world)
        for (int half = 0; half < 2; half++) {
            choir__copy_head head = {0};
            int fd = c->fds[slot][half];
            bool stays = was_found(c, slot, half);
            if (stays && pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
                continue;
            if (ftruncate(fd, (off_t)head.bytes) < 0) {
                /* the file keeps its memory */
            }
        }
}

static choir_status number(const choir_elastic *e, choir__copied *n)
{
    *n = (choir__copied){.steps = e->steps, .optim_steps = e->optim_steps};
    return e->t.scaler ? choir_scaler_get(e->t.scaler, &n->scale) : CHOIR_OK;
}

/* Writes a copy, whose head is complete but for its parts, to memory. */
static choir_status write_copy(
    choir__copies *c, const choir__items *items, choir__copy_head *head)
{
    int half = c->next[c->own];
    choir__copy_memory *m = &c->memory[half];
    choir__copy_box *boxes = list_boxes(c, items, head);
    choir_status status = choir__copy_make_room(m, c->fds[c->own][half], head->bytes);
    if (status == CHOIR_OK) {
        choir__copy_head *there = (choir__copy_head *)m->at;
        atomic_store(&there->complete, 0);
        status = write_boxes(c->elastic, items, head, boxes, m->at);
        memcpy((char *)there + sizeof there->complete, (char *)head + sizeof head->complete,
            sizeof *head - sizeof head->complete);
        if (status == CHOIR_OK)
            atomic_store(&there->complete, 1);
    }
    free(boxes);
    if (status == CHOIR_OK && c->courier)
        choir__courier_send(c->courier, m->at, head->parts_bytes);
    c->next[c->own] = (uint8_t)(1 - half);
    return status;
}

void choir__copies_withdraw(choir__copies *c)
{
    for (int half = 0; half < 2; half++)
        if (c->memory[half].at)
            atomic_store(&((choir__copy_head *)c->memory[half].at)->complete, 0);
}

/* Both files of each slot get their memory now, so that no step fails for want of it. */
choir_status choir__copies_prepare(choir__copies *c, bool *ready)
{
    choir__items items;
    choir__copy_head head = {0};
    choir_status mine = choir__items_collect(&items, c->elastic->t.module, c->elastic->t.optim);
    if (mine == CHOIR_OK)
        free(list_boxes(c, &items, &head));
    choir__items_free(&items);
    *ready = false;
    choir_status status =
        c->courier ? choir__courier_lengths(c->courier, head.parts_bytes) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    size_t lack = choir__copy_lack(c->fds[c->own], head.bytes) +
                  (c->courier ? choir__courier_lack(c->courier) : 0);
    status = choir__copies_fit(c, lack, &mine);
    if (status != CHOIR_OK)
        return status;
    if (mine == CHOIR_OK)
        mine = choir__copy_make_slot(c->memory, c->fds[c->own], head.bytes);
    if (mine == CHOIR_OK && c->courier)
        mine = choir__courier_start(c->courier);
    return choir__copies_agree(c->elastic, mine, ready);
}

choir_status choir__copies_take(choir__copies *c)
{
    const choir_elastic *e = c->elastic;
    choir__items items;
    choir__copy_head head = {.generation = c->generation,
        .print = c->print,
        .rank = e->env->rank,
        .world = e->env->world};
    choir_status status = choir__copies_settle(c);
    if (status == CHOIR_OK)
        status = number(e, &head.numbers);
    if (status == CHOIR_OK)
        status = choir__items_collect(&items, e->t.module, e->t.optim);
    if (status != CHOIR_OK)
        return status;
    head.items = items.count;
    status = write_copy(c, &items, &head);
    choir__items_free(&items);
    c->taken++;
    drop_others(c);
    return status;
}

choir_status choir__copies_settle(choir__copies *c)
{
    return c->courier ? choir__courier_wait(c->courier) : CHOIR_OK;
}
