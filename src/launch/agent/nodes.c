/* Agents of several nodes, in a store that node 0's agent serves at the endpoint.
 *
 *   id         node 0's --rdzv-id, if it has one: an agent with another one goes
 *   job        node 0's version and number of nodes, which must be equal on all nodes
 *   node/K     the agent of node K: the first to claim the number
 *   agent/K    its number of workers; node K is ready
 *   start      by node 0, when all are ready: number of nodes, the job's secret, rank 0's place
 *   verdict    how the job ended: the first one counts. It is also each agent's last will
 *   done, left counts of agents whose workers are done, and of those that have read the verdict
 *   beat/K     a sign of life of node K's agent (pulse.h)
 *
 * A thread with its own connection waits for the verdict, and notifies the agent's loop by a
 * pipe. If node 0's agent ends, so does the store, and that is a verdict, too. */
#include "launch/agent/nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <choir/store.h>

#include "launch/agent/pulse.h"
#include "launch/store/client.h"

static const double look_s = 0.25;  /* how often a waiting agent looks for a verdict */
static const double call_s = 10;    /* for an answer: the agent's loop waits, too */
static const double farewell_s = 2; /* until the others have read the verdict */

struct choir__nodes {
    const choir__agent_opts *opts;
    choir_store_server *server; /* only on node 0 */
    choir_store *store;
    choir__pulse pulse;              /* the watcher's, with its connection */
    char who[CHOIR__HOST_TEXT + 32]; /* this agent: "node7 (pid 4711)" */
    int node, nodes;
    double deadline;
    pthread_t watcher;
    bool watched;
    bool cut_off; /* node 0 did not take this node's report */
    bool silent;  /* node 0 gave no answer for the time limit */
    int ends[2];  /* the watcher closes [1] once there is a verdict */
    choir__verdict verdict;
};

/* --- the verdict --- */

static void read_verdict(choir__verdict *v, const char *text)
{
    char *report;
    v->status = (int)strtol(text, &report, 10);
    snprintf(v->report, sizeof v->report, "%s", *report ? report + 1 : report);
}

static void *watch(void *arg)
{
    choir__nodes *n = arg;
    char *text = NULL;
    choir_status status = choir__pulse_await(&n->pulse, &text);
    n->verdict.status = 1;
    if (status == CHOIR_OK)
        read_verdict(&n->verdict, text);
    else if ((n->silent = status == CHOIR_ERR_TIMEOUT))
        snprintf(n->verdict.report, sizeof n->verdict.report, "choir run: %s",
            choir_error_message());
    else
        snprintf(n->verdict.report, sizeof n->verdict.report,
            "choir run: node 0 is gone: the agent at %s port %d answers no more (%s)",
            n->opts->endpoint, n->opts->endpoint_port, choir_error_message());
    free(text);
    close(n->ends[1]);
    return NULL;
}

int choir__nodes_fd(const choir__nodes *n)
{
    return n->ends[0];
}

static choir_status post_text(choir__nodes *n, int status, const char *report)
{
    char *text = choir__format("%d\n%s", status, report), *now = NULL;
    choir_status posted = choir_store_compare_set(n->store, "verdict", NULL, text, &now);
    free(text);
    free(now);
    return posted;
}

/* Ends the watcher: node 0 is out of reach, and TCP would take half a minute to find out. */
static void hang_up(choir__nodes *n)
{
    if (n->watched)
        shutdown(n->pulse.store->fd, SHUT_RDWR);
}

void choir__nodes_post(choir__nodes *n, int status, const char *report)
{
    int64_t done = 0;
    if (n->cut_off)
        return;
    n->store->timeout_s = 0; /* node 0 has the time that every answer gets */
    if (!status) {
        atomic_store(&n->pulse.done, true);
        if (choir_store_add(n->store, "done", 1, &done) == CHOIR_OK && done == n->nodes)
            post_text(n, 0, "");
        return;
    }
    n->cut_off = post_text(n, status, report) == CHOIR_ERR_TIMEOUT;
    if (n->cut_off)
        hang_up(n);
}

bool choir__nodes_cut_off(const choir__nodes *n)
{
    return n->cut_off;
}

const choir__verdict *choir__nodes_verdict(choir__nodes *n)
{
    if (n->watched)
        pthread_join(n->watcher, NULL);
    n->watched = false;
    return &n->verdict;
}

/* --- meeting --- */

/* Checks whether an agent has called off the meeting; then its report is the error. */
static choir_status called_off(choir__nodes *n)
{
    char *text;
    choir__verdict v;
    if (choir_store_get(n->store, "verdict", 0, &text, NULL) != CHOIR_OK)
        return CHOIR_OK;
    read_verdict(&v, text);
    free(text);
    const char *said = v.report, *name = "choir run: ";
    if (!strncmp(said, name, strlen(name)))
        said += strlen(name);
    return choir__error(CHOIR_ERR_PEER_LOST, "%s", said);
}

/* Posts this node's error, which ends the meeting for all. */
static choir_status call_off(choir__nodes *n, choir_status status)
{
    char *report = choir__format("choir run: %s", choir_error_message());
    post_text(n, 1, report);
    choir__set_message(report + strlen("choir run: "));
    free(report);
    return status;
}

/* Waits for keys, until the meeting is called off. */
static choir_status await(choir__nodes *n, const char *const *keys, int count, double until)
{
    for (;;) {
        double left = until - choir__now();
        choir_status status =
            choir_store_wait(n->store, keys, count, left < look_s ? left : look_s);
        if (status != CHOIR_ERR_TIMEOUT)
            return status;
        status = called_off(n);
        if (status != CHOIR_OK)
            return status;
        if (choir__now() >= until)
            return choir__error(CHOIR_ERR_TIMEOUT, "the other nodes did not come in time");
    }
}

static bool is_there(choir__nodes *n, int node)
{
    char key[32], *text;
    snprintf(key, sizeof key, "agent/%d", node);
    if (choir_store_get(n->store, key, 0, &text, NULL) != CHOIR_OK)
        return false;
    free(text);
    return true;
}

/* Serves the store if this is node 0: by option, or as the first at an endpoint of this
 * machine. */
static choir_status serve(choir__nodes *n, choir_store_opts o)
{
    const choir__agent_opts *opts = n->opts;
    struct in6_addr address;
    bool number = inet_pton(AF_INET, opts->endpoint, &address) == 1 ||
                  inet_pton(AF_INET6, opts->endpoint, &address) == 1 ||
                  !strcmp(opts->endpoint, "localhost");
    if (opts->node > 0)
        return CHOIR_OK;
    o.port = opts->endpoint_port;
    /* A machine's own name often resolves to its loopback, which other machines cannot
     * reach. */
    o.bind = opts->node == 0 && !number && opts->key_file ? "0.0.0.0" : opts->endpoint;
    choir_status status = choir_store_serve(o, &n->server);
    return status == CHOIR_ERR_IO && opts->node < 0 ? CHOIR_OK : status;
}

/* An agent of another job goes, and this job's nodes go on without it. */
static choir_status compare_ids(choir__nodes *n)
{
    const char *mine = n->opts->run_id;
    char *theirs = NULL, *who = NULL;
    choir_status status = CHOIR_OK;
    if (mine && choir_store_get(n->store, "id", 0, &theirs, NULL) == CHOIR_OK &&
        strcmp(mine, theirs) != 0) {
        (void)!choir_store_get(n->store, "node/0", 0, &who, NULL);
        status = choir__error(CHOIR_ERR_MISMATCH,
            "the job at %s port %d is '%s' (node 0: %s), and this one is '%s' (--rdzv-id): "
            "choose another port",
            n->opts->endpoint, n->opts->endpoint_port, theirs, who ? who : "?", mine);
    }
    free(theirs);
    free(who);
    return status;
}

/* Checks that this node has the same version and --nnodes as node 0. */
static choir_status compare_jobs(choir__nodes *n)
{
    const choir__agent_opts *opts = n->opts;
    const char *key = "job";
    char *mine = choir__format(
             "version %s, --nnodes %d:%d", CHOIR_VERSION, opts->nodes_min, opts->nodes_max),
         *theirs = NULL;
    choir_status status = await(n, &key, 1, n->deadline);
    if (status == CHOIR_OK)
        status = compare_ids(n);
    if (status == CHOIR_OK)
        status = choir_store_get(n->store, key, -1, &theirs, NULL);
    if (status == CHOIR_OK && strcmp(mine, theirs)) {
        choir__error(CHOIR_ERR_MISMATCH, "nodes disagree: %s has %s, node 0 has %s", n->who,
            mine, theirs);
        status = call_off(n, CHOIR_ERR_MISMATCH);
    }
    free(mine);
    free(theirs);
    return status;
}

static choir_status announce_job(choir__nodes *n)
{
    char *text = choir__format(
        "version %s, --nnodes %d:%d", CHOIR_VERSION, n->opts->nodes_min, n->opts->nodes_max);
    const char *id = n->opts->run_id;
    choir_status status = id ? choir_store_set(n->store, "id", id, strlen(id)) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = choir_store_set(n->store, "job", text, strlen(text));
    free(text);
    return status;
}

/* Becomes node `node`, unless another agent is. */
static choir_status claim(choir__nodes *n, int node, bool *mine, char **theirs)
{
    char key[32];
    snprintf(key, sizeof key, "node/%d", node);
    choir_status status = choir_store_compare_set(n->store, key, NULL, n->who, theirs);
    *mine = status == CHOIR_OK && !strcmp(*theirs, n->who);
    if (*mine)
        n->node = node;
    return status;
}

static choir_status take_place(choir__nodes *n)
{
    const choir__agent_opts *opts = n->opts;
    bool mine = false;
    char *theirs = NULL;
    choir_status status = CHOIR_OK;
    int first = opts->node < 0 ? 0 : opts->node;
    int last = opts->node < 0 ? opts->nodes_max - 1 : opts->node;
    for (int k = first; k <= last && !mine && status == CHOIR_OK; k++) {
        free(theirs);
        theirs = NULL;
        status = claim(n, k, &mine, &theirs);
    }
    if (status == CHOIR_OK && !mine && opts->node < 0)
        status = choir__error(CHOIR_ERR_MISMATCH,
            "all %d nodes are there already; this one, %s, is one too many", opts->nodes_max,
            n->who);
    else if (status == CHOIR_OK && !mine)
        status = choir__error(CHOIR_ERR_MISMATCH,
            "node %d is there already: %s; give each node a --node-rank of its own", first,
            theirs);
    free(theirs);
    return status;
}

/* Announces this agent to the others; its last will reports its death. */
static choir_status show_up(choir__nodes *n)
{
    char key[32], workers[16];
    int64_t came;
    char *will = choir__format(
        "1\nchoir run: node %d is gone: its agent, %s, died or was cut off", n->node, n->who);
    choir_status status = choir_store_will(n->store, "verdict", will, strlen(will));
    if (status == CHOIR_OK)
        status = choir_store_add(n->store, "came", 1, &came);
    snprintf(key, sizeof key, "agent/%d", n->node);
    snprintf(workers, sizeof workers, "%d", n->opts->nproc);
    if (status == CHOIR_OK)
        status = choir_store_set(n->store, key, workers, strlen(workers));
    free(will);
    return status;
}

static choir_status name_missing(choir__nodes *n)
{
    char names[256] = "";
    int missing = 0;
    for (int k = 0; k < n->opts->nodes_min; k++)
        if (!is_there(n, k)) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s%d", missing++ ? ", " : "", k);
        }
    return choir__error(CHOIR_ERR_TIMEOUT,
        "node%s %s of %d never came to %s port %d within %g s: was 'choir run' started there, with "
        "the same --nnodes, --rdzv-endpoint and --key-file?",
        missing > 1 ? "s" : "", names, n->opts->nodes_min, n->opts->endpoint,
        n->opts->endpoint_port, n->opts->timeout_s);
}

static choir_status await_agents(choir__nodes *n, int count, double until)
{
    char **keys = choir__calloc((size_t)count, sizeof *keys);
    for (int k = 0; k < count; k++)
        keys[k] = choir__format("agent/%d", k);
    choir_status status = await(n, (const char *const *)keys, count, until);
    for (int k = 0; k < count; k++)
        free(keys[k]);
    free(keys);
    return status;
}

choir_status choir__roster_name(const choir__agent_opts *opts, choir__roster *r)
{
    char random[CHOIR__JOB_TEXT];
    choir_status status = choir__job_random(random);
    if (opts->run_id)
        snprintf(r->run_id, sizeof r->run_id, "%s", opts->run_id);
    else
        snprintf(r->run_id, sizeof r->run_id, "%.12s", random);
    return status;
}

/* Node 0 decides when the job starts, and with which nodes. */
static choir_status start(choir__nodes *n, choir__roster *r)
{
    const choir__agent_opts *opts = n->opts;
    choir_status status = await_agents(n, opts->nodes_min, n->deadline);
    if (status == CHOIR_ERR_TIMEOUT)
        return call_off(n, name_missing(n));
    if (status == CHOIR_OK && opts->nodes_max > opts->nodes_min &&
        await_agents(n, opts->nodes_max, choir__now() + opts->last_call_s) == CHOIR_OK)
        n->nodes = opts->nodes_max;
    else
        for (n->nodes = opts->nodes_min; n->nodes < opts->nodes_max; n->nodes++)
            if (!is_there(n, n->nodes))
                break;
    int port = opts->master_port;
    if (status == CHOIR_OK)
        status = choir__job_random(r->job);
    if (status == CHOIR_OK)
        status = choir__roster_name(opts, r);
    if (status == CHOIR_OK && !port)
        status = choir__job_free_port(&port);
    if (status != CHOIR_OK)
        return status;
    char *text = choir__format("%d %s %s %d %s", n->nodes, r->job,
        *opts->master ? opts->master : opts->endpoint, port, r->run_id);
    status = choir_store_set(n->store, "start", text, strlen(text));
    free(text);
    return status;
}

static choir_status read_start(choir__nodes *n, choir__roster *r)
{
    const char *key = "start";
    char *text = NULL;
    /* node 0 reports the missing nodes first */
    choir_status status = await(n, &key, 1, n->deadline + 2);
    if (status == CHOIR_OK)
        status = choir_store_get(n->store, key, -1, &text, NULL);
    if (status == CHOIR_OK && sscanf(text, "%d %32s %255s %d %127s", &n->nodes, r->job,
                                  r->place.master, &r->place.master_port, r->run_id) != 5)
        status = choir__error(CHOIR_ERR_FORMAT, "node 0 said '%s'", text);
    if (status == CHOIR_OK && n->node >= n->nodes)
        status = choir__error(
            CHOIR_ERR_MISMATCH, "the job has started on %d nodes, without this one", n->nodes);
    free(text);
    return status;
}

/* Distributes ranks node after node, one per worker. */
static choir_status count_ranks(choir__nodes *n, choir__roster *r)
{
    int64_t world = 0;
    for (int k = 0; k < n->nodes; k++) {
        char key[32], *text;
        snprintf(key, sizeof key, "agent/%d", k);
        choir_status status = choir_store_get(n->store, key, -1, &text, NULL);
        if (status != CHOIR_OK)
            return status;
        if (k == n->node)
            r->place.rank = (int)world;
        world += atoi(text);
        free(text);
    }
    r->place.world = (int)world;
    r->place.local_world = n->opts->nproc;
    r->place.node = n->node;
    r->place.nodes = n->nodes;
    return CHOIR_OK;
}

static choir_status start_watcher(choir__nodes *n, choir_store_opts o)
{
    choir__pulse *p = &n->pulse;
    choir_status status =
        choir_store_connect(n->opts->endpoint, n->opts->endpoint_port, o, &p->store);
    if (status != CHOIR_OK)
        return status;
    p->node = n->node;
    p->nodes = n->nodes;
    p->timeout_s = n->opts->timeout_s;
    if (pipe2(n->ends, O_CLOEXEC))
        return choir__error(CHOIR_ERR_IO, "no pipe: %s", choir__why(errno));
    int why = pthread_create(&n->watcher, NULL, watch, n);
    n->watched = why == 0;
    return why ? choir__error(CHOIR_ERR_IO, "no thread: %s", choir__why(why)) : CHOIR_OK;
}

static choir_status reach(choir__nodes *n, choir_store_opts o)
{
    choir_status status;
    do {
        double left = n->deadline - choir__now();
        o.timeout_s = left < call_s ? left : call_s;
        status = choir_store_connect(n->opts->endpoint, n->opts->endpoint_port, o, &n->store);
    } while (status == CHOIR_ERR_TIMEOUT && choir__now() < n->deadline);
    if (status != CHOIR_ERR_TIMEOUT)
        return status;
    char why[400];
    snprintf(why, sizeof why, "%s", choir_error_message());
    return choir__error(status,
        "node 0 never came within %g s: was 'choir run' started there? (%s)",
        n->opts->timeout_s, why);
}

static choir_status meet(choir__nodes *n, choir__roster *r)
{
    choir_store_opts o = choir_store_defaults();
    o.key_file = n->opts->key_file;
    o.timeout_s = call_s;
    choir_status status = serve(n, o);
    if (status == CHOIR_OK)
        status = reach(n, o);
    if (status == CHOIR_OK && !n->server)
        status = compare_jobs(n);
    if (status == CHOIR_OK)
        status = take_place(n);
    if (status == CHOIR_OK)
        status = show_up(n);
    if (status == CHOIR_OK && n->server)
        status = announce_job(n);
    if (status == CHOIR_OK && n->server)
        status = start(n, r);
    if (status == CHOIR_OK)
        status = read_start(n, r);
    if (status == CHOIR_OK)
        status = count_ranks(n, r);
    return status == CHOIR_OK ? start_watcher(n, o) : status;
}

choir_status choir__nodes_meet(
    const choir__agent_opts *opts, choir__roster *roster, choir__nodes **nodes)
{
    char host[CHOIR__HOST_TEXT] = "?";
    choir__nodes *n = choir__calloc(1, sizeof *n);
    gethostname(host, sizeof host - 1);
    *n = (choir__nodes){
        .opts = opts, .node = -1, .ends = {-1, -1}, .deadline = choir__now() + opts->timeout_s};
    snprintf(n->who, sizeof n->who, "%s (pid %d)", host, (int)getpid());
    choir_status status = meet(n, roster);
    *nodes = n;
    return status;
}

/* --- leaving --- */

/* Waits until the others have left, or take too long. */
static void see_off(choir__nodes *n)
{
    struct timespec moment = {0, 10000000};
    int64_t came = 0, left = 0;
    for (double end = choir__now() + farewell_s; choir__now() < end;) {
        if (choir_store_add(n->store, "came", 0, &came) != CHOIR_OK ||
            choir_store_add(n->store, "left", 0, &left) != CHOIR_OK || left >= came - 1)
            return;
        nanosleep(&moment, NULL);
    }
}

void choir__nodes_leave(choir__nodes *n)
{
    int64_t left;
    if (!n)
        return;
    choir__nodes_verdict(n);
    if (n->store && n->server)
        see_off(n);
    else if (n->store && n->node >= 0 && !n->cut_off && !n->silent)
        (void)!choir_store_add(n->store, "left", 1, &left);
    if (n->ends[0] >= 0)
        close(n->ends[0]);
    choir_store_free(n->pulse.store);
    choir_store_free(n->store);
    choir_store_server_free(n->server);
    free(n);
}
