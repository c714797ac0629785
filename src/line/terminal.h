/* The size of a terminal, and the columns that letters take on it. */
#ifndef CHOIR_LINE_TERMINAL_H
#define CHOIR_LINE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stores the size of the terminal that a descriptor is; it may change at any time. Returns
 * false, and stores nothing, if there is no terminal or it has no size. Either pointer may be
 * NULL. */
bool choir__terminal_size(int fd, int *columns, int *rows);

/* Returns the bytes of the letter at text < end, its code point, and its columns: 2 for the
 * wide ones of East Asian scripts and for pictographs, else 1. A byte that is no UTF-8 is a
 * letter of its own, with code 0. */
int choir__letter(const char *text, const char *end, uint32_t *code, int *columns);

/* Returns the columns that a text takes. */
int choir__columns(const char *text, size_t bytes);

#endif
