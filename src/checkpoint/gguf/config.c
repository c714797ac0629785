/* A GGUF file's sizes as a config.json, by the tables of families.c, which also write them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/gguf/model.h"

/* Returns a size or an id. Values beyond 32 bits become -1, and no reader takes that. */
static json_t *whole(double value)
{
    return json_integer(value >= 0 && value <= UINT32_MAX ? (json_int_t)value : -1);
}

static void set(json_t *root, const choir__gguf_key *k, double value)
{
    char *first = choir__strdup(k->published);
    first[strcspn(first, "|")] = '\0';
    json_object_set_new(
        root, first, k->kind == CHOIR__GGUF_U32 ? whole(value) : json_real(value));
    free(first);
}

static const choir__gguf_tensor_info *find_tensor(const choir__gguf_model *m, const char *name)
{
    for (int i = 0; i < choir__gguf_count(m->in); i++)
        if (!strcmp(choir__gguf_get(m->in, i)->name, name))
            return choir__gguf_get(m->in, i);
    return NULL;
}

static bool has_tensor(const choir__gguf_model *m, const char *name)
{
    return find_tensor(m, name) != NULL;
}

static void set_ids(const choir__gguf_model *m, json_t *root)
{
    static const char *const ids[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
        {"eos_token_id", "tokenizer.ggml.eos_token_id"},
        {"pad_token_id", "tokenizer.ggml.padding_token_id"}};
    double id, end, turn;
    for (size_t i = 0; i < CHOIR_COUNT(ids); i++)
        if (choir__gguf_number(m->in, ids[i][1], &id))
            json_object_set_new(root, ids[i][0], whole(id));
    if (choir__gguf_number(m->in, "tokenizer.ggml.eos_token_id", &end) &&
        choir__gguf_number(m->in, "tokenizer.ggml.eot_token_id", &turn) && end != turn)
        json_object_set_new(root, "eos_token_id", json_pack("[o, o]", whole(end), whole(turn)));
}

/* Finds the scaling that the file has as a tensor. */
static choir_status set_llama3(
    const choir__gguf_model *m, const choir__gguf_tensor_info *t, json_t *root)
{
    double theta = 10000, width = 0;
    choir__gguf_llama3 s;
    choir__gguf_model_number(m, "rope.freq_base", &theta);
    if (!choir__gguf_model_number(m, "rope.dimension_count", &width))
        choir__gguf_model_number(m, "attention.key_length", &width);
    bool fits = t->type == CHOIR__F32 && t->shape.ndim == 1 && theta > 0 &&
                width == 2 * (double)t->shape.dim[0];
    float *factors = choir__calloc((size_t)t->bytes + 1, 1);
    memcpy(factors, t->data, (size_t)t->bytes);
    bool known = fits && choir__gguf_factors_known(factors, theta, (int64_t)width, &s);
    free(factors);
    if (!known)
        return choir__gguf_refuse(m,
            "rotary positions are scaled in a way that is not read, by the tensor",
            CHOIR__GGUF_FACTORS);
    json_object_set_new(root, "rope_scaling",
        json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", s.factor,
            "low_freq_factor", s.low, "high_freq_factor", s.high,
            "original_max_position_embeddings", (json_int_t)s.original));
    return CHOIR_OK;
}

static choir_status set_rope(const choir__gguf_model *m, json_t *root)
{
    char *key = choir__format("%s.rope.scaling.type", m->family->arch);
    const char *type = choir__gguf_string(m->in, key);
    static const char *const betas[][2] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    double factor = 1, original, attention, beta;
    free(key);
    const choir__gguf_tensor_info *factors = find_tensor(m, CHOIR__GGUF_FACTORS);
    if (factors)
        return set_llama3(m, factors, root);
    if (!type || !strcmp(type, "none"))
        return CHOIR_OK;
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return choir__gguf_refuse(
            m, "rotary positions are scaled in a way that is not read:", type);
    choir__gguf_model_number(m, "rope.scaling.factor", &factor);
    if (!isfinite(factor))
        return choir__gguf_refuse(
            m, "expected a finite number under the key", "rope.scaling.factor");
    if (choir__gguf_model_number(m, "rope.scaling.attn_factor", &attention) && attention != 1)
        return choir__gguf_refuse(
            m, "expected 1, or nothing, under the key", "rope.scaling.attn_factor");
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", type, "factor", factor);
    if (choir__gguf_model_number(m, "rope.scaling.original_context_length", &original))
        json_object_set_new(scaling, "original_max_position_embeddings", whole(original));
    for (size_t i = 0; !strcmp(type, "yarn") && i < CHOIR_COUNT(betas); i++)
        if (choir__gguf_model_number(m, betas[i][0], &beta))
            json_object_set_new(scaling, betas[i][1], json_real(beta));
    json_object_set_new(root, "rope_scaling", scaling);
    return CHOIR_OK;
}

/* Settings that llama.cpp derives from sizes. */
static void set_derived(const choir__gguf_model *m, json_t *root)
{
    double each = 0, turned = 0, heads = 0, width = 0, layers = 0, local, id;
    const char *type = m->family->type;
    choir__gguf_config_number(root, "hidden_size", &width);
    choir__gguf_config_number(root, "num_attention_heads", &heads);
    choir__gguf_config_number(root, "num_hidden_layers", &layers);
    if (!choir__gguf_config_number(root, "head_dim", &each))
        each = heads > 0 ? width / heads : 0;
    bool of_27b = (!strcmp(type, "gemma2") && layers == 46) ||
                  (!strcmp(type, "gemma3_text") && layers == 62);
    if (!strncmp(type, "gemma", 5) && heads > 0 && each > 0)
        json_object_set_new(
            root, "query_pre_attn_scalar", whole(of_27b ? width / heads : each));
    if (choir__gguf_model_number(m, "rope.freq_base_swa", &local))
        json_object_set_new(root, "rope_local_base_freq", json_real(local));
    if (strcmp(type, "phi3") != 0)
        return;
    if (choir__gguf_model_number(m, "rope.dimension_count", &turned) && turned != each)
        json_object_set_new(root, "partial_rotary_factor", json_real(turned / each));
    if (!choir__gguf_number(m->in, "tokenizer.ggml.padding_token_id", &id))
        json_object_set_new(root, "pad_token_id", json_null()); /* else one of Phi-3's own */
}

static const struct {
    const char *type, *class;
} classes[] = {{"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"}, {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"}, {"phi3", "Phi3ForCausalLM"},
    {"gpt2", "GPT2LMHeadModel"}};

/* config.json's defaults are of other models. */
static choir_status check_keys(const choir__gguf_model *m)
{
    static const char *const ends[] = {
        "embedding_length", "block_count", "feed_forward_length", "context_length"};
    for (size_t i = 0; i < CHOIR_COUNT(ends); i++) {
        double value;
        if (choir__gguf_model_number(m, ends[i], &value))
            continue;
        char *key = choir__format("%s.%s", m->family->arch, ends[i]);
        choir_status status =
            choir__error(CHOIR_ERR_FORMAT, "%s: missing key '%s'", m->path, key);
        free(key);
        return status;
    }
    return CHOIR_OK;
}

static choir_status fill(const choir__gguf_model *m, json_t *root)
{
    double rows;
    int64_t tokens;
    choir_status status = check_keys(m);
    if (status != CHOIR_OK)
        return status;
    for (const choir__gguf_key *k = m->family->keys; k->published; k++) {
        double value = k->absent;
        const bool there = choir__gguf_model_number(m, k->gguf, &value);
        if (there && !isfinite(value))
            return choir__gguf_refuse(m, "expected a finite number under the key", k->gguf);
        if (there || !isnan(value))
            set(root, k, value);
    }
    (void)choir__gguf_strings(m->in, "tokenizer.ggml.tokens", &tokens);
    if (!choir__gguf_model_number(m, "vocab_size", &rows) && tokens)
        json_object_set_new(root, "vocab_size", json_integer(tokens));
    for (size_t i = 0; i < CHOIR_COUNT(classes); i++)
        if (!strcmp(m->family->type, classes[i].type))
            json_object_set_new(root, "architectures", json_pack("[s]", classes[i].class));
    json_object_set_new(root, "model_type", json_string(m->family->type));
    json_object_set_new(
        root, "tie_word_embeddings", json_boolean(!has_tensor(m, "output.weight")));
    if (!strcmp(m->family->type, "llama")) {
        json_object_set_new(
            root, "attention_bias", json_boolean(has_tensor(m, "blk.0.attn_q.bias")));
        json_object_set_new(root, "mlp_bias", json_boolean(has_tensor(m, "blk.0.ffn_up.bias")));
    }
    set_ids(m, root);
    set_derived(m, root);
    return m->family->rotary ? set_rope(m, root) : CHOIR_OK;
}

choir_status choir__gguf_config(const choir__gguf_model *m, char **text)
{
    json_t *root = json_object();
    choir_status status = fill(m, root);
    if (status == CHOIR_OK)
        *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    json_decref(root);
    return status;
}

choir_status choir__gguf_read_config(const char *path, char **text)
{
    choir__gguf_model m;
    choir_status status = choir__gguf_model_open(&m, path);
    if (status == CHOIR_OK)
        status = choir__gguf_config(&m, text);
    choir__gguf_model_close(&m);
    return status;
}
