/* The registry of algorithms: for each, the pattern that writes its schedules, and the
 * collectives that it supports. */
#include "comm/pattern/build.h"

#define BIT(kind) (1u << (kind))

static const struct {
    choir__pattern_fill *pattern;
    unsigned kinds;
} patterns[CHOIR__ALGORITHM_COUNT] = {
    [CHOIR__EXCHANGE] = {choir__pattern_exchange, ~0u},
    [CHOIR__RING] = {choir__pattern_ring, BIT(CHOIR__ALL_REDUCE) | BIT(CHOIR__REDUCE) |
                                              BIT(CHOIR__REDUCE_SCATTER) |
                                              BIT(CHOIR__ALL_GATHER) | BIT(CHOIR__BROADCAST)},
    [CHOIR__HALVING] = {choir__pattern_halving,
        BIT(CHOIR__ALL_REDUCE) | BIT(CHOIR__ALL_GATHER)},
    [CHOIR__BINOMIAL] = {choir__pattern_binomial,
        BIT(CHOIR__ALL_REDUCE) | BIT(CHOIR__REDUCE) | BIT(CHOIR__REDUCE_SCATTER) |
            BIT(CHOIR__ALL_GATHER) | BIT(CHOIR__GATHER) | BIT(CHOIR__SCATTER) |
            BIT(CHOIR__BROADCAST)},
    [CHOIR__DOUBLE_TREE] = {choir__pattern_double_tree,
        BIT(CHOIR__ALL_REDUCE) | BIT(CHOIR__REDUCE) | BIT(CHOIR__BROADCAST)},
    [CHOIR__HIERARCHICAL] = {choir__pattern_hierarchical,
        BIT(CHOIR__ALL_REDUCE) | BIT(CHOIR__TREE_REDUCE) | BIT(CHOIR__BROADCAST)},
};

bool choir__move_schedule_does(
    const choir__pattern_collective *collective, choir__algorithm algorithm)
{
    if (collective->kind == CHOIR__BARRIER)
        return true;
    if (algorithm == CHOIR__HIERARCHICAL && !choir__nodes_contiguous(collective))
        return false;
    return patterns[algorithm].kinds & BIT(collective->kind);
}

choir__pattern_fill *choir__pattern_of(const choir__pattern_collective *collective)
{
    choir__algorithm algorithm =
        patterns[collective->algorithm].pattern ? collective->algorithm : CHOIR__EXCHANGE;
    return choir__move_schedule_does(collective, algorithm) ? patterns[algorithm].pattern
                                                            : NULL;
}
