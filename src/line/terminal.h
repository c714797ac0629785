/* The size of a terminal, and the columns that letters take on it. */
#ifndef CHOIR_LINE_TERMINAL_H
#define CHOIR_LINE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Stores the size of the terminal that a descriptor is; it may change at any time. Returns
 * false, and stores nothing, if there is no terminal or it has no size. Either pointer may be
 * NULL. */
bool choir__terminal_size(int fd, int *columns, int *rows);

/* Returns the bytes of the letter at text < end, its code point, and its columns: 2 for the
 * wide ones of East Asian scripts and for pictographs, else 1. A byte that is no UTF-8 is a
 * letter of its own, with code 0. */
int choir__letter(const char *text, const char *end, uint32_t *code, int *columns);

/* Returns the columns that a text takes. Tests call it, too. */
int choir__columns(const char *text, size_t bytes);

/* Texts for a terminal that is narrower than their lines: a line is broken at a blank or behind
 * a comma, where the terminal would break it in the middle of a word. Elsewhere, as in a file
 * or a pipe, every line stays whole. */

/* Returns the columns of the terminal at the descriptor, or INT_MAX if it is not a terminal. */
int choir__fold_columns(int fd);

/* Returns a copy of the text with each line folded to `columns`. The rest of a line is
 * indented by two blanks more than its beginning. A word that is longer stays whole. The caller
 * frees it. */
char *choir__fold(const char *text, size_t bytes, int columns);

/* A text that is printed when it is complete, so that the lines of several processes stay
 * apart.
 */
typedef struct choir__paragraph {
    FILE *out; /* the text is printed here */
    char *text;
    size_t bytes;
} choir__paragraph;

void choir__paragraph_begin(choir__paragraph *p);
/* Prints the paragraph, folded if `to` is a terminal. */
void choir__paragraph_end(choir__paragraph *p, FILE *to);

#endif
