/* Internals of traces: the functions with which comm/ adds its queues. */
#ifndef CHOIR_TRACE_INTERNAL_H
#define CHOIR_TRACE_INTERNAL_H

#include <choir/trace.h>
#include "device/queue.h"

/* Traces a queue that belongs to no device; name_of returns a task's name. */
void choir__trace_queue(choir_trace *trace, const char *name, choir__queue *queue,
    const char *(*name_of)(choir__queue_task *fn, const void *args));

#endif
