/* Worst cases of the readers of files, at any size. Most are a beginning, n times a unit, and
 * an end. */
#ifndef CHOIR_COST_CASES_H
#define CHOIR_COST_CASES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../fuzz/recipe.h"

/* The harnesses of tests/fuzz, whose names CMake writes to readers.inc: read_NAME. */
typedef int cost_read(const uint8_t *data, size_t size);
#define READER(name) cost_read read_##name;
#include "readers.inc"
#undef READER

enum { COST_FREE = 4 << 20, COST_MEMORY = 128 };

typedef struct cost_case {
    const char *name;
    cost_read *read;                /* a harness, or alike */
    const char *begin, *unit, *end; /* in unit, %zu is the unit's number */
    size_t n;                       /* units of the smaller one of two inputs */
    bool falling;                   /* numbers fall */
    int memory; /* most bytes per byte of input, beside COST_FREE; 0: COST_MEMORY */
    void (*make)(blob *input, const struct cost_case *c, size_t n); /* NULL: as above */
} cost_case;

/* Appends the beginning, n units and the end. */
static inline void append_usual(blob *input, const cost_case *c, size_t n)
{
    char unit[512];
    append_text(input, c->begin);
    for (size_t i = 0; i < n; i++) {
        size_t number = c->falling ? n - i : i;
        snprintf(unit, sizeof unit, c->unit, number, number, number);
        append_text(input, unit);
    }
    append_text(input, c->end);
}

typedef struct cost_table {
    const cost_case *cases;
    size_t count;
} cost_table;

#define COST_TABLE(array)                                                                      \
    {                                                                                          \
        array, sizeof(array) / sizeof *(array)                                                 \
    }

extern const cost_table cost_records, cost_weights, cost_tokenizers, cost_studies, cost_images,
    cost_words, cost_messages, cost_chats, cost_gguf, cost_forecasts;

#endif
