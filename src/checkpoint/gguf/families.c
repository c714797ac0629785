/* The families that are written and read: a row each. */
#include <math.h>

#include "checkpoint/gguf/family.h"

#define SIZES                                                                                  \
    {"max_position_embeddings", "context_length", CHOIR__GGUF_U32, 2048},                      \
        {"hidden_size", "embedding_length", CHOIR__GGUF_U32, NAN},                             \
        {"num_hidden_layers", "block_count", CHOIR__GGUF_U32, NAN},                            \
        {"intermediate_size", "feed_forward_length", CHOIR__GGUF_U32, NAN},                    \
        {"num_attention_heads", "attention.head_count", CHOIR__GGUF_U32, NAN},                 \
        {"num_key_value_heads|num_attention_heads", "attention.head_count_kv",                 \
            CHOIR__GGUF_U32, NAN},                                                             \
        {"rms_norm_eps", "attention.layer_norm_rms_epsilon", CHOIR__GGUF_F32, 1e-6},           \
        {"head_dim", "attention.key_length", CHOIR__GGUF_U32, NAN},                            \
        {"head_dim", "attention.value_length", CHOIR__GGUF_U32, NAN},                          \
    {                                                                                          \
        "vocab_size", "vocab_size", CHOIR__GGUF_U32, NAN                                       \
    }

static const choir__gguf_key usual[] = {
    SIZES, {"rope_theta", "rope.freq_base", CHOIR__GGUF_F32, 10000}, {NULL}};
static const choir__gguf_key windowed[] = {SIZES,
    {"rope_theta", "rope.freq_base", CHOIR__GGUF_F32, 10000},
    {"sliding_window", "attention.sliding_window", CHOIR__GGUF_U32, NAN}, {NULL}};
static const choir__gguf_key of_gemma2[] = {SIZES,
    {"rope_theta", "rope.freq_base", CHOIR__GGUF_F32, 10000},
    {"sliding_window", "attention.sliding_window", CHOIR__GGUF_U32, 4096},
    {"attn_logit_softcapping", "attn_logit_softcapping", CHOIR__GGUF_F32, 50},
    {"final_logit_softcapping", "final_logit_softcapping", CHOIR__GGUF_F32, 30}, {NULL}};
static const choir__gguf_key of_gemma3[] = {SIZES,
    {"rope_theta", "rope.freq_base", CHOIR__GGUF_F32, 1e6},
    {"sliding_window", "attention.sliding_window", CHOIR__GGUF_U32, 4096}, {NULL}};
static const choir__gguf_key of_gpt2[] = {
    {"n_positions|n_ctx", "context_length", CHOIR__GGUF_U32, 1024},
    {"n_embd", "embedding_length", CHOIR__GGUF_U32, NAN},
    {"n_layer", "block_count", CHOIR__GGUF_U32, NAN},
    {"n_inner", "feed_forward_length", CHOIR__GGUF_U32, NAN},
    {"n_head", "attention.head_count", CHOIR__GGUF_U32, NAN},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", CHOIR__GGUF_F32, 1e-5},
    {"vocab_size", "vocab_size", CHOIR__GGUF_U32, NAN}, {NULL}};

/* Names behind "model.layers.#." and "blk.#.". */
#define LAYER(published, gguf, change)                                                         \
    {                                                                                          \
        "model.layers.#." published, "blk.#." gguf, change                                     \
    }
#define KEPT(published, gguf) LAYER(published, gguf, CHOIR__GGUF_AS_IT_IS)
#define TIED_ENDS(norm)                                                                        \
    {"model.embed_tokens.weight", "token_embd.weight", CHOIR__GGUF_AS_IT_IS},                  \
    {                                                                                          \
        "model.norm.weight", "output_norm.weight", norm                                        \
    }
#define ENDS(norm)                                                                             \
    TIED_ENDS(norm),                                                                           \
    {                                                                                          \
        "lm_head.weight", "output.weight", CHOIR__GGUF_AS_IT_IS                                \
    }
#define REST                                                                                   \
    KEPT("self_attn.v_proj.weight", "attn_v.weight"),                                          \
        KEPT("self_attn.o_proj.weight", "attn_output.weight"),                                 \
        KEPT("mlp.gate_proj.weight", "ffn_gate.weight"),                                       \
        KEPT("mlp.up_proj.weight", "ffn_up.weight"),                                           \
        KEPT("mlp.down_proj.weight", "ffn_down.weight")
#define QK(queries, keys)                                                                      \
    LAYER("self_attn.q_proj.weight", "attn_q.weight", queries),                                \
        LAYER("self_attn.k_proj.weight", "attn_k.weight", keys)
/* Biases that llama.cpp loads: a file with others is refused there. */
#define QKV_BIASES(queries, keys)                                                              \
    LAYER("self_attn.q_proj.bias", "attn_q.bias", queries),                                    \
        LAYER("self_attn.k_proj.bias", "attn_k.bias", keys),                                   \
        KEPT("self_attn.v_proj.bias", "attn_v.bias")
#define REST_BIASES                                                                            \
    KEPT("self_attn.o_proj.bias", "attn_output.bias"),                                         \
        KEPT("mlp.gate_proj.bias", "ffn_gate.bias"), KEPT("mlp.up_proj.bias", "ffn_up.bias"),  \
        KEPT("mlp.down_proj.bias", "ffn_down.bias")
#define TWO_NORMS                                                                              \
    KEPT("input_layernorm.weight", "attn_norm.weight"),                                        \
        KEPT("post_attention_layernorm.weight", "ffn_norm.weight")
#define QK_NORMS(change)                                                                       \
    LAYER("self_attn.q_norm.weight", "attn_q_norm.weight", change),                            \
        LAYER("self_attn.k_norm.weight", "attn_k_norm.weight", change)
#define GEMMA_NORMS                                                                            \
    LAYER("input_layernorm.weight", "attn_norm.weight", CHOIR__GGUF_PLUS_ONE),                 \
        LAYER("post_attention_layernorm.weight", "post_attention_norm.weight",                 \
            CHOIR__GGUF_PLUS_ONE),                                                             \
        LAYER("pre_feedforward_layernorm.weight", "ffn_norm.weight", CHOIR__GGUF_PLUS_ONE),    \
        LAYER(                                                                                 \
            "post_feedforward_layernorm.weight", "post_ffw_norm.weight", CHOIR__GGUF_PLUS_ONE)

static const choir__gguf_name llama[] = {ENDS(CHOIR__GGUF_AS_IT_IS), TWO_NORMS,
    QK(CHOIR__GGUF_PAIRED, CHOIR__GGUF_PAIRED_KV), REST,
    QKV_BIASES(CHOIR__GGUF_PAIRED, CHOIR__GGUF_PAIRED_KV), REST_BIASES, {NULL}};
static const choir__gguf_name qwen2[] = {ENDS(CHOIR__GGUF_AS_IT_IS), TWO_NORMS,
    QK(CHOIR__GGUF_AS_IT_IS, CHOIR__GGUF_AS_IT_IS), REST,
    QKV_BIASES(CHOIR__GGUF_AS_IT_IS, CHOIR__GGUF_AS_IT_IS), {NULL}};
static const choir__gguf_name qwen3[] = {ENDS(CHOIR__GGUF_AS_IT_IS), TWO_NORMS,
    QK(CHOIR__GGUF_AS_IT_IS, CHOIR__GGUF_AS_IT_IS), QK_NORMS(CHOIR__GGUF_AS_IT_IS), REST,
    {NULL}};
static const choir__gguf_name gemma2[] = {TIED_ENDS(CHOIR__GGUF_PLUS_ONE), GEMMA_NORMS,
    QK(CHOIR__GGUF_AS_IT_IS, CHOIR__GGUF_AS_IT_IS), REST, {NULL}};
static const choir__gguf_name gemma3[] = {ENDS(CHOIR__GGUF_PLUS_ONE), GEMMA_NORMS,
    QK(CHOIR__GGUF_AS_IT_IS, CHOIR__GGUF_AS_IT_IS), QK_NORMS(CHOIR__GGUF_PLUS_ONE), REST,
    {NULL}};
static const choir__gguf_name phi3[] = {ENDS(CHOIR__GGUF_AS_IT_IS), TWO_NORMS,
    KEPT("self_attn.qkv_proj.weight", "attn_qkv.weight"),
    KEPT("self_attn.o_proj.weight", "attn_output.weight"),
    KEPT("mlp.gate_up_proj.weight", "ffn_up.weight"),
    KEPT("mlp.down_proj.weight", "ffn_down.weight"), {NULL}};

#define GPT2(published, gguf, change)                                                          \
    {                                                                                          \
        "transformer.h.#." published, "blk.#." gguf, change                                    \
    }
static const choir__gguf_name gpt2[] = {
    {"transformer.wte.weight", "token_embd.weight", CHOIR__GGUF_AS_IT_IS},
    {"transformer.wpe.weight", "position_embd.weight", CHOIR__GGUF_AS_IT_IS},
    {"transformer.ln_f.weight", "output_norm.weight", CHOIR__GGUF_AS_IT_IS},
    {"transformer.ln_f.bias", "output_norm.bias", CHOIR__GGUF_AS_IT_IS},
    GPT2("ln_1.weight", "attn_norm.weight", CHOIR__GGUF_AS_IT_IS),
    GPT2("ln_1.bias", "attn_norm.bias", CHOIR__GGUF_AS_IT_IS),
    GPT2("attn.c_attn.weight", "attn_qkv.weight", CHOIR__GGUF_TRANSPOSED),
    GPT2("attn.c_attn.bias", "attn_qkv.bias", CHOIR__GGUF_AS_IT_IS),
    GPT2("attn.c_proj.weight", "attn_output.weight", CHOIR__GGUF_TRANSPOSED),
    GPT2("attn.c_proj.bias", "attn_output.bias", CHOIR__GGUF_AS_IT_IS),
    GPT2("ln_2.weight", "ffn_norm.weight", CHOIR__GGUF_AS_IT_IS),
    GPT2("ln_2.bias", "ffn_norm.bias", CHOIR__GGUF_AS_IT_IS),
    GPT2("mlp.c_fc.weight", "ffn_up.weight", CHOIR__GGUF_TRANSPOSED),
    GPT2("mlp.c_fc.bias", "ffn_up.bias", CHOIR__GGUF_AS_IT_IS),
    GPT2("mlp.c_proj.weight", "ffn_down.weight", CHOIR__GGUF_TRANSPOSED),
    GPT2("mlp.c_proj.bias", "ffn_down.bias", CHOIR__GGUF_AS_IT_IS), {NULL}};

/* The first row of an architecture is the one that is read. */
const choir__gguf_family choir__gguf_families[] = {
    {"llama", "llama", usual, llama, .rotary = true, .factors = true},
    {"mistral", "llama", usual, llama, .rotary = true, .factors = true},
    {"qwen2", "qwen2", usual, qwen2, .rotary = true},
    {"qwen3", "qwen3", usual, qwen3, .rotary = true},
    {"gemma2", "gemma2", of_gemma2, gemma2, .rotary = true, .windows = true},
    {"gemma3_text", "gemma3", of_gemma3, gemma3, .rotary = true, .windows = true},
    {"phi3", "phi3", windowed, phi3, .rotary = true},
    {"gpt2", "gpt2", of_gpt2, gpt2, .rotary = false},
    {NULL},
};
