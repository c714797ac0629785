/* The work of a call, counted on every machine alike, in place of its time.
 *
 * A step is a basic block of the code under test, which gcc instruments
 * (-fsanitize-coverage=trace-pc), or a byte that one of libc's functions looks at or moves for
 * it; of a library that is asked to parse a text, a byte of that text. Memory is the
 * most that all libraries together have allocated. */
#ifndef CHOIR_COST_COUNT_H
#define CHOIR_COST_COUNT_H

#include <stddef.h>
#include <stdint.h>

typedef struct cost {
    uint64_t steps;
    size_t memory; /* bytes, at most */
} cost;

/* Sets all counters to zero. */
void cost_begin(void);
/* Returns the counters. */
cost cost_end(void);

#endif
