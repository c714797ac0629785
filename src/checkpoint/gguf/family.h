/* Families of models, as transformers and as GGUF files name their sizes and tensors. */
#ifndef CHOIR_GGUF_FAMILY_H
#define CHOIR_GGUF_FAMILY_H

#include <jansson.h>

#include "checkpoint/gguf/gguf.h"

/* Differences of a GGUF file's tensors from a transformers folder's. */
typedef enum choir__gguf_change {
    CHOIR__GGUF_AS_IT_IS,
    CHOIR__GGUF_PAIRED,    /* rows of heads for rotary positions of neighbours, not of halves */
    CHOIR__GGUF_PAIRED_KV, /* the same, of heads of keys */
    CHOIR__GGUF_TRANSPOSED, /* (in, out) there */
    CHOIR__GGUF_PLUS_ONE    /* a norm multiplies by 1 + weight there */
} choir__gguf_change;

/* A tensor: '#' is a layer's number. */
typedef struct choir__gguf_name {
    const char *published, *gguf;
    choir__gguf_change change;
} choir__gguf_name;

typedef enum choir__gguf_kind { CHOIR__GGUF_U32, CHOIR__GGUF_F32 } choir__gguf_kind;

/* A number of config.json. `published` is a name, or several that '|' separates: the first one
 * that is there counts. absent: the value if none is; NAN: then the key is left out. */
typedef struct choir__gguf_key {
    const char *published, *gguf; /* gguf: behind "ARCH." */
    choir__gguf_kind kind;
    double absent;
} choir__gguf_key;

typedef struct choir__gguf_family {
    const char *type;              /* "model_type" in config.json */
    const char *arch;              /* general.architecture */
    const choir__gguf_key *keys;   /* ended by a NULL name */
    const choir__gguf_name *names; /* ended by a NULL name */
    bool rotary;                   /* it has rotary positions */
} choir__gguf_family;

/* The families, ended by a NULL type. */
extern const choir__gguf_family choir__gguf_families[];

/* Find by model_type, or by general.architecture; or return NULL. */
const choir__gguf_family *choir__gguf_family_of(const char *type);
const choir__gguf_family *choir__gguf_family_of_arch(const char *arch);

/* Returns the name that a tensor has on the other side, which the caller frees, and its change;
 * NULL: the family has no such tensor. layer: its layer, or -1. */
char *choir__gguf_rename(const choir__gguf_family *family, const char *name, bool to_gguf,
    choir__gguf_change *change, int *layer);

/* Returns a number of config.json, by names as in choir__gguf_key. */
bool choir__gguf_config_number(const json_t *config, const char *names, double *value);

/* Sizes of heads that tensors are changed by. */
typedef struct choir__gguf_heads {
    int64_t heads, kv_heads;
} choir__gguf_heads;

/* Changes the values of a tensor of that shape to the other side's; from and to do not overlap.
 */
void choir__gguf_change_values(choir__gguf_change change, bool to_gguf, choir_shape shape,
    choir__gguf_heads heads, const float *from, float *to);

#endif
