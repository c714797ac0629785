/* Inside traces: what comm/ adds its queues by. */
#ifndef CHOIR_TRACE_INTERNAL_H
#define CHOIR_TRACE_INTERNAL_H

#include <choir/trace.h>
#include "device/queue.h"

/* Watches a queue that is no device's; name_of tells a task's name. */
void choir__trace_queue(choir_trace *trace, const char *name, choir__queue *queue,
    const char *(*name_of)(choir__task *fn, const void *args));

#endif
