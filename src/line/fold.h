/* Texts for a terminal that is narrower than their lines: a line is broken at a blank or behind
 * a comma, where the terminal would break it in the middle of a word. Elsewhere, as in a file
 * or a pipe, every line stays whole. */
#ifndef CHOIR_LINE_FOLD_H
#define CHOIR_LINE_FOLD_H

#include <stddef.h>
#include <stdio.h>

/* Returns the columns of the terminal at the descriptor, or INT_MAX if it is not a terminal. */
int choir__fold_columns(int fd);

/* Returns a copy of the text with each line folded to `columns`. The rest of a line is
 * indented by two blanks more than its beginning. A word that is longer stays whole. The caller
 * frees it. */
char *choir__fold(const char *text, size_t bytes, int columns);

/* A text that is printed when it is complete, so that the lines of several processes stay
 * apart. */
typedef struct choir__paragraph {
    FILE *out; /* the text is printed here */
    char *text;
    size_t bytes;
} choir__paragraph;

void choir__paragraph_begin(choir__paragraph *p);
/* Prints the paragraph, folded if `to` is a terminal. */
void choir__paragraph_end(choir__paragraph *p, FILE *to);

#endif
