/* Reading a GGUF file as a model: its sizes become a config.json, by the tables of families.c,
 * which also write them, and its tensors a file of safetensors. */
#include "checkpoint/gguf/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/base.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/gguf/family.h"
#include "checkpoint/gguf/vocab.h"
#include "checkpoint/stored.h"
#include "tensor/tensor.h"

typedef struct import {
    const char *path, *folder, *advice;
    choir_dtype dtype;
    choir__gguf_in *in;
    const choir__gguf_family *family;
    choir__gguf_heads heads;
    choir__st_tensor *tensors; /* (count) */
    int *sources;              /* (count) numbers of the file's tensors */
    choir__gguf_change *changes;
    int count;
    float *values, *changed;
    void *cast;
} import;

bool choir__is_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".gguf");
}

static choir_status refuse(const import *m, const char *what, const char *name)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED, "%s: %s '%.200s'", m->path, what, name);
}

/* --- config.json --- */

static bool number(const import *m, const char *end, double *value)
{
    char *key = choir__format("%s.%s", m->family->arch, end);
    bool there = choir__gguf_number(m->in, key, value);
    free(key);
    return there;
}

static void set(json_t *root, const choir__gguf_key *k, double value)
{
    char *first = choir__strdup(k->published);
    first[strcspn(first, "|")] = '\0';
    json_object_set_new(root, first,
        k->kind == CHOIR__GGUF_U32 ? json_integer((json_int_t)value) : json_real(value));
    free(first);
}

static bool has_tensor(const import *m, const char *name)
{
    for (int i = 0; i < choir__gguf_count(m->in); i++)
        if (!strcmp(choir__gguf_get(m->in, i)->name, name))
            return true;
    return false;
}

static void set_ids(const import *m, json_t *root)
{
    static const char *const ids[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
        {"eos_token_id", "tokenizer.ggml.eos_token_id"},
        {"pad_token_id", "tokenizer.ggml.padding_token_id"}};
    double id, end, turn;
    for (size_t i = 0; i < CHOIR_COUNT(ids); i++)
        if (choir__gguf_number(m->in, ids[i][1], &id))
            json_object_set_new(root, ids[i][0], json_integer((json_int_t)id));
    if (choir__gguf_number(m->in, "tokenizer.ggml.eos_token_id", &end) &&
        choir__gguf_number(m->in, "tokenizer.ggml.eot_token_id", &turn) && end != turn)
        json_object_set_new(
            root, "eos_token_id", json_pack("[I, I]", (json_int_t)end, (json_int_t)turn));
}

static choir_status set_rope(const import *m, json_t *root)
{
    char *key = choir__format("%s.rope.scaling.type", m->family->arch);
    const char *type = choir__gguf_string(m->in, key);
    double factor = 1, original;
    free(key);
    if (has_tensor(m, "rope_freqs.weight"))
        return refuse(m, "frequencies of rotary positions that are a tensor are not read:",
            "rope_freqs.weight");
    if (!type || !strcmp(type, "none"))
        return CHOIR_OK;
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return refuse(m, "rotary positions are scaled in a way that is not read:", type);
    number(m, "rope.scaling.factor", &factor);
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", type, "factor", factor);
    if (number(m, "rope.scaling.original_context_length", &original))
        json_object_set_new(
            scaling, "original_max_position_embeddings", json_integer((json_int_t)original));
    json_object_set_new(root, "rope_scaling", scaling);
    return CHOIR_OK;
}

static const struct {
    const char *type, *class;
} classes[] = {{"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"}, {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"}, {"phi3", "Phi3ForCausalLM"},
    {"gpt2", "GPT2LMHeadModel"}};

static choir_status make_config(import *m, json_t *root)
{
    double heads = 0, kv = 0, rows;
    int64_t tokens;
    for (const choir__gguf_key *k = m->family->keys; k->published; k++) {
        double value = k->absent;
        if (number(m, k->gguf, &value) || !isnan(value))
            set(root, k, value);
    }
    (void)choir__gguf_strings(m->in, "tokenizer.ggml.tokens", &tokens);
    if (!number(m, "vocab_size", &rows) && tokens)
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
    number(m, "attention.head_count", &heads);
    kv = heads;
    number(m, "attention.head_count_kv", &kv);
    if (!(heads >= 1 && heads <= 1 << 20 && kv >= 1 && kv <= heads))
        return refuse(m, "no sensible number under the key", "attention.head_count");
    m->heads = (choir__gguf_heads){(int64_t)heads, (int64_t)kv};
    return m->family->rotary ? set_rope(m, root) : CHOIR_OK;
}

static choir_status write_config(import *m, const char *folder)
{
    json_t *root = json_object();
    char *path = choir__format("%s/config.json", folder);
    choir_status status = make_config(m, root);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    if (status == CHOIR_OK)
        status = choir__write_file(path, text, strlen(text));
    free(text);
    free(path);
    json_decref(root);
    return status;
}

/* --- weights --- */

static choir_status add_tensor(import *m, int source)
{
    const choir__gguf_tensor_info *t = choir__gguf_get(m->in, source);
    choir_shape shape = t->shape;
    int layer, count = m->count;
    choir__gguf_change change;
    char *name = choir__gguf_rename(m->family, t->name, false, &change, &layer);
    if (!name)
        return refuse(m, "a tensor has no place in such a model:", t->name);
    if (shape.ndim > 2 || (change == CHOIR__GGUF_TRANSPOSED && shape.ndim != 2) ||
        (change == CHOIR__GGUF_PAIRED && shape.dim[0] % (2 * m->heads.heads)) ||
        (change == CHOIR__GGUF_PAIRED_KV && shape.dim[0] % (2 * m->heads.kv_heads))) {
        free(name);
        return refuse(m, "a tensor's shape does not fit such a model:", t->name);
    }
    if (change == CHOIR__GGUF_TRANSPOSED)
        shape = choir_dims(shape.dim[1], shape.dim[0]);
    CHOIR__GROW(m->tensors, count);
    CHOIR__GROW(m->sources, count);
    CHOIR__GROW(m->changes, count);
    m->tensors[count] = (choir__st_tensor){.name = name,
        .dtype = m->dtype,
        .shape = shape,
        .bytes = (size_t)choir__shape_count(shape) * choir_dtype_size(m->dtype)};
    m->sources[count] = source;
    m->changes[count] = change;
    m->count++;
    return CHOIR_OK;
}

static choir_status next(void *arg, int i, const void **data)
{
    import *m = arg;
    const choir__gguf_tensor_info *t = choir__gguf_get(m->in, m->sources[i]);
    const choir__st_tensor *to = &m->tensors[i];
    const int64_t n = choir__shape_count(t->shape);
    choir__quant_decode(t->type, m->values, t->data, 0, n); /* rows are whole blocks */
    choir__gguf_change_values(m->changes[i], false, t->shape, m->heads, m->values, m->changed);
    choir__numbers_convert(m->cast, m->dtype, m->changed, CHOIR_F32, (size_t)n);
    *data = m->cast;
    choir__checked what = {m->path, t->name, to->shape, m->dtype, false};
    return choir__check_finite(CHOIR_ERR_NONFINITE, &what, m->cast, (size_t)n);
}

/* Blocks of few bits become several times as large. */
static choir_status check_room(const import *m, const char *folder)
{
    struct statvfs disk;
    double needs = 0;
    for (int i = 0; i < m->count; i++)
        needs += (double)m->tensors[i].bytes;
    if (statvfs(folder, &disk) != 0)
        return CHOIR_OK; /* writing says more */
    const double room = (double)disk.f_bavail * (double)disk.f_frsize;
    return needs <= room
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_IO,
                     "%s: its weights take %.2f GB as %s, and the disk of %s has %.2f GB free: %s",
                     m->path, needs / 1e9, choir_dtype_name(m->dtype), m->folder, room / 1e9,
                     m->advice);
}

static choir_status write_weights(import *m, const char *folder)
{
    int64_t most = 1;
    choir__digest digest;
    choir_status status = CHOIR_OK;
    for (int i = 0; i < choir__gguf_count(m->in) && status == CHOIR_OK; i++) {
        status = add_tensor(m, i);
        most = choir__max(most, choir__shape_count(choir__gguf_get(m->in, i)->shape));
    }
    if (status == CHOIR_OK)
        status = check_room(m, folder);
    if (status != CHOIR_OK)
        return status;
    const size_t bytes = (size_t)most * sizeof(float);
    m->values = malloc(bytes);
    m->changed = malloc(bytes);
    m->cast = malloc(bytes);
    char *path = choir__format("%s/model.safetensors", folder);
    status = m->values && m->changed && m->cast
                 ? choir__st_stream(path, m->tensors, m->count,
                       (const char *const[]){"format", "pt", NULL}, next, m, &digest)
                 : choir__error(CHOIR_ERR_MEMORY, "no host memory for %zu bytes", bytes);
    free(path);
    return status;
}

/* --- the folder --- */

static choir_status fill(const char *folder, void *arg)
{
    import *m = arg;
    choir_status status = write_config(m, folder);
    if (status == CHOIR_OK)
        status = choir__gguf_write_vocab(m->in, folder);
    if (status == CHOIR_OK)
        status = write_weights(m, folder);
    return status == CHOIR_OK ? choir__sync_path(folder) : status;
}

choir_status choir__gguf_import(
    const char *path, const char *folder, choir_dtype dtype, const char *advice)
{
import m = {.path = path, .folder = folder, .advice = advice, .dtype = dtype };
    choir_status status = choir__folder_is_free(folder);
    if (status == CHOIR_OK)
        status = choir__gguf_open(&m.in, path);
    if (status == CHOIR_OK) {
        const char *arch = choir__gguf_string(m.in, "general.architecture");
        m.family = arch ? choir__gguf_family_of_arch(arch) : NULL;
        if (!m.family)
            status =
                refuse(&m, "a model of an architecture that is not read:", arch ? arch : "");
    }
    if (status == CHOIR_OK)
        status = choir__folder_make(folder, fill, &m);
    for (int i = 0; i < m.count; i++)
        free(m.tensors[i].name);
    free(m.tensors);
    free(m.sources);
    free(m.changes);
    free(m.values);
    free(m.changed);
    free(m.cast);
    choir__gguf_close(m.in);
    return status;
}
