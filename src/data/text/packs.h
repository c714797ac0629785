/* Samples of a fixed length that are filled with whole documents.
 *
 * A document goes to the open sample that it fills best. Few samples are open at a time: if a
 * document fits none of them, the fullest one is closed. Documents that are longer than a
 * sample are cut into pieces. */
#ifndef CHOIR_DATA_PACKS_H
#define CHOIR_DATA_PACKS_H

#include <stdbool.h>
#include <stdint.h>

enum { CHOIR__OPEN_PACKS = 64 };

/* Positions [at, at + count) of the tokens; each predicts the next token. */
typedef struct choir__packed_piece {
    int64_t at, count;
} choir__packed_piece;

typedef struct choir__packs {
    int64_t context; /* set by the caller, before the first document */
    choir__packed_piece *piece;
    int64_t *pack_of; /* (pieces) */
    int64_t pieces;
    int64_t packs;
    int64_t *first; /* (packs + 1) each pack's first piece, once packing has ended */
    struct choir__open_pack {
        int64_t number, left;
    } open[CHOIR__OPEN_PACKS];
    int opened;
} choir__packs;

/* Adds a document: `count` positions from `at` on. Tests call it, too. */
void choir__packs_add(choir__packs *p, int64_t at, int64_t count);
/* Ends packing; returns the number of samples. Tests call it, too. */
int64_t choir__packs_end(choir__packs *p);
/* Stores piece `number` of a sample; false if it has fewer. Tests call it, too. */
bool choir__packs_at(
    const choir__packs *p, int64_t sample, int64_t number, choir__packed_piece *piece);
/* Tests call it, too. */
void choir__packs_free(choir__packs *p);

#endif
