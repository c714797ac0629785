/* A model that writes text, with the options that choir generate and choir chat share. */
#include "cli/generate/writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

int choir__write_took(void *values, const choir__line_option *option, const char *text)
{
    choir__write_request *r = values;
    static const char *const drawing[] = {
        "temperature", "top-k", "top-p", "min-p", "repetition-penalty", "stop", "json"};
    for (size_t i = 0; i < CHOIR_COUNT(drawing); i++)
        if (!strcmp(option->name, drawing[i]))
            r->drawing = drawing[i];
    r->tokens_given |= !strcmp(option->name, "tokens");
    if (!option->repeated) /* the table keeps its value */
        return CHOIR__EXIT_OK;
    if (!*text)
        return choir__line_usage(r->command, "--stop: expected a text, got ''");
    if (r->stops == CHOIR__MOST_STOPS)
        return choir__line_usage(
            r->command, "--stop: expected up to %d texts", (int)CHOIR__MOST_STOPS);
    r->stop[r->stops++] = text;
    return CHOIR__EXIT_OK;
}

choir_status choir__write_open(const choir__write_request *r, choir__saved *s)
{
    choir_status status =
        choir__saved_open_held(r->checkpoint, NULL, (uint64_t)r->seed, r->base, s);
    const bool writes = s->info.task == CHOIR_LANGUAGE && !s->info.masked;
    if (status == CHOIR_OK && s->info.task != CHOIR_IMAGE_TO_TEXT && !writes)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is %s, which writes no text", r->checkpoint,
            s->info.config);
    if (status == CHOIR_OK && !s->tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has no tokenizer: it was trained on ids alone; choir train --tokenizer FILE"
            " keeps one",
            r->checkpoint);
    return status == CHOIR_OK ? choir__amp_apply(s->run, s->net, choir__amp_find(r->amp))
                              : status;
}

choir_generate_opts choir__write_opts(const choir__write_request *r)
{
    choir_generate_opts opts = choir_generate_defaults();
    opts.tokens = r->tokens;
    opts.temperature = r->temperature;
    opts.top_k = r->top_k;
    opts.top_p = r->top_p;
    opts.min_p = r->min_p;
    opts.repetition_penalty = r->repetition_penalty;
    opts.seed = (uint64_t)r->seed;
    opts.stop = r->stop;
    opts.stops = r->stops;
    return opts;
}

choir_status choir__write_is_text(const char *text, size_t bytes, int64_t number)
{
    const char *end = text + bytes;
    for (const char *at = text; at < end; at += choir__utf8_length(at, end))
        if (!choir__utf8_length(at, end) || !*at)
            return choir__error(CHOIR_ERR_FORMAT,
                "prompt %lld: expected UTF-8, got byte 0x%02x at its byte %lld",
                (long long)number, (unsigned char)*at, (long long)(at - text) + 1);
    return CHOIR_OK;
}

choir_status choir__write_encode(const choir__saved *s, const char *text, size_t bytes,
    int64_t number, choir__encoder *encode, int64_t **ids, int64_t *count)
{
    *ids = NULL;
    choir_status status = choir__write_is_text(text, bytes, number);
    if (status == CHOIR_OK)
        status = encode(s->tokenizer, text, bytes, NULL, 0, count);
    if (status != CHOIR_OK)
        return status;
    *ids = choir__alloc((size_t)(*count + 1) * sizeof **ids);
    return encode(s->tokenizer, text, bytes, *ids, (size_t)*count, count);
}

void choir__write_json(const choir_generated *g)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "event", "generated");
    choir__text_string(&t, "text", g->text);
    choir__text_open(&t, "tokens", '[');
    for (int64_t i = 0; i < g->count; i++)
        choir__text_value(&t, NULL, "%lld", (long long)g->tokens[i]);
    choir__text_close(&t, ']');
    choir__text_open(&t, "logprobs", '[');
    for (int64_t i = 0; i < g->count; i++)
        choir__text_value(&t, NULL, "%.9g", (double)g->logprobs[i]);
    choir__text_close(&t, ']');
    choir__text_string(&t, "stopped", choir_stopped_name(g->stopped));
    choir__text_finish(&t, stdout);
    fflush(stdout);
}

void choir__write_note(const char *command, const choir__saved *s, const choir_generated *g)
{
    if (g->stopped != CHOIR_STOPPED_CONTEXT)
        return;
    char *note =
        choir__format("the text ends here because the model's context of %lld tokens is "
                      "full",
            (long long)s->info.input.dim[0]);
    choir__line_notes(command, note);
    free(note);
}
