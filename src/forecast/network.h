/* How long a collective takes, by the schedules that run it (comm/pattern) and the cluster's
 * links.
 *
 * A schedule is rounds of messages. A message of b bytes over levels l takes alpha of its
 * highest level, and b over its share of the fullest link on its way: what the link carries in
 * this round, by all groups of the same dimension, over the rate of its ports. A rank's round
 * begins when its previous one is over, and a message when both sides have begun the round. So
 * a rank of a tree that has little to do does not wait for the others.
 *
 * Few ranks: all members of a group are walked. Many: the members of one node stand for all,
 * since algorithms for many ranks treat nodes alike, and the rounds are in step.
 *
 * Libraries that bring their own algorithms (NATIVE: NCCL) are priced as the better one of a
 * ring and a pair of trees, by the formulas of NCCL's tuner. */
#ifndef CHOIR_FORECAST_NETWORK_H
#define CHOIR_FORECAST_NETWORK_H

#include "forecast/cluster.h"
#include "forecast/step.h"

/* One call by all groups of a dimension at the same time. Rank r is on device r. */
typedef struct choir__call_shape {
    choir__kind kind;
    choir__algorithm algorithm;
    choir_dtype dtype;
    int64_t count, leaves; /* as in choir__step_entry */
    choir__step_group group;
    int64_t first; /* the group's member with the lowest rank, or of a listed group the first */
    int root;      /* member; of SEND and RECEIVE the distance to the peer, in ranks */
    int64_t world;
} choir__call_shape;

typedef struct choir__call_cost {
    double seconds;
    double bytes[CHOIR__LEVELS]; /* sent by one group's ranks, by the message's level */
    choir__algorithm algorithm;  /* the algorithm that was chosen */
} choir__call_cost;

/* Errors: argument (a group of one rank or beyond the cluster), unsupported (the algorithm does
 * not do it). */
choir_status choir__network_price(
    const choir__cluster *cluster, const choir__call_shape *call, choir__call_cost *cost);

/* native.c: the price of NCCL's algorithms. */
void choir__network_price_native(
    const choir__cluster *cluster, const choir__call_shape *call, choir__call_cost *cost);

/* Returns the number of a group's members in one component of a level, of a listed group the
 * most, and the number of groups of the dimension that have members there. */
int64_t choir__group_members_in(const choir__cluster *cluster, const choir__call_shape *call,
    choir__level level, int64_t *groups);
/* Returns the bytes that an unpadded buffer of the call has on one rank: count elements. */
double choir__call_bytes(const choir__call_shape *call);

#endif
