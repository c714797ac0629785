/* Collectives on host memory between dry ranks. */
#ifndef CHOIR_COMM_DRY_EXCHANGE_H
#define CHOIR_COMM_DRY_EXCHANGE_H

#include "comm/dry/world.h"

/* Carries out the calls that all living members of a room have made. */
void choir__dry_exchange(const choir__dry_room *room);

/* Gives to each living member, in out, the u64 that each living member has brought, in the
 * order of the room's `members`. */
void choir__dry_exchange_living(const choir__dry_room *room);

#endif
