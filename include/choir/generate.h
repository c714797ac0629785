/* Text from a language model, token after token, by the program that trains it.
 *
 *     choir_generate_opts opts = choir_generate_defaults();
 *     opts.stop = (const char *const[]){"\n\n"}, opts.stops = 1;
 *     choir_prompt prompt = {ids, count};
 *     choir_generated answer;
 *     choir_check(choir_generate(run, net, &info, tokenizer, &prompt, 1, opts, &answer));
 *
 * Keys and values of earlier tokens are kept, and the scores have the bits of a forward over
 * the whole text. So in the same class of bits (choir/job.h: bits) and under the same
 * autocast the log-probability of each generated token is minus the loss that training computes
 * for it, in any batch. In the class `onednn`, whose products depend on their
 * shapes, the two are equal up to rounding.
 *
 * Threads: the run's thread. Collective: no. */
#ifndef CHOIR_GENERATE_H
#define CHOIR_GENERATE_H

#include <choir/data.h>
#include <choir/models.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a text ended. */
typedef enum choir_stopped {
    CHOIR_STOPPED_EOS = 1, /* one of the end tokens, the last of the tokens */
    CHOIR_STOPPED_LENGTH,  /* opts.tokens */
    CHOIR_STOPPED_STOP,    /* a stop string */
    CHOIR_STOPPED_CONTEXT, /* the model's context is full */
    CHOIR_STOPPED_CALLER   /* opts.wants returned false */
} choir_stopped;

/** Returns "eos", "length", "stop", "context" or "caller". */
const char *choir_stopped_name(choir_stopped stopped);

/* Scores are processed in transformers' order: the repetition penalty, the temperature, top_k,
 * top_p, min_p. */
typedef struct choir_generate_opts {
    int64_t tokens; /* the most tokens to write per prompt; default 200 */
    /* 0: the likeliest token; default 1. Scores are divided by it. */
    double temperature;
    int64_t top_k; /* draws from the k likeliest tokens; 0 (the default): from all */
    /* draws from the least number of likeliest tokens whose probabilities have this sum;
     * default 1: from all */
    double top_p;
    /* leaves out tokens less likely than this times the likeliest; 0 (the default): none */
    double min_p;
    /* divides the positive scores, and multiplies the negative ones, of tokens that are in the
     * prompt or were written; default 1 */
    double repetition_penalty;
    uint64_t seed; /* the seed and the prompt alone determine the text, in any batch */
    /* tokens that end a text; default NULL: choir_generate_ends */
    const int64_t *end;
    int64_t ends;
    bool no_end; /* no token ends a text */
    /* texts that end the text before them, wherever tokens begin and end */
    const char *const *stop;
    int64_t stops;
    bool uncached; /* computes each token from the whole text; for comparisons */
    /* Called with each piece of a prompt's text as soon as it is certain: whole characters of
     * UTF-8, before any stop string; U+FFFD for other bytes. NULL: not needed. */
    void (*text)(void *arg, int64_t prompt, const char *text, size_t bytes);
    /* Called before each token; returns false to end all texts. NULL: always true. */
    bool (*wants)(void *arg);
    void *arg;
} choir_generate_opts;

choir_generate_opts choir_generate_defaults(void);

typedef struct choir_prompt {
    const int64_t *ids;
    int64_t count; /* 0: the text begins with token 0, which is not a part of it */
} choir_prompt;

/* The text behind a prompt. */
typedef struct choir_generated {
    char *text; /* UTF-8, '\0'-terminated, without the end token and the stop string */
    size_t bytes;
    int64_t *tokens; /* (count) all that were drawn */
    float *logprobs; /* (count) under the model, whatever the temperature and the rest */
    int64_t count;
    choir_stopped stopped;
} choir_generated;

/**
 * Writes texts behind prompts, all in one batch, in evaluation mode, and sets the module back
 * to training mode. The model's memory of a text is of min(context, prompt + opts.tokens)
 * tokens. A model of a program's own must read positions as the models of choir/models.h do,
 * and look back by causal attention or recurrent layers alone; else set opts.uncached.
 *
 * @param info     the model's description; its task is LANGUAGE
 * @param results  receives an entry per prompt, for choir_generated_free, also after an error
 *
 * Errors: argument (options; no language model; a prompt with ids outside the vocabulary or
 * that fills the context); state (attention that the cache does not serve); memory.
 */
CHOIR_CHECKED choir_status choir_generate(choir_scope *run, choir_module *net,
    const choir_model_info *info, const choir_tokenizer *tokenizer, const choir_prompt *prompts,
    int64_t count, choir_generate_opts opts, choir_generated *results);

/** Frees the contents of `count` results; results may be NULL. */
void choir_generated_free(choir_generated *results, int64_t count);

/**
 * Stores the tokens at which users of the tokenizer's folder stop: "eos_token_id" of
 * generation_config.json and of config.json, one or several, and the "eos_token" of
 * tokenizer_config.json, without repetitions. Returns their number, which may be larger than
 * `room`; ids may be NULL.
 */
int64_t choir_generate_ends(const choir_tokenizer *tokenizer, int64_t *ids, int64_t room);

/**
 * Processes the scores (n) of the next token as opts says, in place: tokens that are not drawn
 * get minus infinity. ids (count) are the text so far. Errors: argument.
 */
CHOIR_CHECKED choir_status choir_generate_scores(
    choir_generate_opts opts, const int64_t *ids, int64_t count, float *scores, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
