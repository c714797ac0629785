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
    bool rotary;                   /* models of the family have rotary positions */
    /* what llama.cpp computes of them: layers with a window; factors of each frequency */
    bool windows, factors;
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

/* Copies rows, of row_bytes each, in the other side's order within heads. */
void choir__gguf_pair_rows(
    bool to_gguf, int64_t rows, int64_t heads, size_t row_bytes, const void *from, void *to);

/* Returns the heads whose rows are in another order there; 0: none are. */
int64_t choir__gguf_paired_heads(choir__gguf_change change, choir__gguf_heads heads);

/* Changes the values of a tensor of that shape to the other side's; from and to do not overlap.
 */
void choir__gguf_change_values(choir__gguf_change change, bool to_gguf, choir_shape shape,
    choir__gguf_heads heads, const float *from, float *to);

/* The tensor with the factors of llama3's rotary frequencies, and their origin in config.json.
 */
#define CHOIR__GGUF_FACTORS "rope_freqs.weight"

typedef struct choir__gguf_llama3 {
    double factor, low, high, original;
} choir__gguf_llama3;

/* Stores the divisors (width / 2) of the frequencies. */
void choir__gguf_factors(
    const choir__gguf_llama3 *scaling, double theta, int64_t width, float *factors);
/* Finds the origin of factors: wave lengths of 1 to 4 parts of an original context that is a
 * power of two, as all published models have them. Returns false if they have another origin.
 */
bool choir__gguf_factors_known(
    const float *factors, double theta, int64_t width, choir__gguf_llama3 *scaling);

#endif
