/* Augmentation as text, "jitter:brightness=0.4+mixup:alpha=0.2": a table of the parts, each
 * with keys and with the values that it has when it is named alone. */
#include <stdlib.h>
#include <string.h>

#include <choir/augment.h>
#include "base/floats.h"
#include "base/named.h"
#include "base/options.h"

/* Numbers as the keys give them, under the names of choir_augment_opts. */
struct numbers {
    double brightness, contrast, saturation, hue;
    int64_t ops, magnitude, bins;
    double erase, erase_min, erase_max, ratio_min, ratio_max;
    bool noise;
    double mixup, cutmix, mix;
};

static choir_status read_jitter(const char *text, struct numbers *n)
{
    const choir__option keys[] = {{"brightness", CHOIR__FLOAT, &n->brightness, 0, 100},
        {"contrast", CHOIR__FLOAT, &n->contrast, 0, 100},
        {"saturation", CHOIR__FLOAT, &n->saturation, 0, 100},
        {"hue", CHOIR__FLOAT, &n->hue, 0, 0.5}, {NULL}};
    n->brightness = n->contrast = n->saturation = 0.4;
    n->hue = 0.1;
    return choir__options_parse(text, "augmentation jitter", keys);
}

static choir_status read_randaugment(const char *text, struct numbers *n)
{
    const choir__option keys[] = {{"ops", CHOIR__INT, &n->ops, 1, 100},
        {"magnitude", CHOIR__INT, &n->magnitude, 0, 1000},
        {"bins", CHOIR__INT, &n->bins, 2, 1001}, {NULL}};
    n->ops = 2;
    choir_status status = choir__options_parse(text, "augmentation randaugment", keys);
    if (status == CHOIR_OK && n->magnitude >= n->bins)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "augmentation randaugment: expected a magnitude below bins=%lld, got %lld",
            (long long)n->bins, (long long)n->magnitude);
    return status;
}

static choir_status read_erase(const char *text, struct numbers *n)
{
    const choir__option keys[] = {{"p", CHOIR__FLOAT, &n->erase, 0, 1},
        {"min", CHOIR__FLOAT, &n->erase_min, 0, 1},
        {"max", CHOIR__FLOAT, &n->erase_max, 1e-6, 1},
        {"ratio_min", CHOIR__FLOAT, &n->ratio_min, 1e-6, 1e6},
        {"ratio_max", CHOIR__FLOAT, &n->ratio_max, 1e-6, 1e6},
        {"noise", CHOIR__FLAG, &n->noise, 0, 0}, {NULL}};
    n->erase = 0.5;
    choir_status status = choir__options_parse(text, "augmentation erase", keys);
    if (status == CHOIR_OK && (n->erase_min > n->erase_max || n->ratio_min > n->ratio_max))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "augmentation erase: expected min <= max and ratio_min <= ratio_max, got %g, %g and "
            "%g, %g",
            n->erase_min, n->erase_max, n->ratio_min, n->ratio_max);
    return status;
}

static choir_status read_mixup(const char *text, struct numbers *n)
{
    const choir__option keys[] = {{"alpha", CHOIR__FLOAT, &n->mixup, 1e-3, 1e3},
        {"p", CHOIR__FLOAT, &n->mix, 0, 1}, {NULL}};
    n->mixup = 1;
    return choir__options_parse(text, "augmentation mixup", keys);
}

static choir_status read_cutmix(const char *text, struct numbers *n)
{
    const choir__option keys[] = {{"alpha", CHOIR__FLOAT, &n->cutmix, 1e-3, 1e3},
        {"p", CHOIR__FLOAT, &n->mix, 0, 1}, {NULL}};
    n->cutmix = 1;
    return choir__options_parse(text, "augmentation cutmix", keys);
}

static const struct part {
    const char *name, *help;
    choir_status (*read)(const char *text, struct numbers *n);
} parts[] = {
    {"jitter", "colours: brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1", read_jitter},
    {"randaugment", "a few of fourteen changes: ops=2,magnitude=9,bins=31", read_randaugment},
    {"erase", "a rectangle: p=0.5,min=0.02,max=0.33,ratio_min=0.3,ratio_max=3.3,noise=0",
        read_erase},
    {"mixup", "a blend with another image and its class: alpha=1,p=1", read_mixup},
    {"cutmix", "a rectangle of another image: alpha=1,p=1", read_cutmix},
};
static const choir__name_table table = CHOIR__NAME_TABLE(parts);

const char *choir_augment_name(int index, const char **help)
{
    if (index < 0 || (size_t)index >= CHOIR_COUNT(parts))
        return NULL;
    if (help)
        *help = parts[index].help;
    return parts[index].name;
}

static choir_status read_part(const char *text, unsigned *seen, struct numbers *n)
{
    int at;
    choir_status status = choir__options_find(text, &table, "augmentation", &at);
    if (status != CHOIR_OK)
        return status;
    if (*seen >> at & 1)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "augmentation '%s' is named twice", parts[at].name);
    *seen |= 1u << at;
    return parts[at].read(text, n);
}

choir_status choir_augment_parse(const char *text, choir_augment_opts *o)
{
    CHOIR__DEFAULT_FLOATS;
    if (!text || !o)
        return choir__missing(__func__, text ? "opts" : "text");
    struct numbers n = {.magnitude = o->randaugment_magnitude,
        .bins = o->randaugment_bins,
        .erase_min = (double)o->erase_min,
        .erase_max = (double)o->erase_max,
        .ratio_min = (double)o->ratio_min,
        .ratio_max = (double)o->ratio_max,
        .mix = (double)o->mix};
    char *copy = choir__strdup(text), *rest = copy, *part;
    unsigned seen = 0;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (part = strsep(&rest, "+")))
        status = read_part(part, &seen, &n);
    free(copy);
    if (status != CHOIR_OK)
        return status;
    uint64_t seed = o->seed;
    *o = (choir_augment_opts){.brightness = (float)n.brightness,
        .contrast = (float)n.contrast,
        .saturation = (float)n.saturation,
        .hue = (float)n.hue,
        .randaugment_ops = (int)n.ops,
        .randaugment_magnitude = (int)n.magnitude,
        .randaugment_bins = (int)n.bins,
        .erase = (float)n.erase,
        .erase_min = (float)n.erase_min,
        .erase_max = (float)n.erase_max,
        .ratio_min = (float)n.ratio_min,
        .ratio_max = (float)n.ratio_max,
        .erase_noise = n.noise,
        .mixup = (float)n.mixup,
        .cutmix = (float)n.cutmix,
        .mix = (float)n.mix,
        .seed = seed};
    return CHOIR_OK;
}
