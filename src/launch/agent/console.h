/* Standard output or error, which may take nothing for now: a console keeps what it could not
 * write yet, so that the agent need not wait for it. */
#ifndef CHOIR_LAUNCH_AGENT_CONSOLE_H
#define CHOIR_LAUNCH_AGENT_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct choir__console {
    int fd;
    int lost; /* why it takes no more: errno; 0: it does */
    bool colour;
    char *pending; /* the owner frees it */
    size_t used, room;
} choir__console;

void choir__console_open(choir__console *console, int fd);
void choir__console_put(choir__console *console, const char *text, size_t bytes);

/* Some of what is pending, without waiting where poll has said that there is room. */
void choir__console_write(choir__console *console);
void choir__console_flush(choir__console *console); /* waits */

/* Text that grows: used of room bytes. */
void choir__append(char **text, size_t *used, size_t *room, const char *more, size_t bytes);

#endif
