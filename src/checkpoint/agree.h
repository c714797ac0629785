/* Agreement on errors: ranks that do something together, such as saving, fail together. */
#ifndef CHOIR_AGREE_H
#define CHOIR_AGREE_H

#include <choir/group.h>

/* Exchanges the ranks' statuses. Returns the error of the first rank that has one, with its
 * message, on all ranks; else CHOIR_OK. group NULL: this process alone. Collective. Errors: the
 * group's. */
choir_status choir__agree(choir_group *group, choir_status mine);

/* Return the rank and the number of ranks; without a group, 0 and 1. */
int choir__rank_of(const choir_group *group);
int choir__world_of(const choir_group *group);

#endif
