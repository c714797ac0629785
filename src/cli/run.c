/* choir run: options of the launcher, under torchrun's names; src/elastic does the work. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

#include "base/options.h"
#include "cli/cli.h"
#include "comm/recorder.h"
#include "launch/process/process.h"
#include "launch/agent/agent.h"

static void help(void)
{
    printf("Usage: choir run [OPTION]... COMMAND [ARGUMENT]...\n\n"
           "Starts COMMAND as several ranks, on this machine or on several, and sees to\n"
           "their output, signals and failures. Options and environment are torchrun's:\n"
           "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and so on. When a rank\n"
           "fails all are stopped; a report says which, how, and what it wrote last.\n"
           "SIGUSR1 has the last collectives of every rank written, as choir top --dump.\n\n"
           "  -n N                       the same as --standalone --nproc-per-node N\n"
           "  --nproc-per-node N         ranks on this node, or auto, gpu, cpu: one a\n"
           "                             device (default 1)\n"
           "  --max-restarts N           start all ranks again after a failure, so often\n"
           "                             (default 0; on one node)\n\n"
           "Several nodes: one choir run on each, with the same of these\n"
           "  --nnodes N or MIN:MAX      nodes (default 1)\n"
           "  --rdzv-endpoint HOST:PORT  where they meet: on node 0 (default port 29400)\n"
           "  --node-rank N              which node this is (default: by order of arrival)\n"
           "  --key-file FILE            the job's key (mode 0600); wanted but on loopback\n"
           "  --timeout S                how long a node waits for others (default 300)\n"
           "  --rdzv-id NAME             of this run, in the names of log files\n"
           "  --rdzv-backend NAME        static or c10d; both mean Choir's own\n"
           "  --master-addr HOST, --master-port PORT\n"
           "                             of the ranks (default: node 0, a free port); with\n"
           "                             --nnodes and no endpoint: where nodes meet\n"
           "  --standalone               one node\n"
           "  --monitor-interval S       no effect: failures are seen at once\n\n"
           "Output: 0 none, 1 stdout, 2 stderr, 3 both, or for single ranks as 0:3,1:2\n"
           "  -r, --redirects N          into files, not to the terminal\n"
           "  -t, --tee N                into files and to the terminal\n"
           "  --log-dir DIR              DIR/RUN_ID/attempt_0/RANK/stdout.log (and if there\n"
           "                             is no -r, as with -t 3)\n"
           "  --local-ranks-filter LIST  only these local ranks, as 0,1, to the terminal\n\n"
           "Example: two ranks, as DDP:\n"
           "  choir run -n 2 choir train --strategy ddp --steps 500\n");
}

enum option_id {
    NPROC = 256,
    NNODES,
    NODE_RANK,
    MASTER_ADDR,
    MASTER_PORT,
    STANDALONE,
    RDZV_BACKEND,
    RDZV_ENDPOINT,
    RDZV_ID,
    MAX_RESTARTS,
    MONITOR_INTERVAL,
    REDIRECTS,
    TEE,
    LOG_DIR,
    FILTER,
    TIMEOUT,
    KEY_FILE,
    HELP
};

static const struct option known[] = {
    {"nproc-per-node", required_argument, NULL, NPROC},
    {"nnodes", required_argument, NULL, NNODES},
    {"node-rank", required_argument, NULL, NODE_RANK},
    {"master-addr", required_argument, NULL, MASTER_ADDR},
    {"master-port", required_argument, NULL, MASTER_PORT},
    {"standalone", no_argument, NULL, STANDALONE},
    {"rdzv-backend", required_argument, NULL, RDZV_BACKEND},
    {"rdzv-endpoint", required_argument, NULL, RDZV_ENDPOINT},
    {"rdzv-id", required_argument, NULL, RDZV_ID},
    {"max-restarts", required_argument, NULL, MAX_RESTARTS},
    {"monitor-interval", required_argument, NULL, MONITOR_INTERVAL},
    {"redirects", required_argument, NULL, REDIRECTS},
    {"tee", required_argument, NULL, TEE},
    {"log-dir", required_argument, NULL, LOG_DIR},
    {"local-ranks-filter", required_argument, NULL, FILTER},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"key-file", required_argument, NULL, KEY_FILE},
    {"help", no_argument, NULL, HELP},
};

typedef struct launch {
    choir__agent_opts opts;
    const char *nproc, *nnodes, *endpoint, *redirects, *tee, *filter;
    bool standalone;
    choir__routes routes[CHOIR__CHILDREN_MAX];
} launch;

/* --- single values --- */

static int number(const char *option, const char *text, int low, int high, int *value)
{
    int64_t n;
    if (!choir__parse_int(text, low, high, &n))
        return choir__cli_usage(
            "run", "--%s %s: a whole number from %d to %d is wanted", option, text, low, high);
    *value = (int)n;
    return CHOIR__EXIT_OK;
}

static int name(const char *option, const char *text, size_t bytes)
{
    if (!*text || strlen(text) >= bytes || strpbrk(text, " \t\n/") || *text == '.')
        return choir__cli_usage(
            "run", "--%s '%s': a word is wanted, without blanks and slashes", option, text);
    return CHOIR__EXIT_OK;
}

static int backend(const char *text)
{
    if (!strcmp(text, "static") || !strcmp(text, "c10d"))
        return CHOIR__EXIT_OK;
    return choir__cli_usage(
        "run", "--rdzv-backend %s: there are static and c10d, and both mean Choir's own", text);
}

static int set_option(launch *l, int id, const char *text)
{
    choir__agent_opts *o = &l->opts;
    double seconds;
    switch (id) {
    case 'n':
        l->standalone = true;
        l->nproc = text;
        break;
    case NPROC: l->nproc = text; break;
    case NNODES: l->nnodes = text; break;
    case NODE_RANK: return number("node-rank", text, 0, CHOIR__CHILDREN_MAX - 1, &o->node);
    case MASTER_ADDR:
        snprintf(o->master, sizeof o->master, "%s", text);
        return name("master-addr", text, sizeof o->master);
    case MASTER_PORT: return number("master-port", text, 1, 65535, &o->master_port);
    case STANDALONE: l->standalone = true; break;
    case RDZV_BACKEND: return backend(text);
    case RDZV_ENDPOINT: l->endpoint = text; break;
    case RDZV_ID: o->run_id = text; return name("rdzv-id", text, 128);
    case MAX_RESTARTS: return number("max-restarts", text, 0, 1000000, &o->max_restarts);
    case 'r':
    case REDIRECTS: l->redirects = text; break;
    case 't':
    case TEE: l->tee = text; break;
    case LOG_DIR: o->log_dir = text; break;
    case FILTER: l->filter = text; break;
    case KEY_FILE:
        o->key_file = realpath(text, NULL); /* for ranks that go to other folders */
        if (!o->key_file)
            return choir__cli_usage("run", "--key-file %s: %s", text, strerror(errno));
        break;
    case MONITOR_INTERVAL:
    case TIMEOUT:
        if (!choir__parse_float(text, 0, 1e9, id == TIMEOUT ? &o->timeout_s : &seconds))
            return choir__cli_usage("run", "--%s %s: seconds are wanted",
                id == TIMEOUT ? "timeout" : "monitor-interval", text);
        break;
    default: break;
    }
    return CHOIR__EXIT_OK;
}

/* --- what belongs together --- */

static int count_ranks(launch *l)
{
    const char *text = l->nproc ? l->nproc : "1";
    bool automatic = !strcmp(text, "auto"), gpu = !strcmp(text, "gpu");
    char why[512];
    if (automatic || gpu)
        l->opts.nproc = choir__device_look("cuda", why, sizeof why);
    if (gpu && l->opts.nproc < 1)
        return choir__cli_usage("run", "--nproc-per-node gpu: %s", why);
    if (l->opts.nproc > 0)
        setenv("CHOIR_DEVICE", "cuda", 0);
    if (!strcmp(text, "cpu") || (automatic && l->opts.nproc < 1))
        l->opts.nproc = choir_device_count("cpu");
    if (l->opts.nproc > 0)
        return CHOIR__EXIT_OK;
    int64_t n;
    if (!choir__parse_int(text, 1, CHOIR__CHILDREN_MAX, &n))
        return choir__cli_usage("run",
            "%s %s: a number of ranks from 1 to %d is wanted, or auto, gpu or cpu",
            l->standalone ? "-n" : "--nproc-per-node", text, CHOIR__CHILDREN_MAX);
    l->opts.nproc = (int)n;
    return CHOIR__EXIT_OK;
}

/* "2" or "1:4". */
static int count_nodes(launch *l)
{
    choir__agent_opts *o = &l->opts;
    const char *text = l->nnodes ? l->nnodes : "1", *colon = strchr(text, ':');
    char low[32];
    int64_t fewest, most;
    snprintf(low, sizeof low, "%.*s", colon ? (int)(colon - text) : 31, text);
    if (!choir__parse_int(low, 1, CHOIR__CHILDREN_MAX, &fewest) ||
        !choir__parse_int(colon ? colon + 1 : low, fewest, CHOIR__CHILDREN_MAX, &most))
        return choir__cli_usage(
            "run", "--nnodes %s: a number of nodes is wanted, or MIN:MAX", text);
    if (l->standalone && most > 1)
        return choir__cli_usage(
            "run", "--standalone (or -n) is for one node, and --nnodes is %s", text);
    o->nodes_min = (int)fewest;
    o->nodes_max = (int)most;
    if (o->node >= o->nodes_max)
        return choir__cli_usage("run", "--node-rank %d: with --nnodes %s it is 0 to %d",
            o->node, text, o->nodes_max - 1);
    return CHOIR__EXIT_OK;
}

/* Where nodes meet: the endpoint; else at the master's address, as torchrun's static backend.
 */
static int find_endpoint(launch *l)
{
    choir__agent_opts *o = &l->opts;
    if (o->nodes_max == 1)
        return CHOIR__EXIT_OK;
    if (!l->endpoint && !*o->master)
        return choir__cli_usage("run",
            "--nnodes %s: where do they meet? Give all of them --rdzv-endpoint HOST:PORT",
            l->nnodes);
    o->endpoint_port = l->endpoint ? 29400 : o->master_port ? o->master_port : 29500;
    if (!l->endpoint) {
        memcpy(o->endpoint, o->master, sizeof o->endpoint);
        o->master_port = 0; /* taken, by us */
    } else if (choir__host_port(l->endpoint, o->endpoint, &o->endpoint_port) != CHOIR_OK) {
        return choir__cli_usage("run", "--rdzv-endpoint %s", choir_error_message());
    }
    if (o->max_restarts)
        return choir__cli_usage("run",
            "--max-restarts %d with --nnodes %s: restarts are for one node so far",
            o->max_restarts, l->nnodes);
    return CHOIR__EXIT_OK;
}

/* "3", or "0:3,1:2": bit by bit into what `add` says. */
static int parse_streams(launch *l, const char *option, const char *text, bool tee)
{
    int64_t all, rank, which;
    bool same = choir__parse_int(text, 0, 3, &all);
    char part[32];
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)length, at);
        char *colon = strchr(part, ':');
        if (colon)
            *colon = '\0';
        if (!same && (!colon || length >= sizeof part ||
                         !choir__parse_int(part, 0, l->opts.nproc - 1, &rank) ||
                         !choir__parse_int(colon + 1, 0, 3, &which)))
            break;
        for (int i = same ? 0 : (int)rank; i < (same ? l->opts.nproc : (int)rank + 1); i++) {
            unsigned char bits = (unsigned char)(same ? all : which);
            l->routes[i].file |= bits;
            l->routes[i].shown =
                tee ? l->routes[i].shown | bits : l->routes[i].shown & (unsigned char)~bits;
        }
        at += length + (at[length] == ',');
        if (!*at && at[-1] != ',')
            return CHOIR__EXIT_OK;
    }
    return choir__cli_usage("run",
        "--%s %s: 0 to 3 is wanted, or RANK:N,... with local ranks 0 to %d, as 0:3", option,
        text, l->opts.nproc - 1);
}

static int parse_filter(launch *l)
{
    bool shown[CHOIR__CHILDREN_MAX] = {false};
    int64_t rank;
    char part[16];
    for (const char *at = l->filter;;) {
        size_t length = strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)(length < 15 ? length : 15), at);
        if (!choir__parse_int(part, 0, l->opts.nproc - 1, &rank))
            return choir__cli_usage("run",
                "--local-ranks-filter %s: local ranks are wanted, from 0 to %d, as 0,1",
                l->filter, l->opts.nproc - 1);
        shown[rank] = true;
        at += length;
        if (!*at++)
            break;
    }
    for (int i = 0; i < l->opts.nproc; i++)
        if (!shown[i])
            l->routes[i].shown = 0;
    return CHOIR__EXIT_OK;
}

static int route_output(launch *l)
{
    int status = CHOIR__EXIT_OK;
    const char *tee = l->tee ? l->tee : l->opts.log_dir && !l->redirects ? "3" : NULL;
    for (int i = 0; i < l->opts.nproc; i++)
        l->routes[i] = (choir__routes){.file = 0, .shown = 3};
    if (l->redirects)
        status = parse_streams(l, "redirects", l->redirects, false);
    if (tee && status == CHOIR__EXIT_OK)
        status = parse_streams(l, "tee", tee, true);
    if (l->filter && status == CHOIR__EXIT_OK)
        status = parse_filter(l);
    return status;
}

/* --- the command line --- */

/* torchrun takes each name with dashes and with underscores. */
static void spell_both(struct option *all, char names[][32])
{
    size_t n = CHOIR_COUNT(known), added = 0;
    memcpy(all, known, sizeof known);
    for (size_t i = 0; i < n; i++) {
        if (!strchr(known[i].name, '-'))
            continue;
        snprintf(names[added], 32, "%s", known[i].name);
        for (char *c = names[added]; *c; c++)
            if (*c == '-')
                *c = '_';
        all[n + added] = known[i];
        all[n + added].name = names[added];
        added++;
    }
    all[n + added] = (struct option){NULL, 0, NULL, 0};
}

static int parse(launch *l, int argc, char **argv, bool *done)
{
    struct option all[2 * CHOIR_COUNT(known) + 1];
    char names[CHOIR_COUNT(known)][32];
    spell_both(all, names);
    opterr = 0;
    optind = 1;
    for (int id; (id = getopt_long(argc, argv, "+:n:r:t:h", all, NULL)) != -1;) {
        *done = id == HELP || id == 'h';
        if (*done) {
            help();
            return CHOIR__EXIT_OK;
        }
        if (id == ':')
            return choir__cli_usage("run", "%s wants a value", argv[optind - 1]);
        if (id == '?')
            return choir__cli_unknown("run", argv);
        int status = set_option(l, id, optarg);
        if (status != CHOIR__EXIT_OK)
            return status;
    }
    if (optind >= argc)
        return choir__cli_usage("run", "a COMMAND is wanted");
    l->opts.command = argv + optind;
    return CHOIR__EXIT_OK;
}

int choir__cli_run(int argc, char **argv)
{
    static launch l;
    bool done = false;
    l.opts = (choir__agent_opts){
        .node = -1, .timeout_s = 300, .routes = l.routes, .show = choir__recorder_dump};
    int status = parse(&l, argc, argv, &done);
    if (status != CHOIR__EXIT_OK || done)
        return status;
    status = count_ranks(&l);
    if (status == CHOIR__EXIT_OK)
        status = count_nodes(&l);
    if (status == CHOIR__EXIT_OK)
        status = find_endpoint(&l);
    if (status == CHOIR__EXIT_OK)
        status = route_output(&l);
    if (status != CHOIR__EXIT_OK)
        return status;
    return choir__agent_run(&l.opts);
}
