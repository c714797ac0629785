/* Collectives on host memory between dry ranks. */
#ifndef CHOIR_COMM_DRY_EXCHANGE_H
#define CHOIR_COMM_DRY_EXCHANGE_H

#include "comm/dry/world.h"

/* Carries out the calls that all living members of a room have made. */
void choir__dry_exchange(const choir__dry_room *room);

#endif
