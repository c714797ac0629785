/* cp: one process per device, each with some of the tokens of every sample. All ranks work on
 * every micro-batch. */
#include <string.h>

#include <choir/context_parallel.h>

#include "base/named.h"
#include "job/job.h"

typedef struct cp_keys {
    char exchange[16]; /* "": choose */
} cp_keys;

static const char *const exchanges[] = {
    "heads", "keys"}; /* in the order of choir_cp_exchange */

static const choir__line_option keys[] = {
    {"exchange", CHOIR__WORD, CHOIR__LINE_AT(cp_keys, exchange), .argument = "heads|keys",
        .recorded = CHOIR__RECORDED_FREE},
    {NULL},
};

static choir_status check(void *own)
{
    static const choir__name_table table = CHOIR__NAME_TABLE(exchanges);
    const cp_keys *k = own;
    return *k->exchange && choir__find_named(&table, k->exchange) < 0
               ? choir__unknown_name(&table, "exchange of strategy cp", k->exchange)
               : CHOIR_OK;
}

static choir_status build(choir__job_rank *p)
{
    const cp_keys *k = p->at->keys;
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    opts.chunks = p->job->training.chunks;
    for (int i = 0; i < (int)CHOIR_COUNT(exchanges); i++)
        if (!strcmp(k->exchange, exchanges[i]))
            opts.exchange = (choir_cp_exchange)(CHOIR_CP_HEADS + i);
    p->model = p->evaluated = choir_context_parallel(p->run, p->model, p->along, opts);
    return CHOIR_OK; /* errors stick to the run */
}

/* A replica of the ranks turns as a whole. */
static bool turns_ranks(const void *own)
{
    (void)own;
    return true;
}

/* `choir compare` runs cp only by name: its default number of chunks has other bits. */
static const char *const variants[] = {NULL};

const choir__job_strategy choir__job_strategy_cp = {
    .name = "cp",
    .help = "one process per device, sequences cut into chunks of tokens",
    .dimension = "context",
    .divides = CHOIR__CHUNKS,
    .spread = CHOIR__RANKS_TOGETHER,
    .chunks = CHOIR__CHUNKS_OF_RANKS,
    .variants = variants,
    .keys = keys,
    .keys_bytes = sizeof(cp_keys),
    .check = check,
    .build = build,
    .step = choir__job_strategy_plain_step,
    .turns_ranks = turns_ranks,
    .recovery = CHOIR__REBUILT_AS_MANY,
};
