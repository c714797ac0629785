/* Weights from elsewhere: all forms that published files have give the same model; an error
 * names the tensor and is reported before anything has changed. */
#include "checkpoint_fixture.h"

#include <jansson.h>
#include <sys/stat.h>

#include "base/half.h"
#include "checkpoint/weights/published.h"
#include "nn/models/models.h"
#include "checkpoint/format/safetensors.h"
#include "tensor/tensor.h"

#define BERT "bert:layers=1,heads=2,width=8,context=4,vocab=5"

enum { MOST = 64 };

/* A file in preparation: a model's tensors, to be changed and written. */
typedef struct file {
    choir__st_tensor t[MOST];
    int count;
} file;

static void take(const char *name, choir_tensor *t, void *arg)
{
    file *f = arg;
    size_t bytes = (size_t)t->count * sizeof(float);
    void *data = malloc(bytes);
    ok(choir_read(t, data, bytes));
    f->t[f->count++] =
        (choir__st_tensor){strdup(name), CHOIR_F32, t->shape, data, .bytes = bytes};
}

static file file_of(choir_module *net)
{
    file f = {.count = 0};
    choir_module_visit(net, true, take, &f);
    return f;
}

static choir__st_tensor *find(file *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->t[i].name, name))
            return &f->t[i];
    fail_msg("no %s", name);
    return NULL;
}

static void rename_to(choir__st_tensor *t, const char *name)
{
    free(t->name);
    t->name = strdup(name);
}

static void add(file *f, const char *name, choir_dtype dtype, choir_shape shape)
{
    size_t bytes = (size_t)choir__shape_count(shape) * choir_dtype_size(dtype);
    f->t[f->count++] =
        (choir__st_tensor){strdup(name), dtype, shape, calloc(1, bytes), .bytes = bytes};
}

static void add_copy(file *f, const char *name, const choir__st_tensor *t)
{
    void *data = memcpy(malloc(t->bytes), t->data, t->bytes);
    f->t[f->count++] =
        (choir__st_tensor){strdup(name), t->dtype, t->shape, data, .bytes = t->bytes};
}

static void drop(file *f, const char *name)
{
    choir__st_tensor *t = find(f, name);
    free(t->name);
    free((void *)t->data);
    *t = f->t[--f->count];
}

static void file_free(file *f)
{
    for (int i = 0; i < f->count; i++) {
        free(f->t[i].name);
        free((void *)f->t[i].data);
    }
}

/* Loads the file at path. *notes: the loader's notes. */
static choir_status load_published(job *j, const char *path, bool fresh, char **notes)
{
    const choir__model_spec *spec;
    ok(choir__model_find(j->info.config, &spec));
    choir_head head = fresh ? CHOIR_HEAD_NEW_IF_MISSING : CHOIR_HEAD_KEPT;
    return choir__published_load(j->net, path,
        (choir__published_opts){
            .names = spec->published, .model = j->info.config, .head = head},
        notes);
}

static job other(const char *model) /* of other weights */
{
    job j = job_open(model, SGD_PLAIN);
    train(&j, 0, 1);
    return j;
}

static void check_same(const char *model, file *f, const char *want, const char *note)
{
    const char *path = at("w.safetensors");
    char *notes;
    job j = other(model);
    ok(st_write(path, f->t, f->count, NULL));
    assert_string_not_equal(sha(j.net), want);
    ok(load_published(&j, path, true, &notes));
    assert_string_equal(sha(j.net), want);
    if (*note)
        assert_non_null(strstr(notes, note));
    else
        assert_string_equal(notes, "");
    free(notes);
    file_free(f);
    job_close(&j);
}

static void refused(const char *model, file *f, const char *first, const char *second)
{
    const char *path = at("w.safetensors");
    char *notes, before[65];
    job j = other(model);
    ok(st_write(path, f->t, f->count, NULL));
    strcpy(before, sha(j.net));
    assert_fails(load_published(&j, path, false, &notes), CHOIR_ERR_FORMAT, "w.safetensors");
    assert_says(first);
    assert_says(second);
    assert_string_equal(sha(j.net), before);
    file_free(f);
    job_close(&j);
}

/* --- forms that are the same model --- */

static void gpt2_forms(void **state)
{
    job a = job_open(GPT2, SGD_PLAIN);
    char want[65];
    strcpy(want, sha(a.net));
    file f = file_of(a.net); /* of the full class */
    assert_int_equal(find(&f, "transformer.h.0.attn.c_attn.weight")->shape.dim[1], 24);
    check_same(GPT2, &f, want, "");

    f = file_of(a.net); /* of the base class, with masks among the tensors */
    for (int i = 0; i < f.count; i++)
        memmove(f.t[i].name, f.t[i].name + strlen("transformer."),
            strlen(f.t[i].name + strlen("transformer.")) + 1);
    add(&f, "h.0.attn.bias", CHOIR_BOOL, choir_dims(1, 1, 4, 4));
    add(&f, "h.0.attn.masked_bias", CHOIR_F32, CHOIR_SCALAR);
    check_same(GPT2, &f, want, "");

    f = file_of(a.net); /* with the head that is tied */
    add_copy(&f, "lm_head.weight", find(&f, "transformer.wte.weight"));
    check_same(GPT2, &f, want, "");

    f = file_of(a.net); /* with the head alone */
    rename_to(find(&f, "transformer.wte.weight"), "lm_head.weight");
    check_same(GPT2, &f, want, "");
    job_close(&a);
}

static void bert_forms(void **state)
{
    job a = job_open(BERT, SGD_PLAIN);
    char want[65];
    strcpy(want, sha(a.net));
    file f = file_of(a.net); /* as bert-base-uncased is published */
    add_copy(&f, "cls.predictions.decoder.weight",
        find(&f, "bert.embeddings.word_embeddings.weight"));
    add_copy(&f, "cls.predictions.decoder.bias", find(&f, "cls.predictions.bias"));
    add(&f, "cls.seq_relationship.weight", CHOIR_F32, choir_dims(2, 8));
    add(&f, "bert.embeddings.position_ids", CHOIR_I64, choir_dims(1, 4));
    add(&f, "bert.pooler.dense.bias", CHOIR_F32, choir_dims(8));
    check_same(BERT, &f, want, "'bert.pooler.dense.bias' is unknown to this model");
    job_close(&a);
}

/* Gives the norms the names of 2018. */
static void name_as_in_tensorflow(file *f)
{
    static const char *const ends[][2] = {
        {"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    for (int i = 0; i < 2 * f->count; i++) {
        choir__st_tensor *t = &f->t[i / 2];
        const char *at = strstr(t->name, ends[i % 2][0]);
        char *older =
            at ? choir__format("%.*s%s", (int)(at - t->name), t->name, ends[i % 2][1]) : NULL;
        if (older)
            rename_to(t, older);
        free(older);
    }
}

static void bert_older_names(void **state)
{
    job a = job_open(BERT, SGD_PLAIN);
    char want[65];
    strcpy(want, sha(a.net));
    file f = file_of(a.net);
    name_as_in_tensorflow(&f);
    assert_non_null(find(&f, "bert.encoder.layer.0.output.LayerNorm.gamma"));
    check_same(BERT, &f, want, "");
    f = file_of(a.net); /* one norm under both names */
    add_copy(&f, "bert.embeddings.LayerNorm.beta", find(&f, "bert.embeddings.LayerNorm.bias"));
    refused(BERT, &f, "unknown tensor", "'bert.embeddings.LayerNorm.beta'");
    job_close(&a);
}

/* A classifier loads the encoder, ignores the other head, and starts with a new head of its
 * own. */
static void heads_start_anew(void **state)
{
    const char *path = at("w.safetensors");
    char *notes;
    job a = job_open(BERT, SGD_PLAIN), b = job_open(BERT ",classes=3", SGD_PLAIN);
    file f = file_of(a.net);
    float *weight = (float *)find(&f, "bert.encoder.layer.0.output.dense.weight")->data;
    weight[1] = 42;
    ok(st_write(path, f.t, f.count, NULL));
    assert_fails(
        load_published(&b, path, false, &notes), CHOIR_ERR_FORMAT, "'bert.pooler.dense.bias'");
    ok(load_published(&b, path, true, &notes));
    assert_non_null(strstr(notes, "'classifier.weight'"));
    assert_non_null(strstr(notes, " are missing, and start with new values"));
    assert_non_null(strstr(notes, "'cls.predictions."));
    assert_non_null(strstr(notes, " are unknown to this model"));
    float read[64 * 4];
    choir_tensor *t = choir_module_find(b.net, "bert.encoder.layer.0.output.dense.weight");
    ok(choir_read(t, read, (size_t)t->count * sizeof *read));
    assert_true(read[1] == 42);
    free(notes);
    file_free(&f);
    job_close(&a);
    job_close(&b);
}

static void half_precision(void **state)
{
    job a = job_open(GPT2, SGD_PLAIN), b = other(GPT2);
    for (int bf = 0; bf < 2; bf++) {
        char *notes;
        file f = file_of(a.net);
        for (int i = 0; i < f.count; i++) {
            choir__st_tensor *t = &f.t[i];
            const float *wide = t->data;
            uint16_t *half = malloc(t->bytes / 2);
            for (size_t k = 0; k < t->bytes / sizeof *wide; k++)
                half[k] = bf ? choir__bf16_from_f32(wide[k]) : choir__f16_from_f32(wide[k]);
            free((void *)t->data);
            t->data = half;
            t->bytes /= 2;
            t->dtype = bf ? CHOIR_BF16 : CHOIR_F16;
        }
        const char *path = at("half.safetensors");
        ok(st_write(path, f.t, f.count, NULL));
        ok(load_published(&b, path, false, &notes));
        float got[40], half = 0;
        ok(choir_read(choir_module_find(b.net, "transformer.wte.weight"), got, sizeof got));
        for (int k = 0; k < 40; k++) {
            uint16_t bits = ((const uint16_t *)find(&f, "transformer.wte.weight")->data)[k];
            half = bf ? choir__f32_from_bf16(bits) : choir__f32_from_f16(bits);
            assert_true(got[k] == half);
        }
        free(notes);
        file_free(&f);
    }
    job_close(&a);
    job_close(&b);
}

/* --- files that are refused --- */

static void bad_tensors(void **state)
{
    job a = job_open(GPT2, SGD_PLAIN);
    file f = file_of(a.net);
    drop(&f, "transformer.ln_f.bias");
    refused(
        GPT2, &f, "missing tensor 'transformer.ln_f.bias' (8) of the model", "gpt2:layers=1");
    f = file_of(a.net);
    add(&f, "transformer.h.1.ln_1.weight", CHOIR_F32, choir_dims(8));
    refused(GPT2, &f, "unknown tensor 'transformer.h.1.ln_1.weight' (8)", "layers=1");
    f = file_of(a.net);
    rename_to(find(&f, "transformer.h.0.mlp.c_fc.weight"), "transformer.h.0.mlp.cfc.weight");
    refused(GPT2, &f, "missing tensor 'transformer.h.0.mlp.c_fc.weight' (8, 32) of the model",
        "nearest it has is 'transformer.h.0.mlp.cfc.weight'");
    f = file_of(a.net);
    find(&f, "transformer.h.0.attn.c_attn.weight")->shape = choir_dims(24, 8);
    refused(GPT2, &f,
        "'transformer.h.0.attn.c_attn.weight' is (24, 8), but the model's is "
        "(8, 24)",
        "transpose would fit");
    f = file_of(a.net);
    ((float *)find(&f, "transformer.ln_f.weight")->data)[5] = NAN;
    refused(GPT2, &f, "'transformer.ln_f.weight'", "index 5");
    f = file_of(a.net);
    find(&f, "transformer.ln_f.weight")->dtype = CHOIR_I32;
    refused(GPT2, &f, "'transformer.ln_f.weight' is i32", "cannot become f32");
    f = file_of(a.net);
    add_copy(&f, "lm_head.weight", find(&f, "transformer.wte.weight"));
    ((float *)find(&f, "lm_head.weight")->data)[0] += 1;
    refused(GPT2, &f, "'transformer.wte.weight' and 'lm_head.weight' are one", "differ");
    f = file_of(a.net);
    add_copy(&f, "wte.weight", find(&f, "transformer.wte.weight"));
    refused(GPT2, &f, "'wte.weight'", "unknown tensor");
    job_close(&a);
}

/* --- several files --- */

static void write_index(const char *text)
{
    spit(at("shards/model.safetensors.index.json"), text, strlen(text));
}

static void refused_index(job *j, const char *text, const char *first, const char *second)
{
    char *notes;
    write_index(text);
    assert_int_not_equal(load_published(j, at("shards"), false, &notes), CHOIR_OK);
    assert_says(first);
    assert_says(second);
}

static void several_files(void **state)
{
    job a = job_open(GPT2, SGD_PLAIN), b = other(GPT2);
    file f = file_of(a.net);
    char *notes, index[8192] = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
    assert_int_equal(mkdir(at("shards"), 0777), 0);
    assert_fails(load_published(&b, at("shards"), false, &notes), CHOIR_ERR_IO,
        "neither model.safetensors nor");
    touch(at("shards/pytorch_model.bin"));
    assert_fails(
        load_published(&b, at("shards"), false, &notes), CHOIR_ERR_IO, "pytorch_model.bin");
    ok(st_write(at("shards/1.safetensors"), f.t, 5, NULL));
    ok(st_write(at("shards/2.safetensors"), f.t + 5, f.count - 5, NULL));
    for (int i = 0; i < f.count; i++) {
        size_t n = strlen(index);
        snprintf(index + n, sizeof index - n, "%s\"%s\": \"%d.safetensors\"", i ? ", " : "",
            f.t[i].name, i < 5 ? 1 : 2);
    }
    strcat(index, "}}");
    write_index(index);
    ok(load_published(&b, at("shards"), false, &notes));
    free(notes);
    assert_string_equal(sha(a.net), sha(b.net));
    refused_index(&b, "{\"weight_map\": }", "line 1", "index.json");
    refused_index(&b, "{\"weight_map\": {}}", "weight_map", "index.json");
    refused_index(&b, "{\"weight_map\": {\"x\": 3}}", "'x'", "the name of a file");
    refused_index(
        &b, "{\"weight_map\": {\"x\": \"../1.safetensors\"}}", "'x'", "the name of a file");
    refused_index(&b, "{\"weight_map\": {\"x\": \"3.safetensors\"}}", "3.safetensors", "open");
    refused_index(
        &b, "{\"weight_map\": {\"x\": \"1.safetensors\"}}", "'x'", "does not have it");
    ok(st_write(at("shards/3.safetensors"), f.t, 1, NULL));
    snprintf(index, sizeof index,
        "{\"weight_map\": {\"%s\": \"1.safetensors\", \"%s \": \"3.safetensors\"}}",
        f.t[0].name, f.t[0].name);
    refused_index(&b, index, "more than once", f.t[0].name);
    snprintf(index, sizeof index,
        "{\"weight_map\": {\"%s\": \"1.safetensors\", \"%s\": \"2.safetensors\"}}", f.t[0].name,
        f.t[5].name);
    ok(st_write(at("shards/2.safetensors"), f.t, f.count, NULL));
    refused_index(&b, index, "1.safetensors and in ", "2.safetensors");
    assert_string_equal(sha(a.net), sha(b.net));
    file_free(&f);
    job_close(&a);
    job_close(&b);
}

/* Weights that are in a folder are read, or they are an error: training never starts from new
 * values beside them. */
static void other_names(void **state)
{
    job a = job_open(GPT2, SGD_PLAIN), b = other(GPT2);
    file f = file_of(a.net);
    char *notes, *json = choir__config_json(a.info.config, NULL, NULL);
    assert_int_equal(mkdir(at("named"), 0777), 0);
    spit(at("named/config.json"), json, strlen(json));
    assert_false(choir_model_has_weights(at("named")));
    ok(st_write(at("named/model.fp16.safetensors"), f.t, f.count, NULL));
    assert_true(choir_model_has_weights(at("named")));
    ok(load_published(&b, at("named"), false, &notes));
    free(notes);
    assert_string_equal(sha(a.net), sha(b.net));
    ok(st_write(at("named/model.bf16.safetensors"), f.t, f.count, NULL));
    assert_fails(
        load_published(&b, at("named"), false, &notes), CHOIR_ERR_IO, "several variants");
    unlink(at("named/model.bf16.safetensors"));
    unlink(at("named/model.fp16.safetensors"));
    const char *const refused[] = {"pytorch_model.bin", "adapter_model.safetensors",
        "pytorch_model-00001-of-00002.bin", "consolidated.00.pth", "model.gguf", "tf_model.h5",
        "flax_model.msgpack", "__0_0.distcp", "weights.bin", "Model.SAFETENSORS",
        "w.safetensor", "model.npz", "model.onnx"};
    for (size_t i = 0; i < CHOIR_COUNT(refused); i++) {
        char *path = choir__format("%s/%s", at("named"), refused[i]);
        touch(path);
        assert_true(choir_model_has_weights(at("named")));
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_model(run, at("named"), NULL);
        assert_fails(choir_scope_status(run), CHOIR_ERR_IO, refused[i]);
        choir_scope_close(run);
        unlink(path);
        free(path);
    }
    touch(
        at("named/strange.dat")); /* it may hold weights, so a note says that none were read */
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_model(run, at("named"), &notes);
    ok(choir_scope_close(run));
    assert_non_null(strstr(notes, "named has no weights: all parameters start from random"));
    free(notes);
    file_free(&f);
    free(json);
    job_close(&a);
    job_close(&b);
}

/* Several files hold parts of tensors, as PyTorch's distributed writer names them. */
static void parts_of_tensors(void **state)
{
    job a = job_open(GPT2, SGD_PLAIN), b = other(GPT2);
    file f = file_of(a.net);
    char *notes;
    assert_int_equal(mkdir(at("parts"), 0777), 0);
    for (int half = 0; half < 2; half++) {
        choir__st_tensor parts[MOST];
        json_t *info = json_object();
        for (int i = 0; i < f.count; i++) {
            int64_t rows = f.t[i].shape.dim[0], first = half ? rows / 2 : 0;
            json_t *offsets = json_array();
            parts[i] = f.t[i];
            parts[i].shape.dim[0] = half ? rows - rows / 2 : rows / 2;
            parts[i].bytes = f.t[i].bytes / (size_t)rows * (size_t)parts[i].shape.dim[0];
            parts[i].data = (char *)f.t[i].data + f.t[i].bytes / (size_t)rows * (size_t)first;
            for (int d = 0; d < f.t[i].shape.ndim; d++)
                json_array_append_new(offsets, json_integer(d ? 0 : first));
            json_object_set_new(
                info, f.t[i].name, json_pack("{s:o}", "saved_offsets", offsets));
        }
        char *text = json_dumps(info, 0);
        const char *metadata[] = {"DCP_SHARDING_INFO", text, NULL};
        ok(st_write(half ? at("parts/shard-00002-model-00001-of-00001.safetensors")
                         : at("parts/shard-00001-model-00001-of-00001.safetensors"),
            parts, f.count, metadata));
        free(text);
        json_decref(info);
    }
    ok(load_published(&b, at("parts"), false, &notes));
    free(notes);
    assert_string_equal(sha(a.net), sha(b.net));
    unlink(at("parts/shard-00002-model-00001-of-00001.safetensors"));
    assert_fails(load_published(&b, at("parts"), false, &notes), CHOIR_ERR_FORMAT,
        "but the model's is"); /* without the second half */
    file_free(&f);
    job_close(&a);
    job_close(&b);
}

/* Notes of the configuration and of the weights are a line each. */
static void notes_by_line(void **state)
{
    job a = job_open(BERT, SGD_PLAIN);
    file f = file_of(a.net);
    char *notes, *json = choir__config_json(a.info.config, NULL, NULL);
    char *noted = choir__format("{\"frob\": 1, %s", strchr(json, '{') + 1);
    assert_int_equal(mkdir(at("noted"), 0777), 0);
    spit(at("noted/config.json"), noted, strlen(noted));
    add(&f, "bert.pooler.dense.bias", CHOIR_F32, choir_dims(8));
    ok(st_write(at("noted/model.safetensors"), f.t, f.count, NULL));
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_model(run, at("noted"), &notes);
    ok(choir_scope_status(run));
    assert_non_null(strstr(notes, "ignored: frob\n/"));
    choir_scope_close(run);
    free(notes);
    free(noted);
    free(json);
    file_free(&f);
    job_close(&a);
}

/* choir_model_with replaces the head and the weights; a strict load keeps every weight. */
static void with_options(void **state)
{
    job a = job_open(BERT, SGD_PLAIN);
    file f = file_of(a.net);
    char *notes, *json = choir__config_json(a.info.config, NULL, NULL);
    assert_int_equal(mkdir(at("base"), 0777), 0);
    spit(at("base/config.json"), json, strlen(json));
    ok(st_write(at("base/model.safetensors"), f.t, f.count, NULL));
    choir_model_opts opts = choir_model_defaults();
    opts.classes = 3;
    opts.notes = &notes;
    choir_scope *run = choir_scope_open(NULL, 9);
    choir_module *net = choir_model_with(run, at("base"), opts);
    ok(choir_scope_status(run));
    assert_non_null(strstr(notes, "'classifier.weight' are missing"));
    choir_tensor *head = choir_module_find(net, "classifier.weight");
    assert_int_equal(choir_tensor_size(head, 0), 3);
    choir_module *layer = choir_module_at(net, "bert.encoder.layer.0");
    assert_non_null(layer);
    assert_ptr_equal(choir_module_at(net, ""), net);
    assert_ptr_equal(choir_module_at(net, "bert.encoder.layer.0.attention.self.query"),
        choir_module_at(layer, "attention.self.query"));
    assert_null(choir_module_at(net, "bert.encoder"));
    assert_null(choir_module_at(net, "bert.encoder.layer.01"));
    assert_int_equal(choir_module_freeze_matching(net, "bert.embeddings.*", true), 5);
    assert_int_equal(choir_module_count_matching(net, "classifier.?*"), 2);
    ok(choir_save(net, at("three.safetensors")));
    free(notes);
    choir_scope_close(run);

    opts = (choir_model_opts){.weights = at("three.safetensors"), .notes = &notes};
    char *five = choir__format("%s:classes=5", at("base"));
    run = choir_scope_open(NULL, 9);
    net = choir_model_with(run, five, opts); /* asked for by the path */
    ok(choir_scope_status(run));
    assert_non_null(strstr(notes, "'classifier.weight' are of another head"));
    assert_null(strstr(notes, "pooler"));
    free(notes);
    choir_scope_close(run);
    opts.strict = true;
    run = choir_scope_open(NULL, 9);
    choir_model_with(run, five, opts);
    assert_fails(choir_scope_status(run), CHOIR_ERR_FORMAT,
        "'classifier.bias' is (3), but the model's is (5)");
    free(notes);
    choir_scope_close(run);
    free(five);
    free(json);
    file_free(&f);
    job_close(&a);
}

/* A checkpoint has a config.json, where other programs and Choir find its model. */
static void checkpoints_are_published(void **state)
{
    job a = job_open(BERT, ADAMW), b = other(BERT);
    char *notes, *text;
    save(at("run"), &a, 3, false);
    ok(choir__config_read(at("run/latest"), &text, &notes));
    assert_string_equal(notes, "");
    free(notes);
    ok(load_published(&b, at("run"), false, &notes));
    assert_string_equal(sha(a.net), sha(b.net));
    free(notes);
    free(text);
    job_close(&a);
    job_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_forms),
        cmocka_unit_test(bert_forms), cmocka_unit_test(bert_older_names),
        cmocka_unit_test(heads_start_anew), cmocka_unit_test(half_precision),
        cmocka_unit_test(bad_tensors), cmocka_unit_test(other_names),
        cmocka_unit_test(parts_of_tensors), cmocka_unit_test(notes_by_line),
        cmocka_unit_test(with_options), cmocka_unit_test(several_files),
        cmocka_unit_test(checkpoints_are_published)};
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
