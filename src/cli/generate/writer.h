/* Shared by choir generate and choir chat: the options of drawing, and a model ready to write.
 */
#ifndef CHOIR_CLI_WRITER_H
#define CHOIR_CLI_WRITER_H

#include <choir/generate.h>
#include "base/text.h"
#include "job/choices.h"
#include "job/model/amp.h"
#include "job/model/base.h"
#include "job/model/saved.h"
#include "line/command.h"

enum { CHOIR__MOST_STOPS = 64 };

/* The first member of both commands' values. */
typedef struct choir__write_request {
    const char *command; /* the name that messages begin with */
    const char *checkpoint, *amp, *base, *last_stop;
    int64_t tokens, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    bool json, tokens_given;
    const char *drawing; /* the last option given that tells how a text is drawn, or NULL */
    const char *stop[CHOIR__MOST_STOPS]; /* (stops) */
    int stops;
} choir__write_request;

#define CHOIR__WRITE_AT(member) CHOIR__LINE_AT(choir__write_request, member)

/* Rows of both tables. */
#define CHOIR__WRITE_ROWS                                                                      \
    {"tokens", CHOIR__INT, CHOIR__WRITE_AT(tokens), 1, 1 << 30, .preset = "200",               \
        .argument = "N", .help = "largest number of tokens to write",                          \
        .elsewhere = "max_new_tokens max_tokens n_predict"},                                   \
        {"temperature", CHOIR__FLOAT, CHOIR__WRITE_AT(temperature), 0, 1000, .preset = "0.8",  \
            .argument = "X",                                                                   \
            .help = "0: the likeliest token each time; larger values: more variety"},          \
        {"top-k", CHOIR__INT, CHOIR__WRITE_AT(top_k), 0, 1 << 30, .preset = "40",              \
            .argument = "K", .help = "draw from the K likeliest tokens; 0: from all"},         \
        {"top-p", CHOIR__FLOAT, CHOIR__WRITE_AT(top_p), 1e-6, 1, .preset = "1",                \
            .argument = "P",                                                                   \
            .help = "draw from the fewest likeliest tokens whose probabilities add up to P"},  \
        {"min-p", CHOIR__FLOAT, CHOIR__WRITE_AT(min_p), 0, 1, .preset = "0", .argument = "P",  \
            .help = "leave out tokens less likely than P times the likeliest"},                \
        {"repetition-penalty", CHOIR__FLOAT, CHOIR__WRITE_AT(repetition_penalty), 0.001, 1000, \
            .preset = "1", .argument = "X",                                                    \
            .help = "above 1: tokens of the prompt and the text become less likely"},          \
        {"stop", CHOIR__STRING, CHOIR__WRITE_AT(last_stop), .argument = "TEXT",                \
            .help = "end before this text; may be repeated", .repeated = true,                 \
            .elsewhere = "stop_strings stop_sequences"},                                       \
        {"seed", CHOIR__INT, CHOIR__WRITE_AT(seed), 0, 0x1p63, .preset = "42",                 \
            .argument = "N", .help = "seed of the draws"},                                     \
        {"amp", CHOIR__STRING, CHOIR__WRITE_AT(amp), .preset = "off", .argument = "LEVEL",     \
            .help = "compute in 16 bits as choir train --amp does",                            \
            .choices = choir__job_amp_level_names, .strict = true},                            \
        {"base", CHOIR__STRING, CHOIR__WRITE_AT(base), .argument = "TYPE",                     \
            .help = "hold the weights in few bits, as choir train --base does (default: as "   \
                    "the model was trained)",                                                  \
            .choices = choir__base_names, .strict = true},                                     \
    {                                                                                          \
        "json", CHOIR__FLAG, CHOIR__WRITE_AT(json), .help = "print one JSON object per text"   \
    }

/* Collects --stop: choir__line_command.took. */
int choir__write_took(void *values, const choir__line_option *option, const char *text);

/* Opens the model, and refuses one that writes no text. The caller calls choir__saved_close
 * also after a failure. */
choir_status choir__write_open(const choir__write_request *r, choir__saved *s);

choir_generate_opts choir__write_opts(const choir__write_request *r);

/* Returns an error if the text of a prompt or message, whose number is for the message, is not
 * UTF-8, or has a zero byte. */
choir_status choir__write_is_text(const char *text, size_t bytes, int64_t number);

/* Encodes a prompt by choir_tokenizer_encode_whole, or what a chat template wrote by
 * choir_tokenizer_encode. The caller frees *ids. */
typedef choir_status choir__encoder(
    const choir_tokenizer *t, const char *, size_t, int64_t *ids, size_t, int64_t *count);
choir_status choir__write_encode(const choir__saved *s, const char *text, size_t bytes,
    int64_t number, choir__encoder *encode, int64_t **ids, int64_t *count);

/* Prints a text as an event. */
void choir__write_json(const choir_generated *g);

/* Says on standard error that the context has ended a text, if it has. */
void choir__write_note(const char *command, const choir__saved *s, const choir_generated *g);

/* Describes an image (image.c). most: the largest number of tokens; 0: what the context has
 * room for. */
choir_status choir__describe_image(const choir__saved *s, const char *image, int64_t most);

#endif
