/* choir check on several machines. */
#ifndef CHOIR_CLI_CHECK_HOSTS_H
#define CHOIR_CLI_CHECK_HOSTS_H

#include <stdbool.h>

/* Runs `choir check` on all machines at once, and prints what each says. names: separated by
 * commas; through: the command that reaches one. Returns the exit status. */
int choir__check_hosts(const char *names, const char *through, double seconds, bool json);

#endif
