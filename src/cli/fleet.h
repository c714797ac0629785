/* choir goodput --cluster: what failures will leave of a training's time. */
#ifndef CHOIR_CLI_FLEET_H
#define CHOIR_CLI_FLEET_H

#include "base/base.h"

typedef struct choir__fleet_request {
    const char *cluster;                 /* path of its file; NULL: not asked for */
    int64_t ranks;                       /* 0: one per device */
    double step_s, save_s, save_every_s; /* 0: not given */
    bool json;
} choir__fleet_request;

/* Prints the forecast; returns an exit status. */
int choir__cli_fleet(const choir__fleet_request *request);

#endif
