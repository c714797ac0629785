/* The meaning of signals to a training job: one table for `choir train` as one process, as
 * several ranks, as ranks that are replaced, and for the agents of `choir run`. The man pages
 * show it. */
#ifndef CHOIR_LAUNCH_PROCESS_SIGNAL_TABLE_H
#define CHOIR_LAUNCH_PROCESS_SIGNAL_TABLE_H

#include <stdbool.h>

typedef enum choir__signal_does {
    CHOIR__SIGNAL_NOTHING, /* not in the table */
    CHOIR__SIGNAL_STOPS,   /* save, and end with 128 + the signal; a save is finished first */
    CHOIR__SIGNAL_SAVES,   /* save, and continue */
    CHOIR__SIGNAL_SHOWS,   /* print the last collectives, and continue */
    CHOIR__SIGNAL_ENDS,    /* end at once, and name the loss */
} choir__signal_does;

typedef struct choir__signal_row {
    int number; /* 0: the table's end */
    const char *name;
    choir__signal_does does;
    bool again_ends;    /* a second one ends the job at once; else it changes nothing */
    bool stays_ignored; /* stays ignored if it is ignored at the start, as nohup ignores SIGHUP
                         */
} choir__signal_row;

/* The registry. */
extern const choir__signal_row choir__signal_table[];
enum { CHOIR__SIGNALS_MOST = 16 }; /* rows, at most */

/* Return the row of a signal, by its number or by its name with or without SIG; NULL: none.
 * choir__signal_find may be called in a signal's handler. */
const choir__signal_row *choir__signal_find(int number);
const choir__signal_row *choir__signal_named(const char *name);

choir__signal_does choir__signal_meaning(int number);

/* Returns whether the signal, which has come at `now`, is a second one that ends the job at
 * once (again_ends). Within one second it counts as the first one again: a signal to the whole
 * process group reaches a rank directly and through its parent, and users press Ctrl-C twice.
 * *first_at: when the first one came, noted here; 0: none has. For handlers, too. */
bool choir__signal_again(const choir__signal_row *row, double now, double *first_at);

/* Ignores the table's signals, and the signals of a closed pipe or a terminal: for a helper
 * process, which must outlive signals to the whole process group. */
void choir__signals_outlive(void);

/* Lists the signals that do this; returns how many. */
int choir__signals_that(choir__signal_does does, int numbers[CHOIR__SIGNALS_MOST]);

#endif
