/* Patterns: how data moves in a collective, step by step, without moving any.
 *
 * An algorithm cuts the data into chunks. In each step ranks send chunks to each other; what
 * comes to a rank is added to what it has, or takes its place. All moves of a step happen at
 * the same time. To learn from, to draw, and to count what an algorithm costs.
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
    int step, from, to; /* ranks */
    int chunk, chunks;  /* which are sent: chunk, chunk + 1, ... */
    bool added;         /* to what `to` has; else it takes its place */
} choir_pattern_move;

/**
 * The moves of a collective on large data, with rank 0 as its root.
 *
 * @param collective  "all_reduce", "reduce", "reduce_scatter", "all_gather", "gather",
 *                    "scatter", "broadcast" or "all_to_all" (chunk: from * ranks + to)
 * @param algorithm   a name as in choir_group_algorithm
 * @param ranks       1 to 64
 * @param nodes       the machines that the ranks are dealt to in equal runs; 1 but for
 *                    "hierarchical"
 *
 * The caller frees the pattern. Errors: argument; unsupported (the algorithm does not do this
 * collective).
 */
choir_status choir_pattern_new(const char *collective, const char *algorithm, int ranks,
    int nodes, choir_pattern **pattern);
void choir_pattern_free(choir_pattern *pattern); /* NULL is fine */

int choir_pattern_ranks(const choir_pattern *pattern);
int choir_pattern_chunks(const choir_pattern *pattern);
int choir_pattern_steps(const choir_pattern *pattern);

/** In the order of the steps, count of them; the pattern owns them. */
const choir_pattern_move *choir_pattern_moves(const choir_pattern *pattern, int *count);

/** Bit r: rank r's own data are in what `rank` has of `chunk` before `step` (after all steps:
 * step = steps). All bits of a sum that is whole. */
uint64_t choir_pattern_parts(const choir_pattern *pattern, int step, int rank, int chunk);

/** The steps in words and, up to 16 ranks and chunks, what each rank has. Errors: I/O. */
choir_status choir_pattern_print(const choir_pattern *pattern, FILE *file);

/** A picture, at most 16 ranks and 64 chunks. Errors: unsupported, I/O. */
choir_status choir_pattern_svg(const choir_pattern *pattern, const char *path);

#ifdef __cplusplus
}
#endif
#endif
