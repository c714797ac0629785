/* ddp: one process per device, each with the whole model, in lockstep. */
#include <string.h>

#include <choir/ddp_hook.h>
#include <choir/sync_batch_norm.h>

#include "base/named.h"
#include "job/job.h"
#include "comm/call.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"

typedef struct ddp_keys {
    double bucket_cap_mb, first_bucket_mb;
    char algorithm[64], hook[64]; /* "": none was named */
    bool sync_bn, find_unused, static_graph, delay_allreduce;
    int64_t rank, start_step; /* options of hook=powersgd; -1: not specified */
    int64_t groups;           /* for sync_bn; 0: as many as a rank has micro-batches */
} ddp_keys;

#define AT(member) CHOIR__LINE_AT(ddp_keys, member)

static choir__sums sums_of(const ddp_keys *k)
{
    choir__algorithm algorithm = CHOIR__AUTO;
    if (*k->algorithm)
        (void)!choir__algorithm_parse(k->algorithm, &algorithm); /* check has told */
    return choir__algorithm_sums(algorithm);
}

/* --- whether the numbers depend on a key --- */

static bool by_rank(const void *keys)
{
    return sums_of(keys) != CHOIR__SUMS_OF_TREE;
}

/* The buckets are the places in which gradients are added up. */
static bool by_place(const void *keys)
{
    return sums_of(keys) == CHOIR__SUMS_BY_PLACE;
}

/* Returns whether each rank's own sum is a node of the job's tree: all ranks have as many
 * micro-batches, a power of two, and the last one perhaps one less. */
static bool are_nodes(int ranks, int64_t microbatches)
{
    int64_t each = (microbatches + ranks - 1) / ranks;
    return (each & (each - 1)) == 0 && microbatches >= each * ranks - 1;
}

/* Returns whether gradients are added up as in the job's tree: two nodes have one order, and
 * algorithms that add each rank's own first continue as in the tree. */
static bool is_tree(const ddp_keys *k, int ranks, int64_t microbatches)
{
    return !by_rank(k) || (are_nodes(ranks, microbatches) && (ranks == 2 || !by_place(k)));
}

static bool by_ranks(const void *own, int ranks, int64_t microbatches)
{
    const ddp_keys *k = own;
    return *k->hook || (ranks > 1 && !is_tree(k, ranks, microbatches));
}

static bool own_numbers(const void *own, int ranks, int64_t microbatches)
{
    const ddp_keys *k = own;
    bool shares = k->groups ? k->groups < microbatches : ranks > 1;
    return by_ranks(own, ranks, microbatches) || (k->sync_bn && shares);
}

static int64_t meet_by(const void *own, int ranks, int64_t microbatches)
{
    const ddp_keys *k = own;
    /* an uneven division is refused */
    const bool divides = k->groups && microbatches % k->groups == 0;
    return divides && !choir__synced_evenly(microbatches, k->groups, ranks) ? k->groups : 1;
}

static choir__declared_cut cut_of(void *own)
{
    ddp_keys *k = own;
    return (choir__declared_cut){k->sync_bn ? "groups" : NULL, &k->groups, false};
}

static const choir__line_option keys[] = {
    {"bucket_cap_mb", CHOIR__FLOAT, AT(bucket_cap_mb), 1e-6, 1e6, .preset = "25",
        .recorded = CHOIR__RECORDED_TAKES, .matters = by_place},
    {"first_bucket_mb", CHOIR__FLOAT, AT(first_bucket_mb), 1e-6, 1e6, .preset = "1",
        .recorded = CHOIR__RECORDED_TAKES, .matters = by_place},
    {"algorithm", CHOIR__WORD, AT(algorithm), .argument = "exchange",
        .recorded = CHOIR__RECORDED_TAKES, .matters = by_rank},
    {"sync_bn", CHOIR__FLAG, AT(sync_bn), .preset = "0", .recorded = CHOIR__RECORDED_TAKES},
    {"groups", CHOIR__INT, AT(groups), 1, 1e9, .preset = "0", .argument = "G",
        .recorded = CHOIR__RECORDED_KEEPS},
    {"find_unused", CHOIR__FLAG, AT(find_unused), .preset = "0",
        .recorded = CHOIR__RECORDED_FREE},
    {"static_graph", CHOIR__FLAG, AT(static_graph), .preset = "0",
        .recorded = CHOIR__RECORDED_FREE},
    {"delay_allreduce", CHOIR__FLAG, AT(delay_allreduce), .preset = "0",
        .recorded = CHOIR__RECORDED_TAKES, .matters = by_place},
    {"hook", CHOIR__WORD, AT(hook), .argument = "bf16|f16|powersgd",
        .recorded = CHOIR__RECORDED_TAKES},
    {"rank", CHOIR__INT, AT(rank), 1, 1024, .preset = "-1", .argument = "1",
        .recorded = CHOIR__RECORDED_TAKES},
    {"start_step", CHOIR__INT, AT(start_step), 0, 1e15, .preset = "-1", .argument = "1000",
        .recorded = CHOIR__RECORDED_TAKES},
    {NULL},
};

static choir_status check(void *own)
{
    static const char *const hooks[] = {"bf16", "f16", "powersgd"};
    static const choir__name_table table = CHOIR__NAME_TABLE(hooks);
    const ddp_keys *k = own;
    choir__algorithm algorithm;
    choir_status status = CHOIR_OK;
    if (*k->algorithm)
        status = choir__algorithm_parse(k->algorithm, &algorithm);
    if (status == CHOIR_OK && *k->hook && choir__find_named(&table, k->hook) < 0)
        status = choir__unknown_name(&table, "hook of strategy ddp", k->hook);
    if (status == CHOIR_OK && k->groups && !k->sync_bn)
        status = choir__error(CHOIR_ERR_ARGUMENT, "strategy ddp: groups needs sync_bn=1");
    if (status == CHOIR_OK && (k->rank >= 0 || k->start_step >= 0) &&
        strcmp(k->hook, "powersgd"))
        status = choir__error(CHOIR_ERR_ARGUMENT, "strategy ddp: %s needs hook=powersgd",
            k->rank >= 0 ? "rank" : "start_step");
    return status;
}

static choir_status set_hook(choir_module *model, const ddp_keys *k)
{
    choir_powersgd_opts opts = choir_powersgd_defaults();
    if (k->rank >= 0)
        opts.rank = (int)k->rank;
    if (k->start_step >= 0)
        opts.start_step = k->start_step;
    if (!strcmp(k->hook, "bf16"))
        return choir_ddp_set_hook(model, choir_ddp_bf16_compress, NULL);
    if (!strcmp(k->hook, "f16"))
        return choir_ddp_set_hook(model, choir_ddp_f16_compress, NULL);
    return *k->hook ? choir_ddp_powersgd(model, opts) : CHOIR_OK;
}

static choir_status build(choir__job_rank *p)
{
    const ddp_keys *k = p->at->keys;
    choir_ddp_opts opts = choir_ddp_defaults();
    opts.bucket_cap_mb = k->bucket_cap_mb;
    opts.first_bucket_mb = k->first_bucket_mb;
    opts.algorithm = *k->algorithm ? k->algorithm : NULL;
    opts.find_unused_parameters = k->find_unused;
    opts.static_graph = k->static_graph;
    opts.delay_allreduce = k->delay_allreduce;
    choir_sync_batch_norm_opts shared = choir_sync_batch_norm_defaults();
    shared.groups = k->groups;
    if (k->sync_bn)
        choir_sync_batch_norm_with(p->run, p->net, p->along, shared);
    p->model = choir_ddp(p->run, p->model, p->along, opts);
    return set_hook(p->model, k); /* other errors stick to the run */
}

static const char *forgets(const void *own, int ranks)
{
    const ddp_keys *k = own;
    (void)ranks;
    return !strcmp(k->hook, "powersgd")
               ? "a checkpoint holds neither the errors that powersgd feeds back nor its matrices"
               : NULL;
}

const choir__job_strategy choir__job_strategy_ddp = {
    .name = "ddp",
    .help = "one process per device, gradients averaged while backward runs",
    .dimension = "data",
    .chunks = CHOIR__CHUNKS_BELOW,
    .divides = CHOIR__MICRO_BATCHES,
    .family = CHOIR__DATA_PARALLEL,
    .spread = CHOIR__DEVICE_A_RANK,
    .keys = keys,
    .keys_bytes = sizeof(ddp_keys),
    .check = check,
    .micro_each = 1,
    .recovery = CHOIR__IN_PLACE,
    .build = build,
    .step = choir__job_strategy_plain_step,
    .cut = cut_of,
    .by_ranks = by_ranks,
    .own_numbers = own_numbers,
    .forgets = forgets,
    .meet_by = meet_by,
};
