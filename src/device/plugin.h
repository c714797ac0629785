/* Backends in plug-ins (base/plugin/plugin.h): the functions that plug-ins may call, and the
 * loader. */
#ifndef CHOIR_DEVICE_PLUGIN_H
#define CHOIR_DEVICE_PLUGIN_H

#include "base/plugin/plugin.h"
#include "device/backend.h"
#include "device/far.h"
#include "device/stream.h"
#include "device/work.h"

/* The functions that plug-ins may call: result, name, parameters, arguments. Functions with
 * `...` have other signatures at the end of choir__device_host. */
#define CHOIR__DEVICE_HOST(X)                                                                  \
    CHOIR__BASE_HOST(X)                                                                        \
    X(choir__queue *, choir__queue_new, (choir__queue_opts opts), (opts))                      \
    X(void, choir__queue_issue,                                                                \
        (choir__queue * queue, choir__queue_task * fn, const void *args, size_t bytes),        \
        (queue, fn, args, bytes))                                                              \
    X(choir__event, choir__queue_record, (choir__queue * queue), (queue))                      \
    X(choir_status, choir__queue_wait_event, (choir__queue * queue, choir__event event),       \
        (queue, event))                                                                        \
    X(void, choir__queue_moved, (choir__queue * to, choir__queue * from, uint64_t bytes),      \
        (to, from, bytes))                                                                     \
    X(choir__pool *, choir__pool_new,                                                          \
        (const choir__memory_ops *ops, void *arg, choir__pool_gauges *gauges),                 \
        (ops, arg, gauges))                                                                    \
    X(const char *, choir__kernel_work_text,                                                   \
        (const choir_device *device, choir__queue_task *fn, const void *args, char *text,      \
            size_t bytes),                                                                     \
        (device, fn, args, text, bytes))

typedef struct choir__device_host {
#define X(type, name, parameters, arguments) type(*name) parameters;
    CHOIR__DEVICE_HOST(X)
#undef X
    choir_status (*queue_fail)(choir_status status, const char *text);
} choir__device_host;

/* The struct that a plug-in exports under the name choir_plugin. */
typedef struct choir__device_plugin {
    choir__plugin_head head;
    void (*start)(const choir__device_host *host);
    const choir__backend *backend;
} choir__device_plugin;

/* Digest of struct sizes; two builds of one version with different digests do not fit. */
enum {
#define X(name) +sizeof(choir__k_##name)
    CHOIR__KERNEL_BYTES = 0 CHOIR__KERNEL_LIST(X),
#undef X
    CHOIR__DEVICE_LAYOUT = sizeof(choir__device_host) * 31 + sizeof(struct choir_device) * 7 +
                           sizeof(choir__kernels) * 5 + sizeof(choir__backend) * 3 +
                           sizeof(choir__gpu_stream_ops) + sizeof(choir__queue_opts) * 11 +
                           sizeof(choir__far) * 13 + CHOIR__KERNEL_BYTES
};

/* Defined by a plug-in: its backend. */
extern const choir__backend choir__plugged_backend;

/* --- in the library and the command --- */

/* Loads choir_<kind>.so and returns its backend. Error: unsupported. */
choir_status choir__plugin_backend(const char *kind, const choir__backend **backend);

#endif
