/* The struct behind the public choir_pattern. */
#ifndef CHOIR_PATTERN_WALK_H
#define CHOIR_PATTERN_WALK_H

#include <choir/pattern.h>

#include "comm/call.h"

struct choir_pattern {
    choir__kind kind;
    choir__algorithm algorithm;
    int ranks, chunks, steps;
    choir_pattern_move *moves;
    int move_count;
    uint64_t *parts; /* (steps + 1, ranks, chunks) */
};

#endif
