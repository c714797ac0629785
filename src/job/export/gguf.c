/* A model as llama.cpp and its relatives load it: one file with sizes, tokenizer, chat template
 * and weights, adapters added to them.
 *
 * Matrices are of the type that --dtype names; norms and biases are f32. q4_K_M is a mixture:
 * layers whose errors cost most have q6_K, as in llama.cpp's own files. A row that the blocks
 * of a type do not divide gets q5_0 or q8_0, or f16. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/base.h"
#include "base/files/file.h"
#include "checkpoint/gguf/family.h"
#include "checkpoint/gguf/vocab.h"
#include "checkpoint/weights/adapter.h"
#include "data/chats/chat.h"
#include "job/export/export.h"
#include "job/export/gguf_check.h"
#include "job/export/gguf_types.h"
#include "line/say.h"
#include "nn/models/config.h"
#include "tensor/tensor.h"

#define FILE_NAME "model.gguf"

/* A file on its way. */
typedef struct making {
    const choir__export *e;
    const choir__gguf_family *family;
    json_t *config;
    choir__gguf_out *out;
    choir__merged *weights;
    choir__gguf_heads heads;
    int64_t layers, rows;        /* layers; rows of embeddings */
    bool has_output;             /* scores have a matrix of their own */
    bool window_lost;            /* llama.cpp computes no window of this model */
    choir__gguf_change *changes; /* (count of weights) */
    choir__quant *types;         /* (count of weights) */
    float *room;                 /* for a changed tensor */
    float *factors;              /* rope_freqs.weight, or NULL */
    int64_t factor_count;
} making;

static choir_status refuse(const making *m, const char *format, const char *what)
{
    char *why = choir__format(format, what);
    choir_status status = choir__error(CHOIR_ERR_UNSUPPORTED, "%s: %s", m->e->from, why);
    free(why);
    return status;
}

/* --- sizes --- */

static void add_key(const making *m, const char *end, choir__gguf_kind kind, double value)
{
    char *key = choir__format("%s.%s", m->family->arch, end);
    if (kind == CHOIR__GGUF_U32)
        choir__gguf_u32(m->out, key, (uint32_t)value);
    else
        choir__gguf_f32(m->out, key, (float)value);
    free(key);
}

static void add_text(const making *m, const char *end, const char *value)
{
    char *key = choir__format("%s.%s", m->family->arch, end);
    choir__gguf_text(m->out, key, value);
    free(key);
}

/* Llama 3's scaling divides frequencies by factors of their own, which are a tensor. */
static void make_factors(making *m, const json_t *rope, double theta, int64_t width)
{
    double factor = 8, low = 1, high = 4, original = 8192;
    choir__gguf_config_number(rope, "factor", &factor);
    choir__gguf_config_number(rope, "low_freq_factor", &low);
    choir__gguf_config_number(rope, "high_freq_factor", &high);
    choir__gguf_config_number(rope, "original_max_position_embeddings", &original);
    m->factor_count = width / 2;
    m->factors = choir__calloc((size_t)m->factor_count + 1, sizeof *m->factors);
    choir__gguf_factors(
        &(choir__gguf_llama3){factor, low, high, original}, theta, width, m->factors);
}

static choir_status add_rope(making *m, int64_t width)
{
    const json_t *rope = json_object_get(m->config, "rope_scaling");
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    double theta = 10000, factor = 1, part = 1, original;
    choir__gguf_config_number(m->config, "rope_theta", &theta);
    choir__gguf_config_number(m->config, "partial_rotary_factor", &part);
    add_key(m, "rope.dimension_count", CHOIR__GGUF_U32, floor(part * (double)width));
    if (!type)
        return CHOIR_OK;
    choir__gguf_config_number(rope, "factor", &factor);
    if (!strcmp(type, "llama3") && m->family->factors) {
        make_factors(m, rope, theta, width);
        return CHOIR_OK;
    }
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return refuse(m,
            "its rotary positions are scaled as '%s', for which GGUF has no form here", type);
    add_text(m, "rope.scaling.type", type);
    add_key(m, "rope.scaling.factor", CHOIR__GGUF_F32, factor);
    if (choir__gguf_config_number(rope, "original_max_position_embeddings", &original))
        add_key(m, "rope.scaling.original_context_length", CHOIR__GGUF_U32, original);
    return CHOIR_OK;
}

/* Where llama.cpp computes no window, texts up to its length still have the model's answers. */
static void look_at_window(making *m)
{
    double window, context = 0;
    if (m->family->windows || !choir__gguf_config_number(m->config, "sliding_window", &window))
        return;
    choir__gguf_config_number(m->config, "max_position_embeddings", &context);
    m->window_lost = true;
    if (window >= context)
        return;
    char *note =
        choir__format("%s: llama.cpp has no window for '%s': the file's context is the "
                      "window, %.0f tokens of %.0f",
            m->e->from, m->family->arch, window, context);
    choir__line_notes("", note);
    json_object_set_new(m->config, "max_position_embeddings", json_integer((json_int_t)window));
    free(note);
}

static choir_status add_sizes(making *m)
{
    double heads = 0, width = 0, each = 0, kv = 0, layers = 0, rows = 0, inner;
    choir__gguf_config_number(m->config, "num_attention_heads|n_head", &heads);
    choir__gguf_config_number(m->config, "hidden_size|n_embd", &width);
    choir__gguf_config_number(m->config, "num_hidden_layers|n_layer", &layers);
    choir__gguf_config_number(m->config, "vocab_size", &rows);
    if (!choir__gguf_config_number(m->config, "num_key_value_heads", &kv))
        kv = heads;
    if (!(heads >= 1 && width >= heads && layers >= 1 && kv >= 1))
        return refuse(m, "its config.json lacks sizes: %s", "heads, width or layers");
    if (!choir__gguf_config_number(m->config, "head_dim", &each))
        each = floor(width / heads);
    m->heads = (choir__gguf_heads){(int64_t)heads, (int64_t)kv};
    m->layers = (int64_t)layers;
    m->rows = (int64_t)rows;
    look_at_window(m);
    for (const choir__gguf_key *k = m->family->keys; k->published; k++) {
        double value = k->absent;
        if (choir__gguf_config_number(m->config, k->published, &value) || !isnan(value))
            add_key(m, k->gguf, k->kind, value);
    }
    if (!strcmp(m->family->arch, "gpt2") &&
        !choir__gguf_config_number(m->config, "n_inner", &inner))
        add_key(m, "feed_forward_length", CHOIR__GGUF_U32, 4 * width);
    return m->family->rotary ? add_rope(m, (int64_t)each) : CHOIR_OK;
}

/* --- tensors --- */

static choir_status add_tensors(making *m)
{
    const int count = choir__merged_count(m->weights);
    int64_t most = 1;
    m->changes = choir__calloc((size_t)count + 1, sizeof *m->changes);
    m->types = choir__calloc((size_t)count + 1, sizeof *m->types);
    for (int i = 0; i < count; i++) {
        choir_shape shape;
        m->has_output |= !strcmp(choir__merged_name(m->weights, i, &shape), "lm_head.weight");
    }
    for (int i = 0; i < count; i++) {
        choir_shape shape;
        int layer;
        const char *name = choir__merged_name(m->weights, i, &shape);
        char *there = choir__gguf_rename(m->family, name, true, &m->changes[i], &layer);
        if (!there)
            return refuse(m, "weight '%s' has no place in a GGUF file", name);
        if (m->changes[i] == CHOIR__GGUF_TRANSPOSED)
            shape = choir_dims(shape.dim[1], shape.dim[0]);
        m->types[i] =
            choir__gguf_type_of(m->e->type, there, shape, layer, m->layers, m->has_output);
        choir__gguf_tensor(m->out, there, shape, m->types[i]);
        most = choir__max(most, choir__shape_count(shape));
        free(there);
    }
    if (m->factors)
        choir__gguf_tensor(
            m->out, CHOIR__GGUF_FACTORS, choir_dims(m->factor_count), CHOIR__F32);
    m->room = malloc((size_t)most * sizeof *m->room);
    return m->room ? CHOIR_OK
                   : choir__error(
                         CHOIR_ERR_MEMORY, "no host memory for %lld numbers", (long long)most);
}

/* Stores the blocks in which weight i is held, if the file has that type: they are not rounded
 * again. */
static choir_status next_blocks(making *m, int i, choir_shape shape, const uint8_t **blocks)
{
    const choir__gguf_change change = m->changes[i];
    const int64_t heads = choir__gguf_paired_heads(change, m->heads);
    if (change != CHOIR__GGUF_AS_IT_IS && !heads)
        return CHOIR_OK;
    choir_status status = choir__merged_blocks(m->weights, i, m->types[i], blocks);
    if (status != CHOIR_OK || !*blocks || !heads)
        return status;
    choir__gguf_pair_rows(true, shape.dim[0], heads,
        (size_t)choir__quant_bytes(m->types[i], shape.dim[1]), *blocks, m->room);
    *blocks = (const uint8_t *)m->room;
    return CHOIR_OK;
}

static choir_status next(void *arg, int i, const float **values, const uint8_t **blocks)
{
    making *m = arg;
    if (i == choir__merged_count(m->weights)) {
        *values = m->factors;
        return CHOIR_OK;
    }
    choir_shape shape;
    (void)choir__merged_name(m->weights, i, &shape);
    choir_status status = next_blocks(m, i, shape, blocks);
    if (status != CHOIR_OK || *blocks)
        return status;
    status = choir__merged_read(m->weights, i, values);
    if (status != CHOIR_OK || m->changes[i] == CHOIR__GGUF_AS_IT_IS)
        return status;
    choir__gguf_change_values(m->changes[i], true, shape, m->heads, *values, m->room);
    *values = m->room;
    return CHOIR_OK;
}

/* --- the file --- */

static choir_status fill(making *m, const char *path)
{
    choir__gguf_text(m->out, "general.architecture", m->family->arch);
    choir__gguf_text(m->out, "general.type", "model");
    choir__gguf_u32(m->out, "general.file_type", choir__gguf_file_type(m->e->type));
    choir__gguf_u32(m->out, "general.quantization_version", 2);
    char *notes = NULL;
    choir_status status = add_sizes(m);
    if (status == CHOIR_OK)
        status = choir__gguf_add_vocab(
            m->out, m->e->from, m->rows, choir__chat_end_of(m->e->model.tokenizer), &notes);
    if (status == CHOIR_OK)
        choir__line_notes("", notes);
    free(notes);
    if (status == CHOIR_OK)
        status = add_tensors(m);
    if (status == CHOIR_OK)
        status = choir__gguf_write(m->out, path, next, m);
    return status == CHOIR_OK ? choir__gguf_check_model(
                                    path, m->e->from, m->e->model.info.config, m->window_lost)
                              : status;
}

static choir_status write_file(const choir__export *e, const char *folder)
{
    making m = {.e = e};
    char *path = choir__format("%s/" FILE_NAME, folder);
    char *config = choir__config_json(e->model.info.config, NULL, NULL);
    m.config = config ? json_loads(config, 0, NULL) : NULL;
    const char *type = json_string_value(json_object_get(m.config, "model_type"));
    m.family = type ? choir__gguf_family_of(type) : NULL;
    choir_status status =
        m.family ? CHOIR_OK
        : type   ? refuse(&m, "models of type '%s' have no form in GGUF files here", type)
                 : refuse(&m, "the model %s has no published form", e->model.info.config);
    if (status == CHOIR_OK) {
        m.out = choir__gguf_new();
        m.weights = choir__merged_open(e->model.net);
        status = fill(&m, path);
    }
    choir__merged_close(m.weights);
    choir__gguf_free(m.out);
    json_decref(m.config);
    free(config);
    free(m.changes);
    free(m.types);
    free(m.room);
    free(m.factors);
    free(path);
    return status;
}

const choir__export_format choir__export_gguf = {.name = "gguf",
    .help = "one file, " FILE_NAME ", with the tokenizer, as llama.cpp loads it",
    .library = "gguf",
    .blocks = true,
    .write = write_file};
