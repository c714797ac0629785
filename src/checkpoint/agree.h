/* Ranks that do something together, such as saving, fail together. */
#ifndef CHOIR_AGREE_H
#define CHOIR_AGREE_H

#include <choir/group.h>

/* If any rank's status is an error, all return the first such rank's, with its message; else
 * CHOIR_OK. group NULL: this process alone. Collective. Errors: those of the group. */
choir_status choir__agree(choir_group *group, choir_status mine);

/* Rank and number of ranks; 0 of 1 without a group. */
int choir__rank_of(const choir_group *group);
int choir__world_of(const choir_group *group);

#endif
