/* The door of a server: who is inside, since when, and whether the server knows them.
 *
 * Strangers can connect, too, and hold their connections open as long as they like. So there is
 * always room for one more: where all places are taken, the connection that has been unknown
 * for the longest time is closed. And a request has a time limit as a whole, not only for
 * silence.
 *
 * Threads: all functions may be called from any thread. */
#ifndef CHOIR_RECORD_HTTP_DOOR_H
#define CHOIR_RECORD_HTTP_DOOR_H

#include <stdbool.h>

typedef struct choir__door choir__door;
typedef struct choir__guest choir__guest;

/* Returns a door for up to `places` connections; one that is unknown for limit_s seconds is
 * closed. NULL: no thread can be started. */
choir__door *choir__door_open(int places, double limit_s);
/* All guests have left. NULL is fine. */
void choir__door_close(choir__door *door);

/* Makes room for a connection that waits to be let in; returns false if all guests are known.
 */
bool choir__door_make_room(choir__door *door);

/* Notes a connection by its socket, and its end, after which the socket may be closed. Returns
 * NULL if there is no place. */
choir__guest *choir__door_enter(choir__door *door, int fd);
void choir__door_leave(choir__door *door, choir__guest *guest);

/* Notes that a request was answered: the guest is known from now on, or its time begins again.
 */
void choir__door_answered(choir__door *door, choir__guest *guest, bool known);

#endif
