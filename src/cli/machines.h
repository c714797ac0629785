/* The processes of other machines. For each machine this process runs a command, by default
 * `ssh HOST choir __boards`, which prints the boards of the processes there
 * (snapshot_stream.h). So each machine decides by its logins who may look. */
#ifndef CHOIR_CLI_MACHINES_H
#define CHOIR_CLI_MACHINES_H

#include "cli/snapshot.h"

typedef struct choir__machines choir__machines;

/* The command that reaches a machine by default; {} is its name. */
#define CHOIR__MACHINES_THROUGH "ssh -C -o BatchMode=yes -o ConnectTimeout=10 {}"

/* Returns the command that runs this program with these words on a machine, for the caller to
 * free; NULL if the name or `through` cannot be part of a command. */
char *choir__machine_command(const char *through, const char *name, const char *words);

/* names: separated by commas; "all" stands for the machines of all jobs that are seen. through:
 * the command that reaches one, in which {} is the name. interval_s: between two rounds.
 * Errors: argument. */
choir_status choir__machines_open(
    const char *names, const char *through, double interval_s, choir__machines **machines);
void choir__machines_close(choir__machines *machines); /* NULL is fine */

/* Sets *now to the latest snapshot of all machines, and *before to the one a round earlier,
 * without waiting. The caller frees both. here: the processes of this machine, whose jobs name
 * the machines for "all". */
void choir__machines_look(choir__machines *machines, const choir__snapshot *here,
    choir__snapshot *now, choir__snapshot *before);

/* Waits until every machine has sent two snapshots or cannot be reached, at most `seconds`. */
void choir__machines_wait(
    choir__machines *machines, const choir__snapshot *here, double seconds);

/* Writes why machine i cannot be seen, or "" if it can. Returns false if i is beyond the last
 * machine. */
enum { CHOIR__TROUBLE_TEXT = 512 };
bool choir__machines_trouble(
    const choir__machines *machines, int i, char text[CHOIR__TROUBLE_TEXT]);

/* The processes that `choir top` and `choir watch` show at one moment, on this machine and, on
 * request, on others. The previous reading is kept, too, because the use of a device follows
 * from two readings. */
typedef struct choir__ranks_view {
    choir__snapshot now, before;     /* borrowed from the looks below, sorted */
    choir__snapshot here[2], far[2]; /* now, and before */
    choir__machines *machines;       /* NULL: this machine alone */
} choir__ranks_view;

/* Looks again. pids: only these of this machine, all if pid_count is 0. */
void choir__view_look(choir__ranks_view *view, const int *pids, int pid_count);
/* Closes the machines, too. */
void choir__view_free(choir__ranks_view *view);

/* Returns the number of machines that the job of process `from` has in view. */
int choir__view_machines(const choir__ranks_view *view, int from);

#endif
