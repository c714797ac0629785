/* Which type a tensor gets: llama.cpp's rules for its own files. */
#include "job/export/gguf_types.h"

#include <string.h>

#include "base/base.h"

/* The types of files, with their numbers, and the type of most matrices. */
static const struct {
    const char *name;
    uint32_t number;
    choir__quant most;
    bool mixed; /* some layers have more bits */
} files[] = {
    {"f32", 0, CHOIR__F32, false},
    {"f16", 1, CHOIR__F16, false},
    {"bf16", 32, CHOIR__BF16, false},
    {"q8_0", 7, CHOIR__Q8_0, false},
    {"q4_0", 2, CHOIR__Q4_0, false},
    {"q4_K_M", 15, CHOIR__Q4_K, true},
};

enum { FIRST_OF_BLOCKS = 3 };

const char *choir__gguf_block_types(size_t i)
{
    return i + FIRST_OF_BLOCKS < CHOIR_COUNT(files) ? files[i + FIRST_OF_BLOCKS].name : NULL;
}

static size_t file_of(const char *type)
{
    size_t i = 0;
    while (i + 1 < CHOIR_COUNT(files) && strcmp(files[i].name, type) != 0)
        i++;
    return i;
}

uint32_t choir__gguf_file_type(const char *type)
{
    return files[file_of(type)].number;
}

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* The first and the last eighth of the layers, and every third between them. */
static bool has_more_bits(int64_t layer, int64_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static choir__quant mixed_type(const char *name, int layer, int64_t layers)
{
    if (ends(name, "attn_qkv.weight"))
        return CHOIR__Q6_K;
    bool costly = ends(name, "attn_v.weight") || ends(name, "ffn_down.weight");
    return costly && has_more_bits(layer, layers) ? CHOIR__Q6_K : CHOIR__Q4_K;
}

/* A type whose blocks divide the rows. */
static choir__quant fitting(choir__quant type, int64_t cols)
{
    if (cols % 256 && (type == CHOIR__Q4_K || type == CHOIR__Q6_K))
        type = type == CHOIR__Q4_K ? CHOIR__Q5_0 : CHOIR__Q8_0;
    return cols % choir__quant_types[type].values ? CHOIR__F16 : type;
}

choir__quant choir__gguf_type_of(const char *type, const char *name, choir_shape shape,
    int layer, int64_t layers, bool has_output)
{
    const size_t file = file_of(type);
    choir__quant most = files[file].most;
    if (shape.ndim < 2 || ends(name, "_norm.weight") || !strcmp(name, "position_embd.weight"))
        return CHOIR__F32;
    bool scores = !strcmp(name, has_output ? "output.weight" : "token_embd.weight");
    if (file > FIRST_OF_BLOCKS && scores)
        most = CHOIR__Q6_K;
    else if (files[file].mixed)
        most = mixed_type(name, layer, layers);
    return fitting(most, shape.dim[1]);
}
