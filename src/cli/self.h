/* What the command knows of its own process and installation. */
#ifndef CHOIR_CLI_SELF_H
#define CHOIR_CLI_SELF_H

/* Notes when the process started; main calls it first. */
void choir__cli_start(void);

/* Seconds since this process started, exec and dynamic linking included. */
double choir__cli_uptime(void);

#endif
