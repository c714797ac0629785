/* --debug-nan: which module's numbers were the first that are not finite. */
#ifndef CHOIR_JOB_TRAINER_DEBUG_NAN_H
#define CHOIR_JOB_TRAINER_DEBUG_NAN_H

#include <choir/nn.h>

typedef struct choir__nan_watch {
    bool backward;   /* gradients are looked at as well: no loss scale makes them overflow */
    char found[512]; /* the first place; "": none so far */
} choir__nan_watch;

/* Looks at the output of each module in net, and at the gradients of modules and parameters,
 * from now on. The host reads them, so steps must not be recorded. */
void choir__nan_watch_net(choir__nan_watch *watch, choir_module *net);

/* Returns an error that names the place of the first NaN, if any. */
choir_status choir__nan_found(const choir__nan_watch *watch, int64_t step);

#endif
