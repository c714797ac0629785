/* Sizes of a cluster: how many devices a component of each level has, and the lowest level
 * that two ranks share. A cluster is refused if a level that joins several components has no
 * link. */
#include "forecast/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

const char *choir__figure_source_name(choir__figure_source source)
{
    static const char *const names[] = {
        [CHOIR__FROM_DATA_SHEET] = "data sheet",
        [CHOIR__FROM_ESTIMATES] = "estimates",
        [CHOIR__FROM_FILE] = "given",
        [CHOIR__MEASURED] = "measured",
    };
    return names[source];
}

const char *choir__level_name(choir__level level)
{
    static const char *const names[CHOIR__LEVELS] = {"core", "socket", "node", "rack", "spine"};
    return names[level];
}

int64_t choir__cluster_devices(const choir__cluster *c)
{
    return c->nodes * c->devices_per_node;
}

int64_t choir__cluster_component(const choir__cluster *c, choir__level level)
{
    switch (level) {
    case CHOIR__LEVEL_CORE: return 1;
    case CHOIR__LEVEL_SOCKET: return c->devices_per_node / c->sockets_per_node;
    case CHOIR__LEVEL_NODE: return c->devices_per_node;
    case CHOIR__LEVEL_RACK: return c->devices_per_node * c->nodes_per_rack;
    default: return c->devices_per_node * c->nodes_per_rack * c->racks_per_spine;
    }
}

choir__level choir__cluster_level(const choir__cluster *c, int64_t a, int64_t b)
{
    int level = CHOIR__LEVEL_CORE;
    while (level < CHOIR__LEVEL_SPINE) {
        int64_t size = choir__cluster_component(c, (choir__level)(level + 1));
        if (a / size == b / size)
            break;
        level++;
    }
    return (choir__level)level;
}

/* Returns how many components of the level there are in one of the next level. */
static int64_t components(const choir__cluster *c, choir__level level)
{
    int64_t all = choir__cluster_devices(c),
            next = level == CHOIR__LEVEL_SPINE
                       ? all
                       : choir__cluster_component(c, (choir__level)(level + 1));
    int64_t within = choir__min(next, all), size = choir__cluster_component(c, level);
    return (within + size - 1) / size;
}

static choir_status check_link(const choir__cluster *c, choir__level level)
{
    static const char *const plural[CHOIR__LEVELS] = {"devices of a socket",
        "sockets of a node", "nodes of a rack", "racks of a spine", "spines"};
    const choir__link *l = &c->links[level];
    const int64_t joined = components(c, level);
    if (joined <= 1)
        return CHOIR_OK;
    if (!l->ports)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "missing links.%s, which joins the %lld %s: expected a kind of link, or alpha_s and "
            "beta_bytes_s",
            choir__level_name(level), (long long)joined, plural[level]);
    if (!(l->beta_bytes_s > 0))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "links.%s.beta_bytes_s: expected a number above 0, got %g",
            choir__level_name(level), l->beta_bytes_s);
    return CHOIR_OK;
}

choir_status choir__cluster_check(const choir__cluster *c)
{
    if (c->devices_per_node % c->sockets_per_node)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "devices_per_node: expected a multiple of sockets_per_node (%lld), got %lld",
            (long long)c->sockets_per_node, (long long)c->devices_per_node);
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        choir_status status = check_link(c, (choir__level)level);
        if (status)
            return status;
    }
    return CHOIR_OK;
}

choir_status choir__cluster_holds(const choir__cluster *c, int64_t ranks)
{
    const int64_t devices = choir__cluster_devices(c);
    if (ranks <= devices)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "cluster %s has %lld devices (%lld nodes of %lld), expected at least one for each of "
        "the %lld ranks",
        c->name, (long long)devices, (long long)c->nodes, (long long)c->devices_per_node,
        (long long)ranks);
}

choir_status choir__cluster_preset(
    const char *kind, int64_t nodes, int64_t devices_per_node, choir__cluster *c)
{
    *c = (choir__cluster){.nodes = nodes,
        .devices_per_node = devices_per_node,
        .sockets_per_node = 1,
        .nodes_per_rack = nodes,
        .racks_per_spine = 1,
        .kernel_jitter = CHOIR__PRESET_JITTER,
        .device_spread = CHOIR__PRESET_SPREAD};
    if (nodes < 1 || devices_per_node < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a cluster: expected at least 1 node of 1 device, got %lld of %lld",
            (long long)nodes, (long long)devices_per_node);
    choir_status status = choir__device_preset(kind, &c->device);
    if (status)
        return status;
    snprintf(c->name, sizeof c->name, "%lld x %lld %s", (long long)nodes,
        (long long)devices_per_node, kind);
    choir__links_preset(kind, c->links);
    return CHOIR_OK;
}
