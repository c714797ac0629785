/* The process of the command. */
#ifndef CHOIR_LINE_SELF_H
#define CHOIR_LINE_SELF_H

/* Stores the start time of the process; main calls it first. */
void choir__cli_start(void);

/* Counts from now on: the process is a program's, and has done other work before. */
void choir__cli_start_again(void);

/* Returns the seconds since this process started, including exec and dynamic linking. */
double choir__cli_uptime(void);

#endif
