/* The worker: UCX's configuration, and the devices that it may use.
 *
 * UCX uses shared memory of the kind that disappears with the last process (System V, marked
 * for removal while in use; POSIX segments would stay in /dev/shm after SIGKILL) and reads from
 * the peer's memory; TCP; InfiniBand if present. The loopback device is only for jobs on one
 * machine: every machine has one, all with the same address.
 *
 * Over TCP it must copy: the zero-copy sends of UCX 1.13 complete twice when the connection
 * breaks in the middle of one, and an assertion of UCX then ends the process. In pieces of 64
 * KiB that is no slower. InfiniBand and reads of the peer's memory stay without copies where it
 * counts, in rendezvous.
 *
 * UCX prints its own diagnostics. The important ones end up in a sentence of ours, so nothing
 * is printed, unless UCX_LOG_LEVEL asks for it. */
#include "comm/ucx/ucx.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/log_def.h>

static ucs_log_func_rc_t say_nothing(const char *file, unsigned line, const char *function,
    ucs_log_level_t level, const ucs_log_component_config_t *component, const char *message,
    va_list args)
{
    (void)file, (void)line, (void)function, (void)component, (void)message, (void)args;
    return level == UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

static void keep_silence(void)
{
    ucs_log_push_handler(say_nothing);
}

/* --- context and worker --- */

choir_status choir__ucx_trouble(const char *what, ucs_status_t status)
{
    return choir__error(CHOIR_ERR_IO,
        "UCX: %s: %s; UCX_LOG_LEVEL=info says more, UCX_TLS and UCX_NET_DEVICES choose others",
        what, ucs_status_string(status));
}

/* Settings for UCX, unless the environment has the variable. Keys of a transport have another
 * name here, without the transport's. */
typedef struct setting {
    const char *variable, *key, *value;
} setting;

static const setting settings[] = {
    {"UCX_TLS", "TLS", "^posix"},
    {"UCX_SYSV_ERROR_HANDLING", "MM_ERROR_HANDLING", "y"},
    {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "inf"},
    {"UCX_TCP_PUT_ENABLE", "PUT_ENABLE", "n"},
    {"UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "64K"},
    {"UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "128K"},
};

static void append(char *list, size_t room, const char *device, const char *port)
{
    size_t used = strlen(list);
    snprintf(
        list + used, room - used, "%s%s%s%s", used ? "," : "", device, *port ? ":" : "", port);
}

/* Appends InfiniBand's ports, as "mlx5_0:1". */
static void append_ports(char *list, size_t room)
{
    static const char folder[] = "/sys/class/infiniband";
    char path[300];
    DIR *devices = opendir(folder);
    for (struct dirent *device; devices && (device = readdir(devices));) {
        snprintf(path, sizeof path, "%s/%.255s/ports", folder, device->d_name);
        DIR *ports = *device->d_name == '.' ? NULL : opendir(path);
        for (struct dirent *port; ports && (port = readdir(ports));)
            if (*port->d_name != '.')
                append(list, room, device->d_name, port->d_name);
        if (ports)
            closedir(ports);
    }
    if (devices)
        closedir(devices);
}

/* Lists all devices that carry messages to other machines; UCX 1.13 has no way to say "all
 * but". */
static void list_devices(char *list, size_t room)
{
    struct ifaddrs *all = NULL;
    *list = '\0';
    if (getifaddrs(&all) == 0)
        for (const struct ifaddrs *a = all; a; a = a->ifa_next)
            if (a->ifa_addr && a->ifa_addr->sa_family == AF_PACKET &&
                !(a->ifa_flags & IFF_LOOPBACK) && (a->ifa_flags & IFF_UP))
                append(list, room, a->ifa_name, "");
    freeifaddrs(all);
    append_ports(list, room);
}

static choir_status configure(ucp_config_t *config, int nodes)
{
    ucs_status_t s = UCS_OK;
    char devices[1024];
    list_devices(devices, sizeof devices);
    for (size_t i = 0; i < CHOIR_COUNT(settings) && s == UCS_OK; i++)
        if (!getenv(settings[i].variable))
            s = ucp_config_modify(config, settings[i].key, settings[i].value);
    if (s == UCS_OK && !getenv("UCX_NET_DEVICES"))
        s = ucp_config_modify(config, "NET_DEVICES",
            nodes == 1 ? "lo"
            : *devices ? devices
                       : "all");
    return s == UCS_OK ? CHOIR_OK : choir__ucx_trouble("its configuration", s);
}

choir_status choir__ucx_make_worker(choir__ucx_net *net, int nodes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const ucp_params_t wanted = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = (size_t)net->world,
        .name = "choir",
    };
    const ucp_worker_params_t how = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = 0,
        .cb = choir__ucx_on_message,
        .arg = net,
    };
    ucp_config_t *config;
    if (!getenv("UCX_LOG_LEVEL"))
        pthread_once(&once, keep_silence);
    ucs_status_t s = ucp_config_read(NULL, NULL, &config);
    if (s != UCS_OK)
        return choir__ucx_trouble("its configuration", s);
    choir_status status = configure(config, nodes);
    s = status != CHOIR_OK ? UCS_OK : ucp_init(&wanted, config, &net->context);
    ucp_config_release(config);
    if (status != CHOIR_OK)
        return status;
    if (s == UCS_OK)
        s = ucp_worker_create(net->context, &how, &net->worker);
    if (s == UCS_OK)
        s = ucp_worker_set_am_recv_handler(net->worker, &handler);
    if (s == UCS_OK)
        s = ucp_worker_get_efd(net->worker, &net->efd);
    return s == UCS_OK ? CHOIR_OK : choir__ucx_trouble("no worker", s);
}
