/* A console is standard output or standard error. It buffers text that the descriptor cannot
 * accept yet, so the agent never blocks on it. */
#ifndef CHOIR_LAUNCH_AGENT_CONSOLE_H
#define CHOIR_LAUNCH_AGENT_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct choir__console {
    int fd;
    int lost; /* errno, once it accepts no more; 0: it still does */
    bool colour;
    char *pending; /* freed by the owner */
    size_t used, room;
} choir__console;

void choir__console_open(choir__console *console, int fd);
void choir__console_put(choir__console *console, const char *text, size_t bytes);

/* Writes part of the pending text. Does not block if poll has reported room. */
void choir__console_write(choir__console *console);
void choir__console_flush(choir__console *console); /* blocks until all is written */

/* Appends to a growing text; *used of *room bytes are in use. */
void choir__append(char **text, size_t *used, size_t *room, const char *more, size_t bytes);

#endif
