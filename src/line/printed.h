/* Text of files, studies, models and other programs, as it is printed: it neither commands a
 * terminal (choir__clean) nor, as a cell of a table, a spreadsheet. JSON keeps such text as it
 * is, in escapes: choir__text_string of base/text.h. */
#ifndef CHOIR_LINE_PRINTED_H
#define CHOIR_LINE_PRINTED_H

#include <stdio.h>

/* Returns a copy that is cleaned and one line long, with '?' for line ends and tabs; the caller
 * frees it. Tests call it, too. */
char *choir__printed(const char *text);
/* Prints such a copy. width: as in printf's %*s; negative: to the left. */
void choir__print_word(FILE *out, const char *text, int width);

/* Prints a text as a cell of CSV: cleaned, and in quotes where it has a comma, a quote or a
 * line's end. An apostrophe goes before a text that spreadsheets would take for a formula: one
 * that begins with =, +, -, @, a tab or a line's end, and is no number. */
void choir__print_cell(FILE *out, const char *text);

/* Returns a stream that cleans a text, written in pieces that may end within a character, and
 * passes it on to `to`; NULL if there is no memory. fclose leaves `to` open. */
FILE *choir__printed_stream(FILE *to);

#endif
