/* Backends in plug-ins (base/plugin.h): the functions that they may call, and how one is
 * loaded. */
#ifndef CHOIR_DEVICE_PLUGIN_H
#define CHOIR_DEVICE_PLUGIN_H

#include "base/plugin.h"
#include "device/backend.h"
#include "device/work.h"

/* What plug-ins may call: result, name, parameters, arguments. Functions with `...` have forms
 * of their own at the end of choir__device_host. */
#define CHOIR__DEVICE_HOST(X)                                                                  \
    X(double, choir__now, (void), ())                                                          \
    X(void *, choir__alloc, (size_t bytes), (bytes))                                           \
    X(void *, choir__calloc, (size_t count, size_t size), (count, size))                       \
    X(void *, choir__realloc, (void *p, size_t bytes), (p, bytes))                             \
    X(choir_status, choir__verror, (choir_status status, const char *format, va_list args),    \
        (status, format, args))                                                                \
    X(const char *, choir_error_message, (void), ())                                           \
    X(const char *, choir_dtype_name, (choir_dtype dtype), (dtype))                            \
    X(size_t, choir_dtype_size, (choir_dtype dtype), (dtype))                                  \
    X(choir__queue *, choir__queue_new, (choir__queue_opts opts), (opts))                      \
    X(void, choir__queue_free, (choir__queue * queue), (queue))                                \
    X(void, choir__queue_issue,                                                                \
        (choir__queue * queue, choir__task * fn, const void *args, size_t bytes),              \
        (queue, fn, args, bytes))                                                              \
    X(choir__event, choir__queue_record, (choir__queue * queue), (queue))                      \
    X(choir_status, choir__queue_wait_event, (choir__queue * queue, choir__event event),       \
        (queue, event))                                                                        \
    X(choir_status, choir__queue_wait, (choir__queue * queue), (queue))                        \
    X(void, choir__queue_moved, (choir__queue * to, choir__queue * from, uint64_t bytes),      \
        (to, from, bytes))                                                                     \
    X(choir__pool *, choir__pool_new,                                                          \
        (const choir__memory_ops *ops, void *arg, choir__pool_gauges *gauges),                 \
        (ops, arg, gauges))                                                                    \
    X(void, choir_device_get_stats, (choir_device * device, choir_device_stats * stats),       \
        (device, stats))                                                                       \
    X(const char *, choir__work_text,                                                          \
        (const choir_device *device, choir__task *fn, const void *args, char *text,            \
            size_t bytes),                                                                     \
        (device, fn, args, text, bytes))

typedef struct choir__device_host {
#define X(type, name, parameters, arguments) type(*name) parameters;
    CHOIR__DEVICE_HOST(X)
#undef X
    choir_status (*queue_fail)(choir_status status, const char *text);
} choir__device_host;

/* What a plug-in shows, under the name choir_plugin. */
typedef struct choir__device_plugin {
    choir__plugin_head head;
    void (*start)(const choir__device_host *host);
    const choir__backend *backend;
} choir__device_plugin;

/* Two builds of one version whose structs differ in size do not fit. */
#define CHOIR__DEVICE_LAYOUT                                                                   \
    ((uint32_t)(sizeof(choir__device_host) * 31 + sizeof(struct choir_device) * 7 +            \
                sizeof(choir__kernels) * 5 + sizeof(choir__backend) * 3 +                      \
                sizeof(choir__stream_ops) + sizeof(choir__queue_opts) * 11 +                   \
                sizeof(choir__k_optim) + sizeof(choir__k_attention_backward)))

/* In a plug-in: its backend. */
extern const choir__backend choir__plugged_backend;

/* --- in the library and the command --- */

/* The backend that choir_<kind>.so has. Errors: unsupported. */
choir_status choir__plugin_backend(const char *kind, const choir__backend **backend);

#endif
