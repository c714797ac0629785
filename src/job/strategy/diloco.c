/* diloco and local-sgd: one process per device, each training the models of its workers. These
 * synchronise after a fixed number of steps. */
#include <choir/diloco.h>

#include <string.h>

#include "comm/group.h"
#include "job/job.h"

enum { MOST_STEPS = 1000000000, MOST_WORKERS = 100000 };

/* --- diloco --- */

typedef struct diloco_keys {
    int64_t every, workers; /* workers 0: one per rank */
    double outer_lr, momentum;
    bool nesterov;
    char wire[64];
} diloco_keys;

#define AT(member) CHOIR__LINE_AT(diloco_keys, member)

static const choir__line_option diloco_keys_known[] = {
    {"every", CHOIR__INT, AT(every), 1, MOST_STEPS, .preset = "50",
        .recorded = CHOIR__RECORDED_TAKES},
    {"outer_lr", CHOIR__FLOAT, AT(outer_lr), 1e-6, 1e3, .preset = "0.7",
        .recorded = CHOIR__RECORDED_TAKES},
    {"momentum", CHOIR__FLOAT, AT(momentum), 0, 0.999999, .preset = "0.9",
        .recorded = CHOIR__RECORDED_TAKES},
    {"nesterov", CHOIR__FLAG, AT(nesterov), .preset = "1", .recorded = CHOIR__RECORDED_TAKES},
    {"wire", CHOIR__WORD, AT(wire), .preset = "f32", .recorded = CHOIR__RECORDED_TAKES},
    {"workers", CHOIR__INT, AT(workers), 1, MOST_WORKERS, .preset = "0", .argument = "W",
        .recorded = CHOIR__RECORDED_KEEPS},
    {NULL},
};
#undef AT

static choir_status check_diloco(void *keys)
{
    const diloco_keys *k = keys;
    if (!strcmp(k->wire, "f32") || !strcmp(k->wire, "bf16"))
        return CHOIR_OK;
    return choir__error(
        CHOIR_ERR_ARGUMENT, "strategy diloco: wire=%s: expected f32 or bf16", k->wire);
}

static choir__declared_cut cut_of_diloco(void *keys)
{
    return (choir__declared_cut){"workers", &((diloco_keys *)keys)->workers, true};
}

static bool are_unequal(int64_t workers, int ranks, int64_t microbatches)
{
    return microbatches % (workers ? workers : ranks) != 0;
}

static bool diloco_by_ranks(const void *keys, int ranks, int64_t microbatches)
{
    return are_unequal(((const diloco_keys *)keys)->workers, ranks, microbatches);
}

static choir_status build_diloco(choir__job_rank *p)
{
    const diloco_keys *k = p->at->keys;
    choir_diloco_opts opts = choir_diloco_defaults();
    opts.every = k->every;
    opts.outer_lr = (float)k->outer_lr;
    opts.momentum = (float)k->momentum;
    opts.nesterov = k->nesterov;
    opts.wire = strcmp(k->wire, "bf16") ? CHOIR_F32 : CHOIR_BF16;
    opts.workers = choir__job_strategy_workers_shared(p->job);
    opts.recut = p->job->saves.recut;
    p->model = choir_diloco(p->run, p->net, p->env.group, opts);
    return CHOIR_OK; /* errors stick to the run */
}

/* --- local-sgd --- */

typedef struct local_sgd_keys {
    int64_t every, warmup, node_every, workers; /* node_every 0: not in between */
} local_sgd_keys;

#define AT(member) CHOIR__LINE_AT(local_sgd_keys, member)

static const choir__line_option local_sgd_keys_known[] = {
    {"every", CHOIR__INT, AT(every), 1, MOST_STEPS, .preset = "50",
        .recorded = CHOIR__RECORDED_TAKES},
    {"warmup", CHOIR__INT, AT(warmup), 0, MOST_STEPS, .preset = "0",
        .recorded = CHOIR__RECORDED_TAKES},
    {"node_every", CHOIR__INT, AT(node_every), 1, MOST_STEPS, .argument = "STEPS",
        .recorded = CHOIR__RECORDED_TAKES},
    {"workers", CHOIR__INT, AT(workers), 1, MOST_WORKERS, .preset = "0", .argument = "W",
        .recorded = CHOIR__RECORDED_KEEPS},
    {NULL},
};

static choir__declared_cut cut_of_local_sgd(void *keys)
{
    return (choir__declared_cut){"workers", &((local_sgd_keys *)keys)->workers, true};
}

static bool local_sgd_by_ranks(const void *keys, int ranks, int64_t microbatches)
{
    const local_sgd_keys *k = keys;
    return k->node_every || are_unequal(k->workers, ranks, microbatches);
}

/* Near ranks are on one node, and a warm-up distributes micro-batches like DDP. */
static choir__recovery recovers(const void *keys)
{
    const local_sgd_keys *k = keys;
    return k->node_every || k->warmup ? CHOIR__REBUILT_AS_MANY : CHOIR__REBUILT;
}

static int node_of(int rank, const void *group)
{
    return choir_group_node(group, rank);
}

static choir_status build_local_sgd(choir__job_rank *p)
{
    const local_sgd_keys *k = p->at->keys;
    choir_local_sgd_opts opts = choir_local_sgd_defaults();
    opts.every = k->every;
    opts.warmup = k->warmup;
    opts.near_every = k->node_every;
    opts.workers = choir__job_strategy_workers_shared(p->job);
    opts.recut = p->job->saves.recut;
    choir_status status = CHOIR_OK;
    if (opts.near_every) {
        status =
            choir__group_split_by(p->env.group, node_of, p->env.group, "node", &p->subgroup);
        opts.near = p->subgroup;
    }
    if (status == CHOIR_OK)
        p->model = choir_local_sgd(p->run, p->net, p->env.group, opts);
    return status; /* other errors stick to the run */
}

/* --- both --- */

static bool together(const choir__job_rank *p)
{
    return choir_steps_apart(p->model) == 0;
}

static choir_status meet(choir__job_rank *p)
{
    choir_status status = choir_meet(p->model);
    return status == CHOIR_OK ? choir_device_sync(p->env.device) : status;
}

static choir_status resume(choir__job_rank *p)
{
    return choir_diloco_resume(p->model, (int64_t)choir_run_next(p->run));
}

static choir_status train(choir__job_rank *p)
{
    return choir_workers_train(p->model, p->optim, p->scaler);
}

static int64_t turns(const choir__job_rank *p)
{
    return choir_worker_turns(p->model);
}

static choir_status turn(choir__job_rank *p, int64_t turn)
{
    return choir_worker_turn(p->model, turn);
}

/* An outer step moves the weights of one rank, too. */
static bool has_outer_step(const void *keys, int ranks, int64_t microbatches)
{
    (void)keys, (void)ranks, (void)microbatches;
    return true;
}

/* Returns whether losses are means over several workers. */
static bool is_mean(const void *keys, int ranks, int64_t microbatches)
{
    const local_sgd_keys *k = keys;
    (void)microbatches;
    return (k->workers ? k->workers : ranks) > 1;
}

const choir__job_strategy choir__job_strategy_diloco = {
    .name = "diloco",
    .help = "one process per device, which trains by itself and meets the others at intervals",
    .spread = CHOIR__DEVICE_A_RANK,
    .keys = diloco_keys_known,
    .keys_bytes = sizeof(diloco_keys),
    .check = check_diloco,
    .micro_each = 1,
    .cut = cut_of_diloco,
    .by_ranks = diloco_by_ranks,
    .build = build_diloco,
    .step = choir__job_strategy_plain_step,
    .turns = turns,
    .turn = turn,
    .optimizer = train,
    .meet = meet,
    .together = together,
    .resumed = resume,
    .own_numbers = has_outer_step,
    .recovery = CHOIR__REBUILT,
};

const choir__job_strategy choir__job_strategy_local_sgd = {
    .name = "local-sgd",
    .help = "as diloco, but weights are averaged where ranks meet",
    .spread = CHOIR__DEVICE_A_RANK,
    .keys = local_sgd_keys_known,
    .keys_bytes = sizeof(local_sgd_keys),
    .micro_each = 1,
    .cut = cut_of_local_sgd,
    .by_ranks = local_sgd_by_ranks,
    .recovers = recovers,
    .build = build_local_sgd,
    .step = choir__job_strategy_plain_step,
    .turns = turns,
    .turn = turn,
    .optimizer = train,
    .meet = meet,
    .together = together,
    .resumed = resume,
    .own_numbers = is_mean,
    .recovery = CHOIR__REBUILT,
};
