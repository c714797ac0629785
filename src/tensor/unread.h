/* Errors that no program has read.
 *
 * An error counts as read when the program asks for a scope's status or clears it, or when it
 * reads this thread's message (choir_error_message, choir_check) after the error was noted.
 *
 * A scope that closes with an unread error returns it once more. If the program continues, or
 * ends, without having read it even then, one line on standard error says so: one per run,
 * since a program that ignores an error tends to make it in every step. */
#ifndef CHOIR_UNREAD_H
#define CHOIR_UNREAD_H

#include "tensor/run.h"

/* Returns words for messages: "step 41", "a scope inside step 41". */
const char *choir__scope_words(const choir_scope *scope);

/* The scope closes with this thread's message as its error. */
void choir__unread(choir_scope *scope);
/* Writes the line about the last such scope of this thread, unless its error has been read. */
void choir__unread_tell(void);

#endif
