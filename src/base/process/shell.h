/* A command line of the user's, run by the shell. */
#ifndef CHOIR_BASE_PROCESS_SHELL_H
#define CHOIR_BASE_PROCESS_SHELL_H

#include <sys/types.h>

/* Starts `sh -c command` in a process group of its own, with signals as a shell has them. in,
 * out and words become its standard input, output and error; in -1: it reads nothing; words -1:
 * it shares this process's. Returns 0, or the errno. */
int choir__shell_start(const char *command, int in, int out, int words, pid_t *pid);

#endif
