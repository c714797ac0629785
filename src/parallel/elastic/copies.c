/* Writing and finding copies: see copies.h. copies_restore.c reads them. */
#include "parallel/elastic/copies_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

/* --- finding --- */

bool choir__copies_find(choir__copy_set *set)
{
    const choir__crew *crew = choir__crew_mine();
    uint64_t newest = 0;
    *set = (choir__copy_set){.world = 0};
    for (int r = 0; r < crew->world; r++)
        for (int i = 0; i < 2; i++) {
            choir__copy_head *head = &set->heads[r][i];
            ssize_t got = pread(crew->copies[r][i], head, sizeof *head, 0);
            if (got != (ssize_t)sizeof *head)
                *head = (choir__copy_head){.complete = 0};
        }
    /* the newest generation of which all ranks have a copy */
    for (int r = 0; r < 2 * crew->world; r++) {
        const choir__copy_head *head = &set->heads[r / 2][r % 2];
        if (head->complete && head->generation > newest && choir__copies_fit(set, head))
            newest = head->generation;
    }
    return newest > 0;
}

/* Returns the newest copy of a rank in a generation; NULL: it has none. */
static const choir__copy_head *newest_of(
    const choir__copy_set *set, int rank, uint64_t generation)
{
    const choir__copy_head *best = NULL;
    for (int i = 0; i < 2; i++) {
        const choir__copy_head *head = &set->heads[rank][i];
        if (head->complete && head->generation == generation &&
            (!best || head->numbers.steps > best->numbers.steps))
            best = head;
    }
    return best;
}

/* Notes in the set the step of which all ranks of the head's generation have a copy, and which
 * copies these are. */
bool choir__copies_fit(choir__copy_set *set, const choir__copy_head *head)
{
    uint64_t generation = head->generation;
    int world = head->world, at[CHOIR__MEMBERS_MAX];
    int64_t steps = INT64_MAX;
    for (int r = 0; r < world; r++) {
        const choir__copy_head *newest = newest_of(set, r, generation);
        if (!newest)
            return false;
        steps = choir__min(steps, newest->numbers.steps);
    }
    for (int r = 0; r < world; r++) {
        at[r] = -1;
        for (int i = 0; i < 2; i++) {
            const choir__copy_head *h = &set->heads[r][i];
            if (h->complete && h->generation == generation && h->numbers.steps == steps)
                at[r] = i;
        }
        if (at[r] < 0)
            return false;
    }
    set->world = world;
    memcpy(set->at, at, sizeof at);
    return true;
}

bool choir__copies_exist(void)
{
    choir__copy_set set;
    return choir__crew_mine() && choir__crew_mine()->rebuild && choir__copies_find(&set);
}

/* --- writing --- */

/* Makes a list of this rank's boxes; *bytes receives the size of a copy. */
static choir__copy_box *list_boxes(
    const choir_elastic *e, const choir__items *items, int *count, size_t *bytes)
{
    choir__copy_box *boxes = NULL;
    int n = 0;
    for (int i = 0; i < items->count; i++)
        n += items->list[i].box_count;
    boxes = choir__calloc((size_t)n + 1, sizeof *boxes);
    size_t at = choir__copy_own(n) + choir__copy_align(e->opts.state_bytes);
    n = 0;
    for (int i = 0; i < items->count; i++)
        for (int b = 0; b < items->list[i].box_count; b++) {
            const choir__item *item = &items->list[i];
            choir__box_region region = choir__box_region_of(&item->boxes[b]);
            boxes[n++] = (choir__copy_box){i, b, region, at};
            at += choir__copy_align((size_t)choir__box_region_count(&region, item->whole.ndim) *
                                    choir_dtype_size(item->dtype));
        }
    *count = n;
    *bytes = at;
    return boxes;
}

/* Gives the memfd at least `bytes` bytes of memory, and maps it. */
static choir_status make_room(choir__copy_memory *m, int fd, size_t bytes)
{
    if (m->bytes >= bytes)
        return CHOIR_OK;
    if (m->at)
        munmap(m->at, m->bytes);
    m->at = NULL;
    m->bytes = 0;
    int why;
    do
        why = posix_fallocate(fd, 0, (off_t)bytes);
    while (why == EINTR);
    void *at = why ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return choir__error(CHOIR_ERR_MEMORY,
            "no %zu bytes of memory for a copy of this rank's state: %s", bytes,
            choir__why(why ? why : errno));
    m->at = at;
    m->bytes = bytes;
    return CHOIR_OK;
}

static choir_status write_boxes(const choir_elastic *e, const choir__items *items,
    const choir__copy_box *boxes, int count, char *at)
{
    choir_status status = CHOIR_OK;
    memcpy(at + sizeof(choir__copy_head), boxes, (size_t)count * sizeof *boxes);
    if (e->opts.state_bytes)
        memcpy(at + choir__copy_own(count), e->opts.state, e->opts.state_bytes);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = choir__item_read(&items->list[boxes[i].item], boxes[i].box, at + boxes[i].at);
    return status;
}

/* The copies of the generation before are not needed any more once this one has two: the memory
 * of ranks that are no more goes back. */
static void drop_others(const choir_elastic *e)
{
    const choir__crew *crew = choir__crew_mine();
    if (e->env->rank != 0 || e->copies_taken != 2)
        return;
    for (int r = e->env->world; r < crew->world; r++)
        for (int i = 0; i < 2; i++)
            if (ftruncate(crew->copies[r][i], 0) < 0) {
                /* it keeps its memory */
            }
}

/* Returns which of the two memfds of this rank a new copy may overwrite: not the one that the
 * ranks would go on from. */
static int which(const choir_elastic *e)
{
    choir__copy_set set;
    if (e->copies_taken)
        return (e->copy_last + 1) % 2;
    bool found = choir__copies_find(&set);
    return found && e->env->rank < set.world ? 1 - set.at[e->env->rank] : 0;
}

static choir_status number(const choir_elastic *e, choir__copied *n)
{
    *n = (choir__copied){.steps = e->steps, .optim_steps = e->optim_steps};
    return e->t.scaler ? choir_scaler_get(e->t.scaler, &n->scale) : CHOIR_OK;
}

choir_status choir__copies_take(choir_elastic *e)
{
    choir__items items;
    choir__copied numbers;
    int count, to = which(e), fd = choir__crew_mine()->copies[e->env->rank][to];
    size_t bytes;
    choir__copy_memory *m = &e->copies[to];
    choir_status status = number(e, &numbers);
    if (status == CHOIR_OK)
        status = choir__items_collect(&items, e->t.module, e->t.optim);
    if (status != CHOIR_OK)
        return status;
    choir__copy_box *boxes = list_boxes(e, &items, &count, &bytes);
    choir__copy_head head = {.generation = e->env->generation,
        .numbers = numbers,
        .world = e->env->world,
        .items = items.count,
        .boxes = count,
        .own_bytes = e->opts.state_bytes};
    status = make_room(m, fd, bytes);
    if (status == CHOIR_OK) {
        choir__copy_head *there = (choir__copy_head *)m->at;
        atomic_store(&there->complete, 0);
        status = write_boxes(e, &items, boxes, count, m->at);
        memcpy((char *)there + sizeof there->complete, (char *)&head + sizeof head.complete,
            sizeof head - sizeof head.complete);
        if (status == CHOIR_OK)
            atomic_store(&there->complete, 1);
    }
    free(boxes);
    choir__items_free(&items);
    e->copy_last = to;
    e->copies_taken++;
    drop_others(e);
    return status;
}

size_t choir__copies_bytes(const choir_elastic *e)
{
    return e->copies[0].bytes + e->copies[1].bytes;
}

void choir__copies_close(choir_elastic *e)
{
    for (int i = 0; i < 2; i++)
        if (e->copies[i].at)
            munmap(e->copies[i].at, e->copies[i].bytes);
}
