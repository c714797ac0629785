/* A worker, and endpoints to all ranks.
 *
 * Each rank writes two addresses of its worker into the store: one with all ways to reach it,
 * for ranks of the same machine, and one of the network's alone. UCX by itself would take two
 * containers or network namespaces of one kernel for one machine.
 *
 * UCX uses shared memory of the kind that goes with the last process (System V, marked for
 * removal while in use; POSIX segments would stay in /dev/shm after SIGKILL) and reads out of
 * the peer's memory; TCP; InfiniBand where it is there. The loopback device is for jobs of one
 * machine alone: all machines have one, and all of them the same address.
 *
 * Over TCP it must copy: the zero-copy sends of UCX 1.13 complete twice when the connection
 * breaks in the middle of one, and an assertion of its own then ends the process. In pieces of
 * 64 KiB that is no slower. InfiniBand and reads of the peer's memory stay without copies where
 * it counts, in rendezvous.
 *
 * UCX prints what it thinks of things. What matters of it ends up in a sentence of ours, so
 * nothing is printed, unless UCX_LOG_LEVEL asks for it. */
#include "comm/ucx/ucx.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

enum { CLOSE_S = 5 };             /* how long what was sent may take to leave */
static const double look_s = 0.1; /* how often who waits for others to open asks after them */

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

static choir_status failed(const char *what, ucs_status_t status)
{
    return choir__error(CHOIR_ERR_IO,
        "UCX: %s: %s; UCX_LOG_LEVEL=info says more, UCX_TLS and UCX_NET_DEVICES choose others",
        what, ucs_status_string(status));
}

/* What UCX is told, unless the environment has the variable. Those of transports go by another
 * name here, and by none of the transport. */
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

/* InfiniBand's ports, as "mlx5_0:1". */
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

/* All that carries messages to other machines; UCX 1.13 has no way to say "all but". */
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
    return s == UCS_OK ? CHOIR_OK : failed("its configuration", s);
}

static choir_status make_worker(choir__ucx_net *net, int nodes)
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
        return failed("its configuration", s);
    choir_status status = configure(config, nodes);
    s = status ? UCS_OK : ucp_init(&wanted, config, &net->context);
    ucp_config_release(config);
    if (status)
        return status;
    if (s == UCS_OK)
        s = ucp_worker_create(net->context, &how, &net->worker);
    if (s == UCS_OK)
        s = ucp_worker_set_am_recv_handler(net->worker, &handler);
    if (s == UCS_OK)
        s = ucp_worker_get_efd(net->worker, &net->efd);
    return s == UCS_OK ? CHOIR_OK : failed("no worker", s);
}

/* --- addresses --- */

static choir_status publish(choir__ucx_net *net, bool network_only)
{
    ucp_worker_attr_t worker = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = network_only ? UCP_WORKER_ADDRESS_FLAG_NET_ONLY : 0,
    };
    char key[128];
    ucs_status_t s = ucp_worker_query(net->worker, &worker);
    if (s != UCS_OK)
        return failed("no address", s);
    snprintf(
        key, sizeof key, "%s/%s/%d", net->prefix, network_only ? "far" : "near", net->rank);
    choir_status status =
        choir_store_set(net->store, key, worker.address, worker.address_length);
    ucp_worker_release_address(net->worker, worker.address);
    return status;
}

/* Names the ranks whose addresses did not come. */
static choir_status missing(choir__ucx_net *net, double timeout_s)
{
    char who[200] = "", key[128], *value;
    size_t used = 0;
    int count = 0;
    for (int r = 0; r < net->world && used + 16 < sizeof who; r++) {
        snprintf(key, sizeof key, "%s/far/%d", net->prefix, r);
        if (choir_store_get(net->store, key, 0, &value, NULL) == CHOIR_OK) {
            free(value);
            continue;
        }
        used += (size_t)snprintf(who + used, sizeof who - used, count++ ? ", %d" : "%d", r);
    }
    return choir__error(CHOIR_ERR_TIMEOUT,
        "rank%s %s did not open backend 'ucx' within %g s: is it the same on all ranks?",
        count == 1 ? "" : "s", who, timeout_s);
}

/* A rank that is gone: its process, if it is one of this machine, or its last will; -1: none.
 */
static int find_dead(choir__ucx_net *net)
{
    char key[128], *value;
    for (int r = 0; r < net->world; r++) {
        struct pollfd process = {.fd = net->far[r].pid_fd, .events = POLLIN};
        if (process.fd >= 0 && poll(&process, 1, 0) == 1)
            return r;
    }
    snprintf(key, sizeof key, "%s/dead", net->prefix);
    if (choir_store_get(net->store, key, 0, &value, NULL))
        return -1;
    int rank = atoi(value);
    free(value);
    return rank >= 0 && rank < net->world ? rank : -1;
}

/* The address of a rank, unless somebody dies meanwhile. */
static choir_status await_address(choir__ucx_net *net, const choir__meeting *meeting,
    const char *key, double until, char **address)
{
    choir_status status;
    int dead = -1;
    do {
        double left = until - choir__now(), slice = left < look_s ? left : look_s;
        status = choir_store_get(net->store, key, slice > 0 ? slice : 0, address, NULL);
        if (status)
            dead = find_dead(net);
    } while (status == CHOIR_ERR_TIMEOUT && dead < 0 && choir__now() < until);
    if (dead >= 0)
        return CHOIR_ERR_PEER_LOST;
    return status == CHOIR_ERR_TIMEOUT ? missing(net, meeting->timeout_s) : status;
}

/* Where the store has gone, the rank that kept it will be gone, too, or in a moment. */
static choir_status name_the_dead(choir__ucx_net *net, const choir__meeting *meeting)
{
    int dead = find_dead(net);
    for (int i = 0; dead < 0 && i < 50; i++) {
        poll(NULL, 0, 10);
        dead = find_dead(net);
    }
    if (dead < 0)
        return CHOIR_ERR_PEER_LOST; /* in the store's words */
    return choir__error(CHOIR_ERR_PEER_LOST,
        "rank %d (pid %d on %s) died while the ranks opened backend 'ucx'", dead,
        meeting->members[dead].pid, meeting->members[dead].host);
}

static void on_loss(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    choir__ucx_net *net = arg;
    for (int r = 0; r < net->world; r++)
        if (net->far[r].ep == ep && net->far[r].lost == UCS_OK) {
            net->far[r].lost = status;
            net->losses++;
        }
}

static choir_status connect_to(
    choir__ucx_net *net, const choir__meeting *meeting, int rank, double until)
{
    const choir__member *me = &meeting->members[net->rank], *they = &meeting->members[rank];
    bool near = strcmp(me->machine, they->machine) == 0;
    char key[128], *address;
    snprintf(key, sizeof key, "%s/%s/%d", net->prefix, near ? "near" : "far", rank);
    choir_status status = await_address(net, meeting, key, until, &address);
    if (status)
        return status;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (ucp_address_t *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_loss, .arg = net},
    };
    ucs_status_t s = ucp_ep_create(net->worker, &params, &net->far[rank].ep);
    free(address);
    if (s != UCS_OK)
        return choir__error(CHOIR_ERR_IO, "UCX: no way to reach rank %d (pid %d on %s): %s",
            rank, they->pid, they->host, ucs_status_string(s));
    return CHOIR_OK;
}

/* --- opening --- */

/* Groups that the same ranks open one after another find their own keys: each rank counts. */
static choir_status choose_prefix(choir__ucx_net *net)
{
    char key[64];
    int64_t times;
    snprintf(key, sizeof key, "ucx/opened/%d", net->rank);
    choir_status status = choir_store_add(net->store, key, 1, &times);
    snprintf(net->prefix, sizeof net->prefix, "ucx/%lld", (long long)times);
    return status;
}

static bool is_crowded(const choir__meeting *meeting)
{
    cpu_set_t cores;
    int here = 0;
    for (int r = 0; r < meeting->world; r++)
        here += meeting->members[r].node == meeting->members[meeting->rank].node;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && here > CPU_COUNT(&cores);
}

/* The processes of this machine, as files that tell when they end. */
static void watch_processes(choir__ucx_net *net, const choir__meeting *meeting)
{
    const choir__member *all = meeting->members;
    for (int r = 0; r < net->world; r++)
        if (r != net->rank && strcmp(all[r].machine, all[net->rank].machine) == 0)
            net->far[r].pid_fd = (int)syscall(SYS_pidfd_open, all[r].pid, 0);
}

static choir_status join(choir__ucx_net *net, const choir__meeting *meeting)
{
    char key[128], rank[16];
    double until = choir__now() + meeting->timeout_s;
    watch_processes(net, meeting);
    choir_status status = choose_prefix(net);
    snprintf(key, sizeof key, "%s/dead", net->prefix);
    snprintf(rank, sizeof rank, "%d", net->rank);
    if (!status)
        status = choir_store_will(net->store, key, rank, strlen(rank));
    if (!status)
        status = publish(net, false);
    if (!status)
        status = publish(net, true);
    for (int r = 0; r < net->world && !status; r++)
        status = connect_to(net, meeting, r, until);
    return status == CHOIR_ERR_PEER_LOST ? name_the_dead(net, meeting) : status;
}

choir_status choir__ucx_net_open(const choir__meeting *meeting, choir__ucx_net **made)
{
    choir_status status;
    choir__ucx_net *net;
    if (meeting->world > 1 && (!meeting->store || !meeting->members))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "backend 'ucx' meets by tcp://host:port, file://path or env:// with MASTER_ADDR: "
            "the name of a job alone is for 'shm'");
    net = choir__calloc(1, sizeof *net);
    pthread_mutex_init(&net->lock, NULL);
    net->rank = meeting->rank;
    net->world = meeting->world;
    net->store = meeting->store;
    net->dead_rank = -1;
    net->far = choir__calloc((size_t)net->world, sizeof *net->far);
    for (int r = 0; r < net->world; r++)
        net->far[r].pid_fd = -1;
    status = make_worker(net, meeting->nodes);
    if (!status && net->world > 1) {
        net->crowded = is_crowded(meeting);
        status = join(net, meeting);
    }
    if (status)
        choir__ucx_net_close(net, false);
    else
        *made = net;
    return status;
}

/* --- closing --- */

static void progress_until(choir__ucx_net *net, void *request, double until)
{
    if (!UCS_PTR_IS_PTR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && choir__now() < until)
        if (!ucp_worker_progress(net->worker))
            sched_yield();
    ucp_request_free(request);
}

static ucs_status_ptr_t close_endpoint(choir__ucx_far *far, bool by_force)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = by_force ? UCP_EP_CLOSE_FLAG_FORCE : 0,
    };
    ucp_ep_h ep = far->ep;
    far->ep = NULL;
    return ep ? ucp_ep_close_nbx(ep, &param) : NULL;
}

void choir__ucx_drop(choir__ucx_net *net, int net_rank)
{
    choir__ucx_far *far = &net->far[net_rank];
    if (!far->ep)
        return;
    if (far->lost == UCS_OK) {
        far->lost = UCS_ERR_CANCELED;
        net->losses++;
    }
    progress_until(net, close_endpoint(far, true), choir__now() + 1);
}

static void close_endpoints(choir__ucx_net *net, bool in_order)
{
    const ucp_request_param_t none = {0};
    double until = choir__now() + CLOSE_S;
    if (in_order && !net->losses)
        progress_until(net, ucp_worker_flush_nbx(net->worker, &none), until);
    for (int r = 0; r < net->world; r++) {
        bool by_force = !in_order || net->far[r].lost != UCS_OK;
        progress_until(net, close_endpoint(&net->far[r], by_force), until);
    }
}

void choir__ucx_net_close(choir__ucx_net *net, bool in_order)
{
    if (net->worker) {
        close_endpoints(net, in_order);
        for (choir__ucx_early *early; (early = net->strangers);) {
            net->strangers = early->next;
            if (early->ours)
                free(early->data);
            else
                ucp_am_data_release(net->worker, early->data);
            free(early);
        }
        ucp_worker_destroy(net->worker);
    }
    if (net->context)
        ucp_cleanup(net->context);
    for (int r = 0; r < net->world; r++)
        if (net->far[r].pid_fd >= 0)
            close(net->far[r].pid_fd);
    for (choir__ucx_op *op; (op = net->free_ops);) {
        net->free_ops = op->next;
        free(op);
    }
    pthread_mutex_destroy(&net->lock);
    free(net->far);
    free(net);
}
