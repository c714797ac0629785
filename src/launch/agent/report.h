/* The report of a failure: the facts that help to find its cause. */
#ifndef CHOIR_LAUNCH_AGENT_REPORT_H
#define CHOIR_LAUNCH_AGENT_REPORT_H

#include "launch/agent/nodes.h"
#include "launch/agent/worker.h"

/* Writes the report of a worker that has failed. */
void choir__agent_report(
    const choir__workers *workers, int index, char text[CHOIR__REPORT_TEXT]);

#endif
