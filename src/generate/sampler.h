/* The choice of the next token from its scores. */
#ifndef CHOIR_GENERATE_SAMPLER_H
#define CHOIR_GENERATE_SAMPLER_H

#include <choir/generate.h>

/* Returns the reason why the options of drawing are wrong, or NULL. */
const char *choir__sampler_wrong(const choir_generate_opts *opts);

/* As choir_generate_scores, of options that are right. seen (n): the tokens of the text. */
void choir__sampler_process(
    const choir_generate_opts *opts, const bool *seen, float *scores, int64_t n);

/* Returns the token that draw number i takes from processed scores: the first of the largest if
 * the temperature is 0. */
int64_t choir__sampler_draw(
    const choir_generate_opts *opts, const float *scores, int64_t n, int64_t i);

#endif
