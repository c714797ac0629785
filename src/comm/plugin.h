/* Engines in plug-ins (base/plugin/plugin.h): the functions that plug-ins may call, and the
 * function that opens an engine. */
#ifndef CHOIR_COMM_PLUGIN_H
#define CHOIR_COMM_PLUGIN_H

#include "base/plugin/plugin.h"
#include "base/process/watch.h"
#include "comm/engine.h"
#include "comm/far/far.h"
#include "comm/flight/flight.h"
#include "comm/reduce.h"
#include "comm/rows.h"
#include "device/device.h"

/* The functions that plug-ins may call: result, name, parameters, arguments. Variadic functions
 * have separate forms at the end of choir__plugin_host. */
#define CHOIR__PLUGIN_HOST(X)                                                                  \
    CHOIR__BASE_HOST(X)                                                                        \
    X(const char *, choir__kind_name, (choir__kind kind), (kind))                              \
    X(const char *, choir__algorithm_name, (choir__algorithm algorithm), (algorithm))          \
    X(const char *, choir__stamp_text,                                                         \
        (const choir__stamp *stamp, char text[CHOIR__STAMP_TEXT]), (stamp, text))              \
    X(void, choir__engine_free, (choir__engine * engine), (engine))                            \
    X(choir__member *, choir__members_of,                                                      \
        (const choir__member *members, const int *ranks, int count, int *nodes),               \
        (members, ranks, count, nodes))                                                        \
    X(const char *, choir__engine_peer,                                                        \
        (const choir__engine *engine, int rank, char text[CHOIR__PEER_TEXT]),                  \
        (engine, rank, text))                                                                  \
    X(const char *, choir__engine_ended,                                                       \
        (const choir__engine *engine, int rank, int pidfd, const choir__stamp *during,         \
            char text[CHOIR__ENDED_TEXT]),                                                     \
        (engine, rank, pidfd, during, text))                                                   \
    X(choir_status, choir__message_run, (choir__engine * engine, const choir__call *call),     \
        (engine, call))                                                                        \
    X(choir_status, choir__message_batch,                                                      \
        (choir__engine * engine, const choir__call *calls, int count), (engine, calls, count)) \
    X(const char *, choir__engine_silent,                                                      \
        (const choir__engine *engine, const int *ranks, int count, bool came,                  \
            const choir__stamp *call, char text[CHOIR__SILENT_TEXT]),                          \
        (engine, ranks, count, came, call, text))                                              \
    X(const char *, choir__call_text,                                                          \
        (const choir__stamp *stamp, char text[CHOIR__CALL_TEXT]), (stamp, text))               \
    X(const choir__arith *, choir__arith_find, (choir_dtype dtype, choir_reduce_op op),        \
        (dtype, op))                                                                           \
    X(void, choir__reduce,                                                                     \
        (const choir__reduce_task *r, char *scratch, int64_t begin, int64_t end),              \
        (r, scratch, begin, end))                                                              \
    X(void, choir__reduce_slice,                                                               \
        (int64_t count, size_t size, int rank, int world, int64_t *lo, int64_t *hi),           \
        (count, size, rank, world, lo, hi))                                                    \
    X(int64_t, choir__cut_part,                                                                \
        (const choir__rows_cut *cut, int rank, int world, int64_t *lo),                        \
        (cut, rank, world, lo))                                                                \
    X(int64_t, choir__cuts_part,                                                               \
        (const choir__rows_cut *cuts, int cut_count, int rank, int world),                     \
        (cuts, cut_count, rank, world))                                                        \
    X(int, choir__scatter_nodes,                                                               \
        (const choir__tree_scatter *args, int rank, int world,                                 \
            choir__node nodes[CHOIR__MAX_NODES]),                                              \
        (args, rank, world, nodes))                                                            \
    X(int, choir__scatter_results,                                                             \
        (const choir__tree_scatter *args, choir__node nodes[CHOIR__MAX_NODES]), (args, nodes)) \
    X(int, choir__process_watch, (pid_t pid), (pid))                                           \
    X(bool, choir__call_is_far, (const choir__call *call), (call))                             \
    X(int, choir_device_count, (const char *kind), (kind))                                     \
    X(choir_device *, choir_device_find, (const char *name), (name))                           \
    X(const char *, choir_device_name, (const choir_device *device), (device))                 \
    X(struct choir__gpu_stream *, choir__device_stream, (choir_device * device), (device))     \
    X(void, choir__queue_break,                                                                \
        (choir__queue * queue, choir_status status, const char *sentence),                     \
        (queue, status, sentence))                                                             \
    X(int, choir__tree_siblings, (choir__node left, choir__node right), (left, right))         \
    X(int, choir__tree_nodes, (int64_t lo, int64_t hi, choir__node nodes[CHOIR__MAX_NODES]),   \
        (lo, hi, nodes))                                                                       \
    X(choir_status, choir_store_set,                                                           \
        (choir_store * store, const char *key, const void *value, size_t bytes),               \
        (store, key, value, bytes))                                                            \
    X(choir_status, choir_store_get,                                                           \
        (choir_store * store, const char *key, double timeout_s, char **value, size_t *bytes), \
        (store, key, timeout_s, value, bytes))                                                 \
    X(choir_status, choir_store_add,                                                           \
        (choir_store * store, const char *key, int64_t amount, int64_t *sum),                  \
        (store, key, amount, sum))                                                             \
    X(choir_status, choir_store_compare_set,                                                   \
        (choir_store * store, const char *key, const char *expected, const char *desired,      \
            char **value),                                                                     \
        (store, key, expected, desired, value))                                                \
    X(choir_status, choir_store_will,                                                          \
        (choir_store * store, const char *key, const void *value, size_t bytes),               \
        (store, key, value, bytes))

typedef struct choir__plugin_host {
#define X(type, name, parameters, arguments) type(*name) parameters;
    CHOIR__PLUGIN_HOST(X)
#undef X
    choir_status (*engine_fail)(choir__engine *engine, choir_status status, const char *text);
} choir__plugin_host;

/* The table that a plug-in exports, under the name choir_plugin. */
typedef struct choir__plugin {
    choir__plugin_head head;
    void (*start)(const choir__plugin_host *host);
    choir_status (*open)(choir__meeting *meeting, choir__engine **engine);
} choir__plugin;

/* Two builds of the same version are incompatible if the sizes of their structs differ. */
#define CHOIR__PLUGIN_LAYOUT                                                                   \
    ((uint32_t)(sizeof(choir__plugin_host) * 31 + sizeof(choir__engine) * 7 +                  \
                sizeof(choir__engine_ops) * 5 + sizeof(choir__call) * 3 +                      \
                sizeof(choir__meeting) + sizeof(choir__member) * 11 + CHOIR__KIND_COUNT))

/* Opens the plug-in's engine; every plug-in defines it. */
choir_status choir__plugin_open(choir__meeting *meeting, choir__engine **engine);

/* --- in the library and the command --- */

/* Opens the engine of choir_<name>.so. needs: the software to install, for the message if the
 * plug-in is missing. Errors: unsupported; the engine's own. */
choir_status choir__plugin_engine(
    const char *name, const char *needs, choir__meeting *meeting, choir__engine **engine);

#endif
