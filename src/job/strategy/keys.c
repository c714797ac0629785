/* Reads the keys in a strategy's text, after its name, by the strategy's table of keys. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/strategy/strategy.h"

enum { MOST_KEYS = 16 };

choir_status choir__job_strategy_read(
    const choir__job_strategy *s, const char *text, void **keys)
{
    choir__option known[MOST_KEYS + 1] = {{NULL}};
    char what[80];
    int count = 0;
    *keys = s->keys ? choir__calloc(1, s->keys_bytes) : NULL;
    for (const choir__line_option *k = s->keys; k && k->name; k++) {
        void *place = (char *)*keys + k->at;
        /* A preset may be outside the range, to show that nothing was specified. */
        choir__option any = {k->name, k->type, place, -INFINITY, INFINITY};
        if (k->preset)
            choir__option_set(&any, k->preset);
        known[count++] = (choir__option){k->name, k->type, place, k->low, k->high};
    }
    snprintf(what, sizeof what, "strategy %s", s->name);
    choir_status status = choir__options_parse(text, what, known);
    return status == CHOIR_OK && s->check ? s->check(*keys) : status;
}

const char *choir__job_strategy_keys_text(
    const choir__job_strategy *s, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (const choir__line_option *k = s->keys; k && k->name && used < bytes; k++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s=%s%s", used ? "," : "[:", k->name,
                k->argument ? k->argument : k->preset, k[1].name ? "" : "]");
    return text;
}

char *choir__job_strategy_own_text(const choir__job_strategy *s, void *keys)
{
    choir__option known[MOST_KEYS + 1] = {{NULL}};
    int count = 0;
    void *presets;
    (void)!choir__job_strategy_read(s, s->name, &presets);
    for (const choir__line_option *k = s->keys; k && k->name; k++) {
        char *place = (char *)keys + k->at;
        bool takes =
            k->recorded == CHOIR__RECORDED_TAKES || k->recorded == CHOIR__RECORDED_KEEPS;
        bool counts = takes && (!k->matters || k->matters(keys));
        if (counts && memcmp(place, (char *)presets + k->at, k->bytes) != 0)
            known[count++] = (choir__option){k->name, k->type, place, k->low, k->high};
    }
    free(presets);
    return choir__options_text(s->name, known);
}
