/* choir_tune: a process that is about to fork has no other thread at work. */
#include <stdio.h>

#include "device/device.h"
#include "device/queue.h"
#include "tune/program/program.h"

choir_status choir__tune_may_fork(void)
{
    if (!choir__device_forbids_fork())
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "choir_tune: this process uses a GPU already, which no fork of it could: begin to use it "
        "in the trials");
}

void choir__tune_rest(void)
{
    choir__queues_quiesce();
    fflush(NULL); /* otherwise each fork would write buffered text again */
}
