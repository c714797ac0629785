/* The room that kernels of CPU devices keep between calls beside their operands (context.h). */
#ifndef CHOIR_CPU_ROOM_H
#define CHOIR_CPU_ROOM_H

#include "device/cpu/ways.h"

/* Bytes of choir__cpu_workspace, and of weights that are packed for many products. */
typedef struct choir__cpu_room {
    size_t workspace, packed;
} choir__cpu_room;

/* Raises *room to what a call of our own kernels needs. Smaller rooms are left out. */
void choir__cpu_room_for(choir__kernel_id id, const void *args, choir__cpu_room *room);

#endif
