/* Texts, token after token. A prompt is read in one forward, then each forward gives one token
 * to all texts that have not ended. Scores are the model's, processed and drawn from by
 * sampler.c; the log-probability is the loss that training computes, by its kernel, from the
 * scores as they are. */
#include <choir/generate.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/floats.h"
#include "generate/sampler.h"
#include "generate/words.h"
#include "nn/module.h"
#include "tensor/cache.h"
#include "tensor/handle.h"

enum { MOST_ENDS = 64 };

/* One text. */
typedef struct text {
    int64_t *ids, count,
        prompt; /* with the prompt, or with the token that an empty one means */
    bool *seen; /* (V) the tokens among them, for the repetition penalty */
    choir__words words;
    choir_generated *result;
} text;

typedef struct writing {
    choir_scope *scope; /* the cache's; steps are inside it */
    choir_module *net;
    const choir_model_info *info;
    const choir_tokenizer *tokenizer;
    choir_generate_opts opts;
    int64_t own_ends[MOST_ENDS];
    choir__cache *cache; /* NULL: uncached */
    text *texts;         /* (count) */
    int64_t count;
    float *scores; /* (count, V) */
} writing;

choir_generate_opts choir_generate_defaults(void)
{
    return (choir_generate_opts){
        .tokens = 200, .temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

const char *choir_stopped_name(choir_stopped stopped)
{
    static const char *const names[] = {"", "eos", "length", "stop", "context", "caller"};
    return (unsigned)stopped < CHOIR_COUNT(names) ? names[stopped] : "";
}

void choir_generated_free(choir_generated *results, int64_t count)
{
    for (int64_t i = 0; i < count && results; i++) {
        free(results[i].text);
        free(results[i].tokens);
        free(results[i].logprobs);
        results[i] = (choir_generated){0};
    }
}

/* --- one text --- */

static int64_t context_of(const choir_model_info *info)
{
    return info->endless ? INT64_MAX / 2 : info->input.dim[0];
}

static bool ends(const choir_generate_opts *o, int64_t id)
{
    for (int64_t i = 0; i < o->ends; i++)
        if (o->end[i] == id)
            return true;
    return false;
}

static void show(const writing *w, text *t)
{
    const char *new;
    const size_t bytes = choir__words_next(&t->words, &new);
    if (bytes && w->opts.text)
        w->opts.text(w->opts.arg, t - w->texts, new, bytes);
}

static void stop(const writing *w, text *t, choir_stopped why)
{
    choir__words_end(&t->words);
    show(w, t);
    t->result->stopped = why;
}

/* Appends what the token spells; returns true at a stop string. */
static bool spell(const writing *w, text *t, int64_t id)
{
    size_t bytes = 0;
    const char *spelled = w->tokenizer ? choir_tokenizer_token(w->tokenizer, id, &bytes) : NULL;
    if (w->tokenizer && !spelled) /* the model has more tokens than the tokenizer */
        return choir__words_add(&t->words, "\xef\xbf\xbd", 3);
    return spelled && choir__words_add(&t->words, spelled, bytes);
}

/* Takes the next token, and ends the text if it is the last. */
static void take(const writing *w, text *t, int64_t id, float logprob)
{
    choir_generated *r = t->result;
    t->ids[t->count++] = id;
    t->seen[id] = true;
    r->tokens[r->count] = id;
    r->logprobs[r->count++] = logprob;
    if (ends(&w->opts, id)) {
        stop(w, t, CHOIR_STOPPED_EOS);
        return;
    }
    const bool stopped = spell(w, t, id);
    if (stopped)
        stop(w, t, CHOIR_STOPPED_STOP);
    else if (r->count == w->opts.tokens)
        stop(w, t, CHOIR_STOPPED_LENGTH);
    else if (t->count >= context_of(w->info))
        stop(w, t, CHOIR_STOPPED_CONTEXT);
    else
        show(w, t);
}

/* --- forwards --- */

/* Draws a token for each of n texts from the scores (n, V), and computes its loss. */
static choir_status choose(
    const writing *w, choir_scope *step, choir_tensor *out, const int64_t *row, int64_t n)
{
    const int64_t v = w->info->classes;
    choir_status status =
        choir_read(choir_cast(out, CHOIR_F32), w->scores, (size_t)(n * v) * sizeof *w->scores);
    int64_t *id = choir__calloc((size_t)n, sizeof *id);
    float *loss = choir__calloc((size_t)n, sizeof *loss);
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++) {
        const text *t = &w->texts[row[i]];
        choir__sampler_process(&w->opts, t->seen, w->scores + i * v, v);
        id[i] = choir__sampler_draw(&w->opts, w->scores + i * v, v, t->result->count);
    }
    if (status == CHOIR_OK) {
        choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
        opts.reduction = CHOIR_LOSS_NONE;
        choir_tensor *target = choir_from(step, CHOIR_I64, choir_dims(n), id);
        status = choir_read(choir_cast(choir_cross_entropy_with(out, target, opts), CHOIR_F32),
            loss, (size_t)n * sizeof *loss);
    }
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++)
        take(w, &w->texts[row[i]], id[i], -loss[i]);
    free(id);
    free(loss);
    return status;
}

/* Returns whether the model says that the cache no longer serves one of n texts. */
static bool any_outgrown(const choir__cache *cache, int64_t n)
{
    for (int64_t i = 0; cache && i < n; i++)
        if (cache->outgrown[i])
            return true;
    return false;
}

static choir_status advance(
    const writing *w, const int64_t *row, int64_t n, const int64_t *ids, int64_t t);

/* Advances n texts one by one, and reads a text again as a whole if the cache no longer
 * serves it. */
static choir_status advance_each(const writing *w, const int64_t *row, int64_t n)
{
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < n; i++)
        if (w->cache->outgrown[i])
            choir__cache_forget(w->cache, row[i]);
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++) {
        const text *t = &w->texts[row[i]];
        const int64_t read = w->cache->length[row[i]];
        status = advance(w, &row[i], 1, t->ids + read, t->count - read);
    }
    return status;
}

/* Runs the model on the next t tokens of n texts, ids (n, t), and takes the token that follows
 * each. */
static choir_status advance(
    const writing *w, const int64_t *row, int64_t n, const int64_t *ids, int64_t t)
{
    choir_scope *step = choir_no_grad(w->scope);
    if (w->cache)
        choir__cache_begin(w->cache, row, n, t);
    choir_tensor *out =
        choir_forward(w->net, choir_from(step, CHOIR_I64, choir_dims(n, t), ids));
    const choir_shape shape = choir_tensor_shape(out); /* (n, 1 or t, V) */
    choir_status status = choir_scope_status(step);
    if (status == CHOIR_OK && (shape.ndim != 3 || shape.dim[2] != w->info->classes))
        status = choir__error(CHOIR_ERR_SHAPE,
            "generate: expected scores (B, T, %lld) of a language model, got %s",
            (long long)w->info->classes, choir__shape_text(shape));
    const bool outgrown = any_outgrown(w->cache, n);
    if (status == CHOIR_OK && !outgrown) {
        out = choir_contiguous(choir_narrow(out, 1, shape.dim[1] - 1, 1));
        status = choose(w, step, choir_reshape(out, choir_dims(n, w->info->classes)), row, n);
    }
    if (w->cache && status == CHOIR_OK && !outgrown)
        choir__cache_end(w->cache);
    choir_status closed = choir_scope_close(step);
    status = status == CHOIR_OK ? closed : status;
    return status == CHOIR_OK && outgrown ? advance_each(w, row, n) : status;
}

/* Gives a token to every text that has not ended, and stores whether such texts exist. */
static choir_status advance_all(const writing *w, int64_t *row, int64_t *ids, bool *more)
{
    choir_status status = CHOIR_OK;
    int64_t n = 0;
    for (int64_t i = 0; i < w->count && status == CHOIR_OK; i++) {
        const text *t = &w->texts[i];
        if (t->result->stopped)
            continue;
        if (!w->cache)
            status = advance(w, &i, 1, t->ids, t->count);
        row[n] = i;
        ids[n++] = t->ids[t->count - 1];
    }
    if (w->cache && n)
        status = advance(w, row, n, ids, 1);
    *more = n > 0;
    return status;
}

static choir_status write_all(const writing *w)
{
    int64_t *row = choir__calloc((size_t)w->count, sizeof *row);
    int64_t *ids = choir__calloc((size_t)w->count, sizeof *ids);
    choir_status status = CHOIR_OK;
    bool more = true, wanted = true;
    for (int64_t i = 0; i < w->count && w->cache && status == CHOIR_OK && wanted; i++) {
        wanted = !w->opts.wants || w->opts.wants(w->opts.arg);
        if (wanted)
            status = advance(w, &i, 1, w->texts[i].ids, w->texts[i].count);
    }
    while (status == CHOIR_OK && more && wanted) {
        wanted = !w->opts.wants || w->opts.wants(w->opts.arg);
        if (wanted)
            status = advance_all(w, row, ids, &more);
    }
    for (int64_t i = 0; i < w->count && status == CHOIR_OK; i++)
        if (!w->texts[i].result->stopped)
            stop(w, &w->texts[i], CHOIR_STOPPED_CALLER);
    free(row);
    free(ids);
    return status;
}

/* --- the whole --- */

static choir_status check(const writing *w, const choir_prompt *prompts)
{
    const choir_generate_opts *o = &w->opts;
    const int64_t context = context_of(w->info), v = w->info->classes;
    const char *wrong = choir__sampler_wrong(o);
    if (!wrong && (o->tokens < 1 || o->stops < 0 || o->ends < 0))
        wrong = "expected 1 token or more";
    for (int64_t i = 0; i < o->stops && !wrong; i++)
        wrong = !o->stop || !o->stop[i] || !*o->stop[i]
                    ? "expected stop strings of a byte or more"
                : !w->tokenizer ? "expected a tokenizer, to find stop strings"
                                : NULL;
    if (wrong)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "generate: %s; begin with choir_generate_defaults()", wrong);
    if (w->info->task != CHOIR_LANGUAGE || w->info->masked)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "generate: expected a model that writes text, got %s", w->info->config);
    for (int64_t i = 0; i < w->count; i++) {
        if (prompts[i].count < 0 || (prompts[i].count && !prompts[i].ids))
            return choir__missing(__func__, "a prompt's ids");
        if (prompts[i].count >= context)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "generate: prompt %lld has %lld tokens, and the model's context is %lld: "
                "expected a shorter prompt, which leaves room for text",
                (long long)i + 1, (long long)prompts[i].count, (long long)context);
        for (int64_t k = 0; k < prompts[i].count; k++)
            if (prompts[i].ids[k] < 0 || prompts[i].ids[k] >= v)
                return choir__error(CHOIR_ERR_RANGE,
                    "generate: prompt %lld has token %lld, and the model has %lld tokens",
                    (long long)i + 1, (long long)prompts[i].ids[k], (long long)v);
    }
    return CHOIR_OK;
}

static void begin_text(writing *w, text *t, const choir_prompt *p, choir_generated *result)
{
    const int64_t most = choir__min(w->opts.tokens, context_of(w->info));
    t->prompt = choir__max(p->count, 1);
    t->ids = choir__calloc((size_t)(t->prompt + most), sizeof *t->ids);
    t->seen = choir__calloc((size_t)w->info->classes, sizeof *t->seen);
    for (int64_t k = 0; k < p->count; k++)
        t->seen[t->ids[k] = p->ids[k]] = true;
    t->count = t->prompt;
    t->words = (choir__words){.stop = w->opts.stop, .stops = w->opts.stops};
    t->result = result;
    result->tokens = choir__calloc((size_t)most, sizeof *result->tokens);
    result->logprobs = choir__calloc((size_t)most, sizeof *result->logprobs);
}

static void end_text(text *t)
{
    t->result->text = t->words.text;
    t->result->bytes = t->words.text_bytes;
    free(t->words.raw);
    free(t->ids);
    free(t->seen);
}

/* Returns whether attention on the model's device takes queries that begin behind the first
 * key; elsewhere, as on GPUs, each token is computed from the whole text. */
static bool device_caches(choir_module *net)
{
    int count;
    choir__param **all = choir__module_named_params(net, &count);
    const bool caches = !count || choir__device_of(all[0]->tensor)->chunks;
    free(all);
    return caches;
}

/* Opens the scope of the texts, with a cache of what each may need. */
static void open_scope(writing *w, choir_scope *run)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < w->count; i++)
        longest = choir__max(longest, w->texts[i].prompt);
    w->scope = choir_no_grad(run);
    if (!w->opts.uncached && device_caches(w->net))
        w->cache = choir__cache_new(
            w->scope, w->count, choir__min(context_of(w->info), longest + w->opts.tokens));
}

static void settle_ends(writing *w)
{
    if (w->opts.no_end) {
        w->opts.ends = 0;
    } else if (!w->opts.end && w->tokenizer) {
        w->opts.end = w->own_ends;
        w->opts.ends = choir_generate_ends(w->tokenizer, w->own_ends, MOST_ENDS);
    }
}

choir_status choir_generate(choir_scope *run, choir_module *net, const choir_model_info *info,
    const choir_tokenizer *tokenizer, const choir_prompt *prompts, int64_t count,
    choir_generate_opts opts, choir_generated *results)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status status = choir__use_scope(run, __func__);
    if (status == CHOIR_OK)
        status = choir__use_module(net, __func__);
    if (status != CHOIR_OK)
        return status;
    if (!info || !prompts || !results || count < 1)
        return choir__missing(__func__, !info                  ? "model info"
                                        : prompts && count > 0 ? "results"
                                                               : "prompts");
    memset(results, 0, (size_t)count * sizeof *results);
    writing w = {
        .net = net, .info = info, .tokenizer = tokenizer, .opts = opts, .count = count};
    status = check(&w, prompts);
    if (status != CHOIR_OK)
        return status;
    settle_ends(&w);
    w.texts = choir__calloc((size_t)count, sizeof *w.texts);
    w.scores = choir__calloc((size_t)(count * info->classes), sizeof *w.scores);
    for (int64_t i = 0; i < count; i++)
        begin_text(&w, &w.texts[i], &prompts[i], &results[i]);
    choir_module_train(net, false);
    open_scope(&w, run);
    status = write_all(&w);
    choir_status closed = choir_scope_close(w.scope);
    choir_module_train(net, true);
    for (int64_t i = 0; i < count; i++)
        end_text(&w.texts[i]);
    free(w.texts);
    free(w.scores);
    return status == CHOIR_OK ? closed : status;
}
