/* The declared number of chunks of each sequence (choir/context_parallel.h), on which the
 * numbers depend: --chunks, or what the resumed job had, or the number of ranks that share
 * sequences. */
#include <stdlib.h>

#include <choir/context_parallel.h>

#include "base/text.h"
#include "job/job.h"

int choir__composition_sharers(const choir__composition *c, int ranks)
{
    int product = 1;
    for (int d = 0; d < c->count; d++)
        if (c->dims[d].strategy->chunks == CHOIR__CHUNKS_OF_RANKS)
            product *= choir__composition_ranks(c, d, ranks);
    return product;
}

static int64_t sharing(const choir__job_placement *p)
{
    return choir__composition_sharers(&p->composition, p->nproc);
}

/* Returns the first strategy that cannot train on chunks, or NULL. */
static const char *without_chunks(const choir__job_placement *p)
{
    const choir__composition *c = &p->composition;
    for (int d = 0; d < c->count; d++)
        if (c->dims[d].strategy->chunks == CHOIR__NO_CHUNKS)
            return c->dims[d].strategy->name;
    return NULL;
}

static choir_status check_ranks(const choir__job_training *t, int64_t ranks)
{
    long long chunks = t->chunks;
    if (chunks % ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld ranks do not divide %lld chunk%s: choose --chunks %lld", (long long)ranks,
            chunks, chunks > 1 ? "s" : "", (long long)((chunks / ranks + 1) * ranks));
    return CHOIR_OK;
}

/* Ranks that share the tokens between layers have whole chunks of them. */
static choir_status check_tokens(const choir__job *j, int64_t ranks)
{
    const choir__composition *c = &j->placement.composition;
    for (int d = 0; d < c->count; d++) {
        const choir__dimension *at = &c->dims[d];
        int64_t all = ranks * choir__composition_ranks(c, d, j->placement.nproc);
        if (!at->strategy->shares_tokens || !at->strategy->shares_tokens(at->keys))
            continue;
        if (j->training.chunks % all)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "--chunks %lld: strategy %s with sequence_parallel=1 distributes the chunks "
                "over %lld ranks, which must divide them: choose --chunks %lld",
                (long long)j->training.chunks, at->strategy->name, (long long)all,
                (long long)((j->training.chunks / all + 1) * all));
    }
    return CHOIR_OK;
}

/* Returns the error that says which chunks the context has for these ranks. */
static choir_status unfit(const choir__job *j, const char *why)
{
    long long chunks = j->training.chunks, tokens = j->model.info.input.dim[0];
    char *possible = choir__divisors(tokens, sharing(&j->placement));
    choir_status status =
        choir__error(CHOIR_ERR_ARGUMENT, "--chunks %lld %s of %lld tokens: choose %s", chunks,
            why, tokens, *possible ? possible : "a number of ranks that divides it");
    free(possible);
    return status;
}

static choir_status check_model(const choir__job *j)
{
    const choir_model_info *info = &j->model.info;
    long long chunks = j->training.chunks, tokens = info->input.dim[0];
    bool words = info->task == CHOIR_CLASSIFICATION && info->vocab && info->output.ndim;
    bool by_token = info->packs || info->masked || words;
    if (!by_token)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--chunks %lld: expected a model that works token by token (gpt2, llama and "
            "its relatives, bert without classes or with words=1), got %s",
            chunks, info->config);
    return tokens % chunks ? unfit(j, "does not divide the context") : CHOIR_OK;
}

choir_status choir__job_strategy_check_chunks(choir__job *j)
{
    int64_t ranks = sharing(&j->placement);
    if (!j->training.chunks && ranks == 1)
        return CHOIR_OK;
    if (!j->training.chunks)
        j->training.chunks = j->saves.resumed ? 1 : ranks; /* a resumed job keeps its cut */
    choir_status status = check_ranks(&j->training, ranks);
    if (status != CHOIR_OK || j->training.chunks == 1)
        return status;
    const char *without = without_chunks(&j->placement);
    if (without)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--chunks %lld: strategy %s does not cut sequences: choose among single, ddp, fsdp, "
            "tp, cp and pipelines",
            (long long)j->training.chunks, without);
    status = check_tokens(j, ranks);
    return status == CHOIR_OK ? check_model(j) : status;
}

/* Returns the next number of chunks of the context that twice the ranks divide; 0: none. */
static int64_t balanced(const choir__job *j, int64_t twice)
{
    int64_t tokens = j->model.info.input.dim[0], n = twice;
    while (n <= tokens && (n < j->training.chunks || tokens % n))
        n += twice;
    return n <= tokens ? n : 0;
}

char *choir__job_strategy_chunks_note(const choir__job *j)
{
    const choir_model_info *info = &j->model.info;
    int64_t ranks = sharing(&j->placement), chunks = j->training.chunks;
    bool causal = info->task == CHOIR_LANGUAGE && !info->masked;
    if (!causal || ranks == 1 || chunks % (2 * ranks) == 0)
        return NULL;
    int64_t better = balanced(j, 2 * ranks);
    char *advice = better ? choir__format(", as with --chunks %lld", (long long)better)
                          : choir__strdup(", which no cut of this context allows");
    char *note =
        choir__format("%lld chunks on %lld ranks: causal attention is balanced where twice the "
                      "ranks divide the chunks%s",
            (long long)chunks, (long long)ranks, advice);
    free(advice);
    return note;
}

/* Returns whether a strategy of the job cuts sequences itself, on one rank, too. */
static bool is_cut(const choir__composition *c)
{
    for (int d = 0; d < c->count; d++)
        if (c->dims[d].strategy->chunks == CHOIR__CHUNKS_OF_RANKS)
            return true;
    return false;
}

void choir__job_strategy_cut_sequences(choir__job_rank *p)
{
    choir_context_parallel_opts opts = choir_context_parallel_defaults();
    opts.chunks = p->job->training.chunks;
    if (opts.chunks > 1 && !is_cut(&p->job->placement.composition))
        p->model = p->evaluated = choir_context_parallel(p->run, p->model, NULL, opts);
}
