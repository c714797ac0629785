/* Patterns: the data movement of a collective, step by step, without moving any data.
 *
 * An algorithm cuts the data into chunks. In each step ranks send chunks to each other; a rank
 * adds an arriving chunk to its own chunk, or replaces its own. All moves of a step happen at
 * the same time. Patterns serve to learn, to draw, and to count the cost of an algorithm.
 *
 * Threads: any, as a pattern never changes. */
#ifndef CHOIR_PATTERN_H
#define CHOIR_PATTERN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_pattern choir_pattern;

typedef struct choir_pattern_move {
    int step, from, to; /* from, to: ranks */
    int chunk, chunks;  /* first chunk that is sent, and number of consecutive chunks */
    bool added;         /* true: added to the chunk of `to`; false: replaces it */
} choir_pattern_move;

/**
 * Lists the moves of a collective on large data, with rank 0 as its root.
 *
 * @param collective  "all_reduce", "reduce", "reduce_scatter", "all_gather", "gather",
 *                    "scatter", "broadcast" or "all_to_all" (chunk: from * ranks + to)
 * @param algorithm   a name as in choir_group_algorithm
 * @param ranks       1 to 64
 * @param nodes       number of machines, over which the ranks are distributed in equal runs; 1
 *                    except for "hierarchical"
 *
 * The caller frees the pattern. Errors: argument; unsupported (the algorithm does not
 * implement this collective).
 */
CHOIR_CHECKED choir_status choir_pattern_new(const char *collective, const char *algorithm,
    int ranks, int nodes, choir_pattern **pattern);
void choir_pattern_free(choir_pattern *pattern); /* NULL is fine */

int choir_pattern_ranks(const choir_pattern *pattern);
int choir_pattern_chunks(const choir_pattern *pattern);
int choir_pattern_steps(const choir_pattern *pattern);

/** Returns the moves in the order of the steps, and their number in *count; the pattern owns
 * them. */
const choir_pattern_move *choir_pattern_moves(const choir_pattern *pattern, int *count);

/** Returns a bit per rank: bit r is set if rank r's own data are in the chunk that `rank` holds
 * before `step` (after all steps: step = steps). A complete sum has all bits. */
uint64_t choir_pattern_parts(const choir_pattern *pattern, int step, int rank, int chunk);

/** Prints the steps in words and, up to 16 ranks and chunks, the contents of each rank. Errors:
 * I/O. */
CHOIR_CHECKED choir_status choir_pattern_print(const choir_pattern *pattern, FILE *file);

/** Draws the pattern, for at most 16 ranks and 64 chunks. Errors: unsupported, I/O. */
CHOIR_CHECKED choir_status choir_pattern_svg(const choir_pattern *pattern, const char *path);

#ifdef __cplusplus
}
#endif
#endif
