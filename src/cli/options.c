/* The options of a training job: reading them, and saying what is wrong with them. */
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "cli/amp.h"
#include "cli/cli.h"
#include "cli/job.h"
#include "launch/launchers.h"
#include "device/device.h"
#include "data/prefetch.h"

enum option_id {
    MODEL = 256,
    STRATEGY,
    MESH,
    DEVICES,
    NPROC,
    BACKEND,
    RENDEZVOUS,
    KEY_FILE,
    TIMEOUT,
    BATCH_SIZE,
    MICROBATCHES,
    STEPS,
    EPOCHS,
    OPTIMIZER,
    LR,
    SCHEDULE,
    WEIGHT_DECAY,
    CLIP,
    OFFLOAD,
    MEM_CAP,
    EVAL_EVERY,
    EVAL_BATCHES,
    SEED,
    SAVE,
    SAVE_EVERY,
    RESUME,
    THREADS,
    WORKERS,
    JSON,
    QUIET,
    LOG_EVERY,
    TRACE,
    BYTES,
    TOKENIZER,
    INIT,
    WEIGHTS,
    NO_EVAL,
    RECOMPUTE,
    AMP,
    HELP
};

const struct option choir__job_options[] = {
    {"model", required_argument, NULL, MODEL},
    {"strategy", required_argument, NULL, STRATEGY},
    {"mesh", required_argument, NULL, MESH},
    {"devices", required_argument, NULL, DEVICES},
    {"nproc", required_argument, NULL, NPROC},
    {"backend", required_argument, NULL, BACKEND},
    {"rendezvous", required_argument, NULL, RENDEZVOUS},
    {"key-file", required_argument, NULL, KEY_FILE},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"batch-size", required_argument, NULL, BATCH_SIZE},
    {"microbatches", required_argument, NULL, MICROBATCHES},
    {"steps", required_argument, NULL, STEPS},
    {"epochs", required_argument, NULL, EPOCHS},
    {"optimizer", required_argument, NULL, OPTIMIZER},
    {"lr", required_argument, NULL, LR},
    {"schedule", required_argument, NULL, SCHEDULE},
    {"weight-decay", required_argument, NULL, WEIGHT_DECAY},
    {"clip", required_argument, NULL, CLIP},
    {"offload", required_argument, NULL, OFFLOAD},
    {"mem-cap", required_argument, NULL, MEM_CAP},
    {"eval-every", required_argument, NULL, EVAL_EVERY},
    {"eval-batches", required_argument, NULL, EVAL_BATCHES},
    {"seed", required_argument, NULL, SEED},
    {"save", required_argument, NULL, SAVE},
    {"save-every", required_argument, NULL, SAVE_EVERY},
    {"resume", required_argument, NULL, RESUME},
    {"threads", required_argument, NULL, THREADS},
    {"workers", required_argument, NULL, WORKERS},
    {"json", no_argument, NULL, JSON},
    {"quiet", no_argument, NULL, QUIET},
    {"log-every", required_argument, NULL, LOG_EVERY},
    {"trace", required_argument, NULL, TRACE},
    {"bytes", no_argument, NULL, BYTES},
    {"tokenizer", required_argument, NULL, TOKENIZER},
    {"init", required_argument, NULL, INIT},
    {"weights", required_argument, NULL, WEIGHTS},
    {"no-eval", no_argument, NULL, NO_EVAL},
    {"recompute", no_argument, NULL, RECOMPUTE},
    {"amp", required_argument, NULL, AMP},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

const char *choir__job_option_name(int id)
{
    for (const struct option *o = choir__job_options; o->name; o++)
        if (o->val == id)
            return o->name;
    return "?";
}

/* Options that take a whole number, and where it goes. */
static int64_t *integer_of(choir__job *j, int id, int64_t *low)
{
    *low = 1;
    switch (id) {
    case BATCH_SIZE: return &j->batch_size;
    case MICROBATCHES: return &j->microbatches;
    case STEPS: return &j->steps;
    case EPOCHS: return &j->epochs;
    case SAVE_EVERY: return &j->save_every;
    case LOG_EVERY: return &j->log_every;
    case THREADS: return &j->threads;
    case WORKERS: return &j->workers;
    case EVAL_EVERY: return &j->eval_every;
    default: break;
    }
    *low = 0;
    switch (id) {
    case EVAL_BATCHES: return &j->eval_batches;
    case SEED: return (int64_t *)&j->seed;
    default: return NULL;
    }
}

static double *number_of(choir__job *j, int id)
{
    switch (id) {
    case LR: return &j->lr;
    case WEIGHT_DECAY: return &j->weight_decay;
    case CLIP: return &j->clip;
    case TIMEOUT: return &j->timeout;
    default: return NULL;
    }
}

static const char **word_of(choir__job *j, int id)
{
    switch (id) {
    case MODEL: return &j->model;
    case STRATEGY: return &j->strategy_text;
    case MESH: return &j->mesh;
    case DEVICES: return &j->devices;
    case OPTIMIZER: return &j->optimizer;
    case SCHEDULE: return &j->schedule;
    case SAVE: return &j->save;
    case OFFLOAD: return &j->offload;
    case RESUME: return &j->resume;
    case INIT: return &j->init;
    case AMP: return &j->amp;
    case TRACE: return &j->trace;
    case TOKENIZER: return &j->tokenizer_file;
    case WEIGHTS: return &j->weights;
    case BACKEND: return &j->backend;
    case RENDEZVOUS: return &j->rendezvous;
    case KEY_FILE: return &j->key_file;
    default: return NULL;
    }
}

static bool *flag_of(choir__job *j, int id)
{
    switch (id) {
    case JSON: return &j->json;
    case QUIET: return &j->quiet;
    case BYTES: return &j->bytes;
    case NO_EVAL: return &j->no_eval;
    case RECOMPUTE: return &j->recompute;
    default: return NULL;
    }
}

int choir__job_set(choir__job *j, int id, const char *text)
{
    int64_t low, n, *integer = integer_of(j, id, &low);
    if (integer && !choir__parse_int(text, low, INT64_MAX / 4096, integer))
        return choir__cli_usage(j->command,
            "--%s %s: a whole number of at least %lld is wanted", choir__job_option_name(id),
            text, (long long)low);
    double *number = number_of(j, id);
    if (number && !choir__parse_float(text, 0, 1e12, number))
        return choir__cli_usage(j->command, "--%s %s: a number of at least 0 is wanted",
            choir__job_option_name(id), text);
    if (word_of(j, id))
        *word_of(j, id) = text;
    if (flag_of(j, id))
        *flag_of(j, id) = true;
    if (id == NPROC) {
        if (!choir__parse_int(text, 1, 64, &n))
            return choir__cli_usage(j->command, "--nproc %s: from 1 to 64 ranks fit", text);
        j->nproc = (int)n;
    }
    if (id == WORKERS && j->workers > CHOIR__MAX_WORKERS)
        return choir__cli_usage(
            j->command, "--workers %s: at most %d fit", text, CHOIR__MAX_WORKERS);
    if (id == MEM_CAP && !choir__parse_bytes(text, &j->mem_cap))
        return choir__cli_usage(
            j->command, "--mem-cap %s: bytes are wanted, as 500M or 2G", text);
    if (id == BACKEND && strcmp(text, "shm") && strcmp(text, "ucx") && strcmp(text, "mpi") &&
        strcmp(text, "nccl"))
        return choir__cli_usage(
            j->command, "--backend %s: there are shm, ucx, mpi and nccl", text);
    return CHOIR__EXIT_OK;
}

static bool has_ranks(const choir__job *j)
{
    return j->strategy->spread != CHOIR__ONE_DEVICE &&
           j->strategy->spread != CHOIR__ALL_DEVICES;
}

/* Strategies that know both have a rank a device, unless a composition's innermost is to have
 * the devices of a process: as many ranks were asked for as the others have. */
static void go_over_ranks(choir__composition *c, int ranks, int product)
{
    for (int d = 0; d < c->count; d++) {
        const choir__cli_strategy *over = c->dims[d].strategy->over_ranks;
        bool inside = d > 0 && d == c->count - 1 && ranks * c->dims[d].size == product;
        if (over && !(inside && ranks < product))
            c->dims[d].strategy = over;
    }
}

/* How many ranks there are to be, where a mesh says so. */
static int fit_mesh(choir__job *j)
{
    choir__composition *c = &j->composition;
    int asked = j->launched && j->world > 1 ? j->world : j->nproc, product = 1, ranks;
    if (!j->mesh && c->count > 1)
        return choir__cli_usage(j->command,
            "--strategy %s wants a mesh of %d dimensions, the outermost first: --mesh %s",
            j->strategy_text, c->count, c->count == 2 ? "2x2" : "2x2x2");
    if (j->mesh && choir__composition_mesh(c, j->mesh) != CHOIR_OK)
        return choir__cli_usage(j->command, "--mesh %s: %s", j->mesh, choir_error_message());
    for (int d = 0; d < c->count; d++)
        product *= c->dims[d].size;
    ranks = j->mesh ? product : asked;
    if (j->mesh || asked > 1)
        go_over_ranks(c, asked ? asked : ranks, product);
    if (choir__composition_inside(c))
        ranks /= c->dims[c->count - 1].size;
    if (j->mesh && asked && ranks != asked)
        return choir__cli_usage(j->command,
            j->launched ? "--mesh %s wants %d ranks, and %d were started"
                        : "--mesh %s has %d ranks, and --nproc says %d",
            j->mesh, ranks, asked);
    j->nproc = ranks;
    return CHOIR__EXIT_OK;
}

static int parse_strategy(choir__job *j)
{
    if (choir__composition_parse(j->strategy_text, &j->composition, &j->strategy_options) !=
        CHOIR_OK)
        return choir__cli_usage(
            j->command, "--strategy %s: %s", j->strategy_text, choir_error_message());
    int status = fit_mesh(j);
    if (status != CHOIR__EXIT_OK)
        return status;
    j->strategy = choir__composition_strategy(&j->composition);
    if (has_ranks(j) || j->nproc <= 1)
        return CHOIR__EXIT_OK;
    if (j->launched)
        return choir__cli_usage(j->command,
            "%d ranks were started, each to train alone: several ranks want --strategy ddp, "
            "fsdp, tp, diloco, local-sgd, hogwild, mp or pipeline",
            j->world);
    return choir__cli_usage(j->command,
        "--nproc %d with --strategy %s: several ranks want --strategy ddp, fsdp, tp, "
        "diloco, local-sgd, hogwild, mp or pipeline",
        j->nproc, j->strategy->name);
}

static void add_device(choir__job *j, const char *kind, size_t length, long index)
{
    if (j->device_count < (int)CHOIR_COUNT(j->device_names) && length < 8)
        snprintf(j->device_names[j->device_count++], sizeof j->device_names[0], "%.*s:%d",
            (int)length, kind, (int)index);
}

int choir__job_devices_once(const choir__job *j)
{
    for (int i = 1; i < j->device_count; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(j->device_names[i], j->device_names[k]))
                return choir__cli_usage(j->command,
                    "--devices %s: %s is there twice; strategies of one process want each once",
                    j->devices, j->device_names[i]);
    return CHOIR__EXIT_OK;
}

/* "cpu:0,cpu:2-4" -> cpu:0 cpu:2 cpu:3 cpu:4; "auto": all GPUs, or all cores if there are none.
 */
static int parse_devices(choir__job *j)
{
    const char *text = j->devices && strcmp(j->devices, "auto") ? j->devices : NULL;
    if (!text) {
        const char *kind = choir__device_kind("auto");
        int there = choir__device_look(kind, NULL, 0);
        for (int i = 0; i < there && i < (int)CHOIR_COUNT(j->device_names); i++)
            add_device(j, kind, strlen(kind), i);
        return CHOIR__EXIT_OK;
    }
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        const char *colon = memchr(at, ':', length);
        char *end = NULL;
        long low = colon ? strtol(colon + 1, &end, 10) : -1, high = low;
        if (end && *end == '-' && isdigit((unsigned char)end[1]))
            high = strtol(end + 1, &end, 10);
        if (!colon || colon - at >= 8 || !isdigit((unsigned char)colon[1]) ||
            end != at + length || high < low || high > 1 << 20)
            return choir__cli_usage(
                j->command, "--devices %s: a list as cpu:0,cpu:1 or cuda:0-3 is wanted", text);
        if (high - low >= (int)CHOIR_COUNT(j->device_names) - j->device_count)
            return choir__cli_usage(j->command, "--devices %s: at most %d devices fit", text,
                (int)CHOIR_COUNT(j->device_names));
        for (long i = low; i <= high; i++)
            add_device(j, at, (size_t)(colon - at), i);
        at += length + (at[length] == ',');
    }
    if (!j->device_count)
        return choir__cli_usage(j->command, "--devices names no device");
    for (int i = 0; i < j->device_count; i++)
        if (!choir__device_is_there(j->device_names[i]))
            return choir__cli_fail();
    return CHOIR__EXIT_OK;
}

/* Two ranks may share a device; what one process has, it has once. */
static int check_devices(const choir__job *j)
{
    const choir__composition *c = &j->composition;
    bool inside = choir__composition_inside(c);
    if (inside && c->dims[c->count - 1].size > j->device_count)
        return choir__cli_usage(j->command,
            "--mesh %s with --nproc %d wants %d devices a rank, and there %s %d", j->mesh,
            j->nproc, c->dims[c->count - 1].size, j->device_count > 1 ? "are" : "is",
            j->device_count);
    return inside || j->strategy->spread == CHOIR__ALL_DEVICES ? choir__job_devices_once(j)
                                                               : CHOIR__EXIT_OK;
}

/* Names and their options, as far as they can be judged without any data: wrong usage. */
static int check_words(choir__job *j)
{
    const choir__model_spec *spec;
    choir__model_info info = {0};
    if (j->weights && j->resume)
        return choir__cli_usage(j->command,
            "--weights %s with --resume %s: a run starts from one of them", j->weights,
            j->resume);
    if (choir__job_published(j) != CHOIR_OK)
        return choir__cli_fail();
    choir_status status = j->model ? choir__model_find(j->model, &spec) : CHOIR_OK;
    if (status == CHOIR_OK && j->model)
        status = spec->describe(j->model, &info);
    if (status == CHOIR_OK)
        status = choir__job_check_optimizer(j);
    return status == CHOIR_OK ? CHOIR__EXIT_OK
                              : choir__cli_usage(j->command, "%s", choir_error_message());
}

/* A launcher's ranks; else as many as asked for; else one a device that was named, where a rank
 * has one. */
static int count_ranks(choir__job *j)
{
    bool ranks = has_ranks(j);
    if (j->launched)
        j->nproc = j->world;
    if (!j->nproc)
        j->nproc = ranks && j->devices ? j->device_count : 1;
    return CHOIR__EXIT_OK;
}

/* choir run, mpirun and srun tell a rank its place. One alone under the latter two is none. */
static int find_launcher(choir__job *j)
{
    choir__launcher l;
    if (choir__launcher_find(false, &l) != CHOIR_OK)
        return choir__cli_usage(j->command, "%s", choir_error_message());
    j->launched = l.name && (l.world > 1 || strcmp(l.name, "RANK") == 0);
    j->rank = j->launched ? l.rank : 0;
    j->world = j->launched ? l.world : 1;
    return CHOIR__EXIT_OK;
}

void choir__job_defaults(choir__job *j, const char *command)
{
    *j = (choir__job){.command = command,
        .strategy_text = "single",
        .optimizer = "adamw",
        .schedule = "constant",
        .batch_size = 32,
        .lr = 1e-3,
        .weight_decay = -1,
        .timeout = 1800,
        .seed = 42,
        .threads = 1,
        .workers = 1};
}

int choir__job_data(choir__job *j, int argc, char **argv)
{
    if (optind < argc)
        j->data = argv[optind++];
    if (optind < argc)
        return choir__cli_usage(j->command, "one DATA is enough: '%s'", argv[optind]);
    return CHOIR__EXIT_OK;
}

static bool has_stages(const choir__job *j)
{
    for (int d = 0; d < j->composition.count; d++) {
        const char *dimension = j->composition.dims[d].strategy->dimension;
        if (dimension && !strcmp(dimension, "pipeline"))
            return true;
    }
    return false;
}

int choir__job_check(choir__job *j)
{
    if (j->init && strcmp(j->init, "choir") && strcmp(j->init, "torch"))
        return choir__cli_usage(j->command, "--init %s: it is choir or torch", j->init);
    if (j->amp && !choir__amp_find(j->amp))
        return choir__cli_usage(
            j->command, "--amp %s: there are off, bf16, fp16, O0, O1, O2 and O3", j->amp);
    if (j->init && j->resume)
        return choir__cli_usage(
            j->command, "--init with --resume: the weights come from the checkpoint");
    int status = find_launcher(j);
    if (status == CHOIR__EXIT_OK)
        status = parse_strategy(j);
    if (status == CHOIR__EXIT_OK && j->strategy->shards && choir__amp_find(j->amp)->halved)
        return choir__cli_usage(j->command,
            "--amp %s with --strategy %s: shards are of f32 weights; O2 or bf16 go with it",
            j->amp, j->strategy->name);
    if (status == CHOIR__EXIT_OK && j->offload && has_stages(j))
        return choir__cli_usage(j->command,
            "--offload with --strategy %s: state follows the stages' parameters to their devices",
            j->strategy->name);
    if (status == CHOIR__EXIT_OK)
        status = parse_devices(j);
    if (status == CHOIR__EXIT_OK)
        status = check_devices(j);
    if (status == CHOIR__EXIT_OK)
        status = check_words(j);
    return status == CHOIR__EXIT_OK ? count_ranks(j) : status;
}

int choir__job_parse(choir__job *j, int argc, char **argv, bool *done)
{
    choir__job_defaults(j, "train");
    *done = false;
    opterr = 0;
    optind = 1;
    for (int id; (id = getopt_long(argc, argv, ":", choir__job_options, NULL)) != -1;) {
        if (id == HELP) {
            choir__cli_train_help();
            *done = true;
            return CHOIR__EXIT_OK;
        }
        if (id == '?')
            return choir__cli_unknown(j->command, argv);
        if (id == ':')
            return choir__cli_usage(j->command, "%s wants a value", argv[optind - 1]);
        int status = choir__job_set(j, id, optarg);
        if (status != CHOIR__EXIT_OK)
            return status;
    }
    int status = choir__job_data(j, argc, argv);
    return status == CHOIR__EXIT_OK ? choir__job_check(j) : status;
}
