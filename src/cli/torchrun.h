/* Forms that `choir run` takes over from torchrun: PET_ variables, Python scripts, and values
 * that are lists. The functions that return int return an exit status, CHOIR__EXIT_USAGE after
 * printing the reason. */
#ifndef CHOIR_CLI_TORCHRUN_H
#define CHOIR_CLI_TORCHRUN_H

#include "line/command.h"
#include "launch/agent/agent.h"

/* Returns argv with the options that PET_ variables give, as PET_NNODES=2 does, in front of its
 * own, which so have priority. Kubernetes' PyTorchJob sets these variables. *argc is updated.
 * The array and its texts last as long as the process. */
char **choir__torchrun_argv(const choir__line_command *command, int *argc, char **argv);

/* Returns the words to run, which last as long: a module (-m) or a script that cannot be run
 * itself is run by Python, as PYTHON_EXEC names it. plain: always the words themselves. */
char **choir__torchrun_command(
    const choir__line_operands *operands, bool module, bool script, bool plain);

/* --rdzv-conf: KEY=VALUE,... */
int choir__torchrun_conf(const char *text, choir__agent_opts *opts);

/* Takes etcd's user from ETCDCTL_USER and ETCDCTL_PASSWORD, as etcdctl does, unless --rdzv-conf
 * has named one, and divides NAME:PASSWORD. */
void choir__torchrun_etcd_user(choir__etcd_conf *etcd);

/* --signals-to-handle: NAME,... */
int choir__torchrun_signals(const char *text, choir__agent_opts *opts);

/* Returns the work of a command's ranks, as all nodes must have it, on the heap; "": an unknown
 * program (run_work.c). */
char *choir__run_work(char **command);

#endif
