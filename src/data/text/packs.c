/* Packing: a document goes to the open sample with the least room that is enough for it; if
 * none has room, the fullest one is closed. At the end the pieces are sorted by sample, in one
 * pass, and the pieces of a sample keep their order. */
#include "data/text/packs.h"

#include <stdlib.h>

#include "base/base.h"

/* Returns the open pack with the least room that is enough, or a new one. */
static struct choir__open_pack *find(choir__packs *p, int64_t count)
{
    struct choir__open_pack *best = NULL, *fullest = &p->open[0];
    for (int i = 0; i < p->opened; i++) {
        struct choir__open_pack *k = &p->open[i];
        if (k->left >= count && (!best || k->left < best->left))
            best = k;
        if (k->left < fullest->left)
            fullest = k;
    }
    if (best)
        return best;
    best = p->opened < CHOIR__OPEN_PACKS ? &p->open[p->opened++] : fullest;
    *best = (struct choir__open_pack){p->packs++, p->context};
    return best;
}

static void add_piece(choir__packs *p, int64_t at, int64_t count)
{
    struct choir__open_pack *pack = find(p, count);
    CHOIR__GROW(p->piece, p->pieces);
    CHOIR__GROW(p->pack_of, p->pieces);
    p->piece[p->pieces] = (choir__packed_piece){at, count};
    p->pack_of[p->pieces++] = pack->number;
    pack->left -= count;
}

void choir__packs_add(choir__packs *p, int64_t at, int64_t count)
{
    for (int64_t done = 0; done < count; done += p->context)
        add_piece(p, at + done, choir__min(p->context, count - done));
}

/* Sorts the pieces by pack; within a pack they stay in order. */
int64_t choir__packs_end(choir__packs *p)
{
    choir__packed_piece *sorted = choir__calloc((size_t)p->pieces + 1, sizeof *sorted);
    p->first = choir__calloc((size_t)p->packs + 2, sizeof *p->first);
    int64_t *next =
        p->first + 1; /* becomes the end of each pack, the beginning of the next one */
    for (int64_t i = 0; i < p->pieces; i++)
        if (p->pack_of[i] + 1 < p->packs)
            next[p->pack_of[i] + 1]++;
    for (int64_t k = 1; k < p->packs; k++)
        next[k] += next[k - 1];
    for (int64_t i = 0; i < p->pieces; i++)
        sorted[next[p->pack_of[i]]++] = p->piece[i];
    free(p->piece);
    free(p->pack_of);
    p->piece = sorted;
    p->pack_of = NULL;
    return p->packs;
}

bool choir__packs_at(
    const choir__packs *p, int64_t sample, int64_t number, choir__packed_piece *piece)
{
    int64_t at = p->first[sample] + number;
    if (at >= p->first[sample + 1])
        return false;
    *piece = p->piece[at];
    return true;
}

void choir__packs_free(choir__packs *p)
{
    free(p->piece);
    free(p->pack_of);
    free(p->first);
    *p = (choir__packs){0};
}
