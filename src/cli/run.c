/* choir run: options of the launcher, under torchrun's names; src/launch/agent does the work.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

#include "line/command.h"
#include "cli/torchrun.h"
#include "comm/flight/flight.h"
#include "launch/process/process.h"
#include "launch/agent/agent.h"

typedef struct launch {
    char **argv; /* with the options of variables; as long as the process */
    choir__agent_opts opts;
    const char *nproc, *nnodes, *endpoint, *master, *redirects, *tee, *filter, *key_file;
    const char *conf, *local, *signals, *numa, *specs, *completion;
    const char *copied[2]; /* stdout, stderr */
    bool virtual_rank;
    bool module, script, plain; /* -m, --run-path, --no-python */
    /* checked, and without effect */
    const char *backend, *start_method, *events;
    double monitor_interval;
    bool standalone;
    choir__routes routes[CHOIR__CHILDREN_MAX];
} launch;

/* --- single values --- */

static int check_name(const char *option, const char *text, size_t bytes)
{
    if (text && (!*text || strlen(text) >= bytes || strpbrk(text, " \t\n/") || *text == '.'))
        return choir__line_usage(
            "run", "--%s: expected a word without blanks and slashes, got '%s'", option, text);
    return CHOIR__EXIT_OK;
}

/* -n N is --standalone --nproc-per-node N. --print-completion, which needs no command, is
 * refused before a missing one is. */
static int took(void *values, const choir__line_option *o, const char *text)
{
    launch *l = values;
    if (o->letter == 'n')
        l->standalone = true;
    if (o->at == offsetof(launch, completion))
        return choir__line_usage("run",
            "--print-completion %s: choir prints no completions; bash reads them from "
            "share/bash-completion/completions/choir of the installation",
            text);
    return CHOIR__EXIT_OK;
}

/* torchrun's options that choir run does not have. */
static int refuse(const launch *l)
{
    if (l->numa)
        return choir__line_usage("run",
            "--numa-binding %s: choir run binds no ranks to processors; start them under srun "
            "--cpu-bind or numactl",
            l->numa);
    if (l->copied[0] || l->copied[1])
        return choir__line_usage("run",
            "--duplicate-%s-filters: choir run copies no lines into a further file; --tee 3 "
            "writes a file per rank",
            l->copied[0] ? "stdout" : "stderr");
    if (l->virtual_rank)
        return choir__line_usage("run",
            "--virtual-local-rank: each rank sees all GPUs and takes that of its LOCAL_RANK; "
            "CUDA_VISIBLE_DEVICES chooses among them");
    return CHOIR__EXIT_OK;
}

static int check_values(launch *l)
{
    int status = check_name("master-addr", l->master, sizeof l->opts.master);
    if (status == CHOIR__EXIT_OK)
        status = check_name("rdzv-id", l->opts.run_id, 128);
    if (status == CHOIR__EXIT_OK)
        status = check_name("role", l->opts.role, 128);
    if (status == CHOIR__EXIT_OK)
        status = check_name("local-addr", l->local, sizeof l->opts.master);
    if (status == CHOIR__EXIT_OK)
        status = choir__torchrun_conf(l->conf, &l->opts);
    if (status == CHOIR__EXIT_OK)
        choir__torchrun_etcd_user(&l->opts.etcd);
    if (status == CHOIR__EXIT_OK)
        status = choir__torchrun_signals(l->signals, &l->opts);
    if (status == CHOIR__EXIT_OK)
        status = refuse(l);
    if (status != CHOIR__EXIT_OK)
        return status;
    snprintf(l->opts.master, sizeof l->opts.master, "%s", l->master ? l->master : "");
    if (l->key_file) {
        l->opts.key_file = realpath(l->key_file, NULL); /* for ranks that go to other folders */
        if (!l->opts.key_file)
            return choir__line_usage("run", "--key-file %s: %s", l->key_file, strerror(errno));
    }
    return CHOIR__EXIT_OK;
}

/* --- options that depend on each other --- */

static int count_ranks(launch *l)
{
    const char *text = l->nproc ? l->nproc : "1";
    bool automatic = !strcmp(text, "auto"), gpu = !strcmp(text, "gpu");
    char why[512];
    if (automatic || gpu)
        l->opts.nproc = choir__device_look("cuda", why, sizeof why);
    if (gpu && l->opts.nproc < 1)
        return choir__line_usage("run", "--nproc-per-node gpu: %s", why);
    if (l->opts.nproc > 0)
        setenv("CHOIR_DEVICE", "cuda", 0);
    if (!strcmp(text, "cpu") || (automatic && l->opts.nproc < 1))
        l->opts.nproc = choir_device_count("cpu");
    if (l->opts.nproc > 0)
        return CHOIR__EXIT_OK;
    int64_t n;
    if (!choir__parse_int(text, 1, CHOIR__CHILDREN_MAX, &n))
        return choir__line_usage("run",
            "%s: expected a number of ranks from 1 to %d, or auto, gpu or cpu, got '%s'",
            l->standalone ? "-n" : "--nproc-per-node", CHOIR__CHILDREN_MAX, text);
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
        !choir__parse_int(colon ? colon + 1 : low, 1, CHOIR__CHILDREN_MAX, &most))
        return choir__line_usage(
            "run", "--nnodes: expected a number of nodes, or MIN:MAX, got '%s'", text);
    if (fewest > most)
        return choir__line_usage("run",
            "--nnodes %s: expected MIN:MAX with MIN not above MAX, as --nnodes %s:%s", text,
            colon + 1, low);
    if (l->standalone && most > 1)
        return choir__line_usage(
            "run", "--standalone (or -n) is for one node, and --nnodes is %s", text);
    o->nodes_min = (int)fewest;
    o->nodes_max = (int)most;
    if (o->node >= o->nodes_max)
        return choir__line_usage("run",
            "--node-rank: expected 0 to %d with --nnodes %s, got %d", o->nodes_max - 1, text,
            o->node);
    return CHOIR__EXIT_OK;
}

/* Nodes meet at the endpoint, or without one at the master's address, like torchrun's static
 * backend. */
static int find_endpoint(launch *l)
{
    choir__agent_opts *o = &l->opts;
    if (o->nodes_max == 1)
        return CHOIR__EXIT_OK;
    o->etcd.is_used = l->backend && !strcmp(l->backend, "etcd");
    o->raft = l->backend && !strcmp(l->backend, "raft");
    if (o->witness && !o->raft)
        return choir__line_usage(
            "run", "--witness: expected --rdzv-backend raft, whose agents vote on the ledger");
    if (o->etcd.is_used && (!l->endpoint || !o->run_id))
        return choir__line_usage("run",
            "--rdzv-backend etcd: missing --%s: nodes with the same --rdzv-id meet in the etcd at "
            "--rdzv-endpoint HOST:PORT",
            l->endpoint ? "rdzv-id NAME" : "rdzv-endpoint HOST:PORT");
    if (!l->endpoint && !*o->master)
        return choir__line_usage("run",
            "--nnodes %s: missing --rdzv-endpoint HOST:PORT, where all nodes meet", l->nnodes);
    o->endpoint_port = o->etcd.is_used  ? 2379
                       : l->endpoint    ? 29400
                       : o->master_port ? o->master_port
                                        : 29500;
    if (!l->endpoint) {
        memcpy(o->endpoint, o->master, sizeof o->endpoint);
        o->master_port = 0; /* taken, by us */
    } else if (choir__host_port(l->endpoint, o->endpoint, &o->endpoint_port) != CHOIR_OK) {
        return choir__line_usage("run", "--rdzv-endpoint %s", choir_error_message());
    }
    if (l->local && !*o->master) /* useful on node 0, whose address the others learn */
        snprintf(o->master, sizeof o->master, "%s", l->local);
    return CHOIR__EXIT_OK;
}

/* Reads "3" or "0:3,1:2", a mask of streams for all ranks or for single ones. */
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
    return choir__line_usage("run",
        "--%s: expected 0 to 3, or RANK:N,... with local ranks 0 to %d, got '%s'", option,
        l->opts.nproc - 1, text);
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
            return choir__line_usage("run",
                "--local-ranks-filter: expected local ranks from 0 to %d, such as 0,1, got '%s'",
                l->opts.nproc - 1, l->filter);
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

static int run(const choir__line_command *command, int argc, char **argv)
{
    static launch l;
    choir__line_operands operands;
    l.opts = (choir__agent_opts){
        .node = -1, .last_call_s = 30, .routes = l.routes, .show = choir__flight_dump};
    l.argv = choir__torchrun_argv(command, &argc, argv);
    int status = choir__line_parse(command, &l, argc, l.argv, &operands);
    if (status == CHOIR__EXIT_OK)
        status = check_values(&l);
    if (status == CHOIR__EXIT_OK)
        status = count_ranks(&l);
    if (status == CHOIR__EXIT_OK)
        status = count_nodes(&l);
    if (status == CHOIR__EXIT_OK)
        status = find_endpoint(&l);
    if (status == CHOIR__EXIT_OK)
        status = route_output(&l);
    if (status == CHOIR__EXIT_OK && !operands.count && !l.opts.witness)
        status = choir__line_usage("run", "missing %s", command->operand);
    if (status == CHOIR__EXIT_OK && l.opts.witness)
        return choir__witness_run(&l.opts);
    if (status == CHOIR__EXIT_OK) {
        l.opts.command = choir__torchrun_command(&operands, l.module, l.script, l.plain);
        char *work = choir__run_work(l.opts.command);
        l.opts.work = work;
        status = choir__agent_run(&l.opts);
        free(work);
    }
    return status;
}

static const char *backends(size_t i)
{
    static const char *const names[] = {"static", "c10d", "etcd", "raft"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

static const char *kinds(size_t i)
{
    static const char *const names[] = {"auto", "gpu", "cpu"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

static const char *start_methods(size_t i)
{
    static const char *const names[] = {"spawn", "fork", "forkserver"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

static const char *logs_specs(size_t i)
{
    return i == 0 ? "default" : NULL;
}

#define AT(member) CHOIR__LINE_AT(launch, member)

static const choir__line_option options[] = {
    {NULL, CHOIR__STRING, AT(nproc), .argument = "N",
        .help = "the same as --standalone --nproc-per-node N", .letter = 'n', .group = "Ranks"},
    {"nproc-per-node", CHOIR__STRING, AT(nproc), .argument = "N",
        .help = "number of ranks on this node (default 1), or one rank per device of a kind",
        .choices = kinds},
    {"max-restarts", CHOIR__INT, AT(opts.max_restarts), 0, 1000000, .preset = "0",
        .argument = "N",
        .help =
            "number of times that all ranks of all nodes are started again after a failure"},
    {"node-failures", CHOIR__INT, AT(opts.node_failures), 0, 1000000, .preset = "0",
        .argument = "N", .help = "leave out a node that has failed N times; 0: never"},
    {"monitor-interval", CHOIR__FLOAT, AT(monitor_interval), 0, 1e9, .argument = "S",
        .help = "no effect: failures are seen at once"},
    {"shutdown-timeout", CHOIR__FLOAT, AT(opts.shutdown_s), 0, 1e9, .preset = "30",
        .argument = "S", .help = "seconds that ranks have from SIGTERM to SIGKILL"},
    {"signals-to-handle", CHOIR__STRING, AT(signals), .argument = "LIST",
        .help =
            "signals that are passed on, beside SIGTERM, SIGINT, SIGHUP, SIGXCPU and SIGQUIT, "
            "which end the job: SIGUSR1, SIGUSR2"},
    {"role", CHOIR__STRING, AT(opts.role), .preset = "default", .argument = "NAME",
        .help = "ROLE_NAME of the ranks"},
    {"module", CHOIR__FLAG, AT(module),
        .help = "COMMAND is a Python module: run it as python3 -u -m COMMAND", .letter = 'm'},
    {"run-path", CHOIR__FLAG, AT(script),
        .help =
            "COMMAND is a Python script: run it as python3 -u COMMAND; the default for a .py "
            "file that is not executable"},
    {"no-python", CHOIR__FLAG, AT(plain), .help = "run COMMAND itself, even a .py file"},
    {"start-method", CHOIR__STRING, AT(start_method), .argument = "NAME",
        .help = "no effect: each rank is a new program", .choices = start_methods,
        .strict = true},
    {"event-log-handler", CHOIR__STRING, AT(events), .argument = "NAME",
        .help = "no effect: choir has no log of events"},
    {"numa-binding", CHOIR__STRING, AT(numa), .argument = "NAME",
        .help = "refused: srun --cpu-bind and numactl bind ranks to processors"},
    {"virtual-local-rank", CHOIR__FLAG, AT(virtual_rank),
        .help = "refused: LOCAL_RANK numbers the ranks of a node"},
    {"nnodes", CHOIR__STRING, AT(nnodes), .argument = "N",
        .help = "number of nodes, or MIN:MAX (default 1)",
        .group = "Several nodes: one choir run on each, with the same of these"},
    {"rdzv-endpoint", CHOIR__STRING, AT(endpoint), .argument = "HOST:PORT",
        .help = "where nodes meet: an address of node 0 (default port 29400)"},
    {"node-rank", CHOIR__INT, AT(opts.node), 0, CHOIR__CHILDREN_MAX - 1, .argument = "N",
        .help = "number of this node (default: by order of arrival)"},
    {"key-file", CHOIR__STRING, AT(key_file), .argument = "FILE",
        .help = "the job's key (mode 0600); only nodes that meet on loopback need none"},
    {"timeout", CHOIR__FLOAT, AT(opts.timeout_s), 0, 1e9, .preset = "300", .argument = "S",
        .help =
            "seconds that a node waits for the others, and a stopped rank or agent may stay "
            "stopped"},
    {"rdzv-id", CHOIR__STRING, AT(opts.run_id), .argument = "NAME",
        .help = "name of this run, in the names of log files (default: a random one)"},
    {"rdzv-backend", CHOIR__STRING, AT(backend), .argument = "NAME",
        .help =
            "etcd: nodes meet in the etcd at --rdzv-endpoint (default port 2379), and the job "
            "outlives any of them; raft: the nodes hold the job's state together, and it outlives "
            "any one of three or more; the others mean a store that node 0 serves",
        .choices = backends, .strict = true},
    {"witness", CHOIR__FLAG, AT(opts.witness),
        .help =
            "run no ranks, but vote with the nodes of --rdzv-backend raft: with a witness on a "
            "third machine two nodes outlive each other"},
    {"rdzv-conf", CHOIR__STRING, AT(conf), .argument = "KEY=VALUE,...",
        .help =
            "timeout or join_timeout, as --timeout; last_call_timeout, seconds to wait for "
            "more than MIN nodes; is_host, for node 0; for etcd cacert, cert and key, which "
            "are files, user=NAME:PASSWORD and protocol=https; torchrun's others have no "
            "effect"},
    {"local-addr", CHOIR__STRING, AT(local), .argument = "HOST",
        .help = "address of this node; on node 0 the default of --master-addr"},
    {"master-addr", CHOIR__STRING, AT(master), .argument = "HOST",
        .help = "MASTER_ADDR of the ranks (default: node 0); with --nnodes and without "
                "--rdzv-endpoint, also where nodes meet"},
    {"master-port", CHOIR__INT, AT(opts.master_port), 1, 65535, .argument = "PORT",
        .help = "MASTER_PORT of the ranks (default: a free one); otherwise as --master-addr"},
    {"standalone", CHOIR__FLAG, AT(standalone), .help = "one node"},
    {"redirects", CHOIR__STRING, AT(redirects), .argument = "N",
        .help = "streams that go into files and not to the terminal", .letter = 'r',
        .group = "Output: 0 none, 1 stdout, 2 stderr, 3 both, or for single ranks as 0:3,1:2"},
    {"tee", CHOIR__STRING, AT(tee), .argument = "N",
        .help = "streams that go into files and to the terminal", .letter = 't'},
    {"json", CHOIR__FLAG, AT(opts.json),
        .help =
            "print each change of membership on standard output, as JSON on a line of its own"},
    {"log-dir", CHOIR__STRING, AT(opts.log_dir), .argument = "DIR",
        .help = "write DIR/RUN_ID/attempt_0/RANK/stdout.log; without --redirects, as with "
                "--tee 3"},
    {"local-ranks-filter", CHOIR__STRING, AT(filter), .argument = "LIST",
        .help = "only these local ranks, such as 0,1, write to the terminal"},
    {"log-line-prefix-template", CHOIR__STRING, AT(opts.prefix), .argument = "TEXT",
        .help = "text before each line on the terminal, with ${rank}, ${local_rank}, "
                "${role_name} and ${hostname} (default [rank${rank}]:)"},
    {"logs-specs", CHOIR__STRING, AT(specs), .argument = "NAME",
        .help = "no effect: choir has one kind of logs", .choices = logs_specs, .strict = true},
    {"duplicate-stdout-filters", CHOIR__STRING, AT(copied[0]), .argument = "LIST",
        .help = "refused, as --duplicate-stderr-filters is: --tee 3 writes a file per rank"},
    {"duplicate-stderr-filters", CHOIR__STRING, AT(copied[1]), .argument = "LIST",
        .help = "refused"},
    {"print-completion", CHOIR__STRING, AT(completion), .argument = "SHELL",
        .help = "refused: bash finds choir's completions where it is installed"},
    {NULL},
};

const choir__line_command choir__cli_run = {
    .name = "run",
    .summary = "start a command as several ranks, and supervise them",
    .usage = "[OPTION]... COMMAND [ARGUMENT]...",
    .about =
        "Starts COMMAND as several ranks, on this machine or on several, and supervises their "
        "output, signals and failures. Options and environment are torchrun's: RANK, WORLD_SIZE, "
        "LOCAL_RANK, MASTER_ADDR, MASTER_PORT and so on; options may also come from torchrun's "
        "variables, such as PET_NNODES. When a rank fails all are stopped; a report names the "
        "failed rank, the cause and its last output. SIGUSR1 prints the last "
        "collectives of every rank, as choir top --dump does.",
    .example_title = "two ranks, as DDP",
    .example = "  choir run -n 2 choir train --strategy ddp --steps 500",
    .options = options,
    .operand = "COMMAND",
    .least = 0,
    .most = INT_MAX,
    .stops_at_operand = true,
    .underscores = true,
    .took = took,
    .run = run,
};
