/* What the command asks of choir_env that programs do not. */
#ifndef CHOIR_ENV_INTERNAL_H
#define CHOIR_ENV_INTERNAL_H

#include <choir/env.h>

/* choir_env_init_with, but for the device, which the caller picks. */
choir_status choir__env_join(choir_env *env, const char *method, choir_group_opts opts);

#endif
