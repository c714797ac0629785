/* Clusters: devices in nodes, racks and spines, the links between them, how often they fail and
 * their price. A cluster comes from a JSON file, or is this machine.
 *
 *     {
 *       "name": "sixteen racks",
 *       "device": {"kind": "H100", "bf16_flops": 8e14},
 *       "nodes": 64, "devices_per_node": 8, "nodes_per_rack": 4,
 *       "links": {
 *         "core": "NVLink4",
 *         "node": {"kind": "NDR400", "ports": 8},
 *         "rack": {"alpha_s": 5e-6, "beta_bytes_s": 5e10, "ports": 16}
 *       },
 *       "failures": {"per_device_day": 0.0008, "restart_s": 600},
 *       "price_per_device_hour": 2.5
 *     }
 *
 * A device is a preset, or an object that replaces figures of one; a link likewise.
 * A level's link joins the components of that level: "node" joins the nodes of a rack. A
 * message between two devices takes the links of all levels from the nodes up to the lowest
 * level that has both of them. Its time is alpha of that level and its bytes over its share of
 * each link; a component has `ports` ports in each direction, and a message fills at most one.
 *
 *     spine   [ rack 0            ] [ rack 1            ]       "rack" links
 *     rack    [ node 0 ] [ node 1 ]                             "node" links
 *     node    [ d d d d | d d d d ]        "socket" link: |     "core" links: d d
 */
#ifndef CHOIR_FORECAST_CLUSTER_H
#define CHOIR_FORECAST_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <choir/status.h>

enum { CHOIR__CLUSTER_NAME = 64 };

/* How much kernels' times and devices' speeds vary where a cluster's file does not say so:
 * estimates. */
#define CHOIR__PRESET_JITTER 0.03
#define CHOIR__PRESET_SPREAD 0.02

/* Where a figure is from, for people who read a forecast. */
typedef enum choir__figure_source {
    CHOIR__FROM_DATA_SHEET,
    CHOIR__FROM_ESTIMATES, /* no source states it */
    CHOIR__FROM_FILE,      /* the cluster's file says so */
    CHOIR__MEASURED        /* on this machine, by choir plan --calibrate */
} choir__figure_source;
const char *choir__figure_source_name(choir__figure_source source);

/* A kind of device. FLOPs and bytes are per second; large kernels reach a share of them. */
typedef struct choir__device_model {
    char kind[CHOIR__CLUSTER_NAME];
    double f32_flops, tf32_flops,
        bf16_flops; /* dense products; tf32 0: f32 products stay f32 */
    double memory_bytes_s;
    int64_t memory_bytes;
    double product_share, attention_share, memory_share;
    double launch_s; /* least time of a kernel */
    choir__figure_source source;
} choir__device_model;

typedef enum choir__level {
    CHOIR__LEVEL_CORE,   /* devices of one socket */
    CHOIR__LEVEL_SOCKET, /* sockets of one node */
    CHOIR__LEVEL_NODE,   /* nodes of one rack */
    CHOIR__LEVEL_RACK,   /* racks of one spine */
    CHOIR__LEVEL_SPINE,  /* spines */
    CHOIR__LEVELS
} choir__level;
const char *choir__level_name(choir__level level);

typedef struct choir__link {
    char kind[CHOIR__CLUSTER_NAME];
    double alpha_s, beta_bytes_s; /* time of an empty message; rate of a port, one direction */
    double share;                 /* part of beta that large messages reach */
    int64_t ports;                /* per component of the level; 0: the level has no link */
    choir__figure_source source;
} choir__link;

/* Failures and what follows them. Rates are per day; a rate of 0 means never. */
typedef struct choir__failure_rates {
    double per_device_day, per_node_day;
    double restart_s;  /* all processes again: scheduling, start, reading the checkpoint */
    double recovery_s; /* in-process recovery; 0: the job has none */
    double save_s;     /* a checkpoint keeps the job from training so long; 0: unknown */
    double repair_s;   /* seconds until a failed node is back */
    int64_t spares;    /* nodes that stand by */
} choir__failure_rates;

typedef struct choir__cluster {
    char name[CHOIR__CLUSTER_NAME];
    choir__device_model device;
    int64_t nodes, devices_per_node, sockets_per_node, nodes_per_rack, racks_per_spine;
    choir__link links[CHOIR__LEVELS];
    choir__failure_rates failures;
    double price_per_device_hour; /* 0: not given */
    double kernel_jitter;         /* relative standard deviation of a kernel's time */
    /* relative standard deviation of a device's speed: stragglers */
    double device_spread;
} choir__cluster;

/* Reads and checks the cluster of a JSON file. Error: one sentence that names the file. */
choir_status choir__cluster_read(const char *path, choir__cluster *cluster);
/* Fills in a cluster of presets: `nodes` nodes of devices of a kind, joined as the maker's own
 * systems are. Errors: argument (an unknown kind, a size below 1). */
choir_status choir__cluster_preset(
    const char *kind, int64_t nodes, int64_t devices_per_node, choir__cluster *cluster);
/* Checks sizes and links. */
choir_status choir__cluster_check(const choir__cluster *cluster);
/* Returns an error if the cluster has fewer devices than `ranks`. */
choir_status choir__cluster_holds(const choir__cluster *cluster, int64_t ranks);

int64_t choir__cluster_devices(const choir__cluster *cluster);
/* Returns the number of devices in a component that the level's link joins: 1 for core, the
 * devices of a socket for socket, of a node for node, and so on. */
int64_t choir__cluster_component(const choir__cluster *cluster, choir__level level);
/* Returns the level of messages between two different devices. */
choir__level choir__cluster_level(const choir__cluster *cluster, int64_t a, int64_t b);

/* presets.c: kinds of devices and of links from data sheets. Errors: argument, with the list of
 * names. */
choir_status choir__device_preset(const char *kind, choir__device_model *device);
choir_status choir__link_preset(const char *kind, choir__link *link);
/* Fills in the links with which the maker joins devices of a kind: within nodes and between
 * them. The kind must be a preset's. */
void choir__links_preset(const char *kind, choir__link links[CHOIR__LEVELS]);
/* Returns the names of all kinds of devices, as "A100, B200, ...", in text. Tests call it, too.
 */
const char *choir__device_kinds(char *text, unsigned long bytes);

#endif
