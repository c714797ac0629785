/* config.json to the text of --model and back: the published files, errors that name the key
 * and the value, and that nothing is lost in either direction. */
#include "helpers.h"

#include <choir/models.h>
#include <sys/stat.h>

#include "nn/models/config.h"
#include "nn/models/models.h"
#include "tensor/tensor.h"

/* Published with gpt2. */
static const char gpt2[] =
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],"
    "\"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256,"
    "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\","
    "\"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024,"
    "\"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1,"
    "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\","
    "\"summary_use_proj\": true,"
    "\"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": 50}},"
    "\"vocab_size\": 50257}";

/* Published with bert-base-uncased. */
static const char bert[] =
    "{\"architectures\": [\"BertForMaskedLM\"], \"attention_probs_dropout_prob\": 0.1,"
    "\"gradient_checkpointing\": false, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1,"
    "\"hidden_size\": 768, \"initializer_range\": 0.02, \"intermediate_size\": 3072,"
    "\"layer_norm_eps\": 1e-12, \"max_position_embeddings\": 512, \"model_type\": \"bert\","
    "\"num_attention_heads\": 12, \"num_hidden_layers\": 12, \"pad_token_id\": 0,"
    "\"position_embedding_type\": \"absolute\", \"transformers_version\": \"4.6.0.dev0\","
    "\"type_vocab_size\": 2, \"use_cache\": true, \"vocab_size\": 30522}";

/* Published with Llama 3.2 1B, without irrelevant keys. */
static const char llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false,"
    "\"attention_dropout\": 0.0, \"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008],"
    "\"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2048,"
    "\"initializer_range\": 0.02, \"intermediate_size\": 8192,"
    "\"max_position_embeddings\": 131072, \"mlp_bias\": false, \"model_type\": \"llama\","
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 16, \"num_key_value_heads\": 8,"
    "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 32.0,"
    "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0,"
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"},"
    "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\","
    "\"transformers_version\": \"4.45.0\", \"use_cache\": true, \"vocab_size\": 128256}";

/* Returns the full text, as the model describes it; "" if the JSON is refused. */
static const char *full(const char *json, char **notes)
{
    static char config[CHOIR_MODEL_TEXT];
    const choir__model_spec *spec;
    choir_model_info info = {0};
    char *text, *said;
    if (choir__config_parse("x.json", json, strlen(json), &text, &said) != CHOIR_OK)
        return "";
    ok(choir__model_find(text, &spec));
    ok(spec->describe(text, &info));
    strcpy(config, info.config);
    free(text);
    if (notes)
        *notes = said;
    else
        free(said);
    return config;
}

static void published_files(void **state)
{
    char *notes;
    assert_string_equal(full(gpt2, &notes),
        "gpt2:layers=12,heads=12,width=768,hidden=3072,context=1024,vocab=50257,dropout=0.1,"
        "eps=1e-05");
    assert_non_null(strstr(notes, "attn_pdrop"));
    assert_null(strchr(notes, '\n')); /* and nothing else */
    free(notes);
    assert_string_equal(full(bert, &notes),
        "bert:layers=12,heads=12,width=768,hidden=3072,context=512,vocab=30522,types=2,"
        "classes=0,dropout=0.1,eps=1e-12,pad=0");
    assert_string_equal(notes, "x.json: key 'attention_probs_dropout_prob' is 0.1: attention "
                               "dropout is not implemented and is ignored");
    free(notes);
}

static void published_llama(void **state)
{
    char *notes;
    assert_string_equal(full(llama, &notes),
        "llama:layers=16,heads=32,kv_heads=8,head_dim=64,width=2048,hidden=8192,"
        "context=131072,vocab=128256,window=0,theta=500000,eps=1e-05,tied=1,attention_bias=0,"
        "mlp_bias=0,rope=llama3,factor=32,low_freq=1,high_freq=4,original=8192");
    assert_string_equal(notes, "");
    free(notes);
    assert_string_equal(full("{\"model_type\": \"mistral\"}", NULL),
        "mistral:layers=32,heads=32,kv_heads=8,head_dim=128,width=4096,hidden=14336,"
        "context=131072,vocab=32000,window=4096,theta=10000,eps=1e-06,tied=0,attention_bias=0,"
        "mlp_bias=0");
    const char *open = full("{\"model_type\": \"mistral\", \"sliding_window\": null,"
                            "\"num_key_value_heads\": null}",
        NULL);
    assert_non_null(strstr(open, "window=0"));
    assert_non_null(strstr(open, "kv_heads=32"));
    assert_non_null(strstr(full("{\"model_type\": \"llama\"}", NULL), "kv_heads=32"));
}

#define DONUT(encoder, decoder)                                                                 \
    "{\"model_type\": \"vision-encoder-decoder\", \"is_encoder_decoder\": true, \"encoder\": {" \
    "\"model_type\": \"donut-swin\", \"image_size\": [2560, 1920], \"embed_dim\": 128,"         \
    "\"num_heads\": [4, 8, 16, 32], \"mlp_ratio\": 4.0, \"drop_path_rate\": 0.1," encoder       \
    "}, \"decoder\": {\"model_type\": \"mbart\", \"decoder_layers\": 4, \"vocab_size\": 57525," \
    "\"max_position_embeddings\": 1536, " decoder "}}"

/* The size of a square stays one number, so that another one replaces it whole. What the file
 * says of a head holds only where it has one. */
static void published_vit(void **state)
{
    char *notes;
    const char *sizes =
        ",heads=12,width=768,hidden=3072,patch=16,image=224,channels=3,classes=";
    char expected[256];
    snprintf(
        expected, sizeof expected, "vit:layers=12%s1000,dropout=0,eps=1e-12,qkv_bias=1", sizes);
    assert_string_equal(full("{\"model_type\": \"vit\"}", &notes), expected);
    free(notes);
    snprintf(
        expected, sizeof expected, "vit:layers=12%s3,dropout=0,eps=1e-12,qkv_bias=1", sizes);
    assert_string_equal(
        full(
            "{\"model_type\": \"vit\", \"architectures\": [\"ViTForImageClassification\"],"
            "\"image_size\": [224, 224], \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}}",
            &notes),
        expected);
    free(notes);
}

static void published_donut(void **state)
{
    char *notes;
    const char *json = DONUT("\"depths\": [2, 2, 14, 2], \"window_size\": 10",
        "\"scale_embedding\": true, \"d_model\": 1024");
    assert_string_equal(full(json, &notes),
        "donut:height=2560,image_width=1920,patch=4,window=10,embed=128,depths=2-2-14-2,"
        "heads=4-8-16-32,layers=4,decoder_heads=16,width=1024,hidden=4096,context=1536,"
        "vocab=57525,pad=1,start=0,dropout=0.1,encoder_dropout=0,eps=1e-05");
    assert_string_equal(notes,
        "x.json: key 'encoder.drop_path_rate' is 0.1: skipping blocks at random is not "
        "implemented and is ignored");
    free(notes);
}

/* Keys inside the parts of a donut's file are read, noted or refused as in other files.
 */
static void parts_of_donut(void **state)
{
    char *notes;
    const char *text = full(DONUT("\"depths\": [2, 2, 14, 2], \"window_size\": 10,"
                                  "\"layer_norm_eps\": 0.01, \"hidden_dropout_prob\": 0.3,"
                                  "\"frob\": 1",
                                "\"scale_embedding\": true, \"dropout\": 0.4,"
                                "\"attention_dropout\": 0.2, \"zap\": 1"),
        &notes);
    assert_non_null(strstr(text, ",dropout=0.4,encoder_dropout=0.3,eps=0.01"));
    assert_non_null(strstr(notes, "not known and ignored in encoder: frob\n"));
    assert_non_null(strstr(notes, "not known and ignored in decoder: zap"));
    assert_non_null(strstr(notes, "'decoder.attention_dropout' is 0.2: attention dropout is "
                                  "not implemented and is ignored"));
    free(notes);
    text = full(DONUT("\"window_size\": 10", "\"scale_embedding\": true"), NULL);
    assert_non_null(strstr(text, "depths=2-2-6-2")); /* the library's */
}

/* Writes the names of a classifier's classes to a config.json and reads them back. */
static void names_of_classes(void **state)
{
    char *names[] = {"down", "\u00fcp \"1\""};
    const choir_class_names two = {names, 2};
    choir_class_names read;
    char path[] = "/tmp/choir-config-XXXXXX", *json;
    const struct {
        const char *text;
        const choir_class_names *names;
        int64_t count;
    } cases[] = {{"bert:classes=3", &two, 3}, {"bert:classes=2,words=1", &two, 2},
        {"bert:classes=2", NULL, 0}, {"bert", &two, 0}};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        FILE *f = fopen(path, "w");
        choir_model_info info = {0};
        ok(choir_model_describe(cases[i].text, &info));
        json = choir__config_json(info.config, cases[i].names, NULL);
        fputs(json, f);
        fclose(f);
        free(json);
        ok(choir_model_class_names(path, &read));
        assert_int_equal(read.count, cases[i].count);
        for (int64_t c = 0; c < read.count; c++)
            assert_string_equal(read.name[c], c < 2 ? names[c] : "LABEL_2");
        choir_class_names_free(&read);
    }
    FILE *f = fopen(path, "w");
    fputs("{\"id2label\": {\"0\": \"a\", \"2\": \"b\"}}", f);
    fclose(f);
    assert_fails(choir_model_class_names(path, &read), CHOIR_ERR_FORMAT, "'id2label'");
    assert_int_equal(read.count, 0);
    unlink(path);
    assert_int_not_equal(choir_model_class_names(path, &read), CHOIR_OK);
}

/* A key that a file leaves out has the default of the library that the file is for. */
static void left_out(void **state)
{
    assert_string_equal(full("{\"model_type\": \"gpt2\"}", NULL),
        "gpt2:layers=12,heads=12,width=768,hidden=3072,context=1024,vocab=50257,dropout=0.1,"
        "eps=1e-05");
    assert_string_equal(
        full("{\"model_type\": \"gpt2\", \"n_inner\": 100, \"resid_pdrop\": 0}", NULL),
        "gpt2:layers=12,heads=12,width=768,hidden=100,context=1024,vocab=50257,dropout=0,"
        "eps=1e-05");
    assert_string_equal(full("{\"model_type\": \"bert\", \"id2label\": {\"0\": \"a\","
                             "\"1\": \"b\", \"2\": \"c\"}, \"architectures\":"
                             "[\"BertForSequenceClassification\"]}",
                            NULL),
        "bert:layers=12,heads=12,width=768,hidden=3072,context=512,vocab=30522,types=2,"
        "classes=3,dropout=0.1,eps=1e-12,pad=0");
    assert_null(
        strstr(full("{\"model_type\": \"bert\", \"pad_token_id\": null}", NULL), "pad"));
    assert_null(strstr(full("{\"model_type\": \"llama\"}", NULL), "pad"));
    const char *last = full("{\"model_type\": \"llama\", \"pad_token_id\": -1}", NULL);
    assert_non_null(strstr(last, ",pad=31999"));
    assert_non_null(
        strstr(full("{\"model_type\": \"llama\", \"hidden_act\": \"swish\"}", NULL), "llama:"));
}

static void notes_of_unknown_keys(void **state)
{
    char *notes;
    full("{\"model_type\": \"gpt2\", \"frob\": 1, \"attn_pdrop\": 0, \"zap\": null}", &notes);
    assert_string_equal(notes, "x.json: not known and ignored: frob, zap");
    free(notes);
}

static void bad(const char *json, const char *first, const char *second)
{
    char *text = NULL, *notes = NULL;
    assert_int_not_equal(
        choir__config_parse("x.json", json, strlen(json), &text, &notes), CHOIR_OK);
    assert_says("x.json");
    assert_says(first);
    assert_says(second);
}

#define GPT2(more) "{\"model_type\": \"gpt2\", " more "}"
#define BERT(more) "{\"model_type\": \"bert\", " more "}"

static void bad_values(void **state)
{
    bad(GPT2("\"n_embd\": 10, \"n_head\": 3"), "'n_embd' is 10", "n_head, 3");
    bad(BERT("\"hidden_size\": 10, \"num_attention_heads\": 3"), "'hidden_size' is 10", "3");
    bad(GPT2("\"n_layer\": -3"), "'n_layer' is -3", "1 or more");
    bad(GPT2("\"n_layer\": 0"), "'n_layer' is 0", "1 or more");
    bad(GPT2("\"n_layer\": 1.5"), "'n_layer' is 1.5", "whole number");
    bad(GPT2("\"n_layer\": \"12\""), "'n_layer' is \"12\"", "whole number");
    bad(GPT2("\"n_layer\": true"), "'n_layer' is true", "whole number");
    bad(GPT2("\"n_layer\": [1]"), "'n_layer' is [1]", "whole number");
    bad(GPT2("\"n_layer\": 9223372036854775807"), "layers=9223372036854775807", "256");
    bad(GPT2("\"n_layer\": 99999999999999999999"), "line 1", "integer");
    bad(GPT2("\"n_head\": 0"), "'n_head' is 0", "1 or more");
    bad(GPT2("\"resid_pdrop\": -0.1"), "'resid_pdrop' is -0.1", "0 or more");
    bad(GPT2("\"resid_pdrop\": 1.5"), "dropout=1.5", "0.99");
    bad(GPT2("\"resid_pdrop\": \"x\""), "'resid_pdrop' is \"x\"", "number");
    bad(GPT2("\"n_ctx\": 512"), "'n_ctx' is 512", "n_positions, 1024");
    bad(GPT2("\"activation_function\": \"relu\""), "'activation_function' is \"relu\"",
        "gelu_new");
    bad(GPT2("\"scale_attn_weights\": false"), "scale_attn_weights", "true");
    bad(GPT2("\"tie_word_embeddings\": false"), "tie_word_embeddings", "true");
    bad(GPT2("\"add_cross_attention\": true"), "add_cross_attention", "false");
    bad(GPT2("\"architectures\": [\"GPT2ForSequenceClassification\"]"), "architectures",
        "GPT2LMHeadModel");
    bad(GPT2("\"architectures\": 3"), "architectures", "list");
    bad(BERT("\"hidden_act\": \"relu\""), "'hidden_act' is \"relu\"", "gelu");
    bad(BERT("\"position_embedding_type\": \"relative_key\""), "relative_key", "absolute");
    bad(BERT("\"is_decoder\": true"), "is_decoder", "all positions");
    bad(BERT("\"pad_token_id\": 30522"), "'pad_token_id' is 30522", "vocabulary of 30522");
    bad(BERT("\"architectures\": [\"BertForSequenceClassification\"], \"problem_type\":"
             "\"ranking\""),
        "'problem_type' is \"ranking\"", "single_label_classification");
    bad(GPT2("\"quantization_config\": {\"bits\": 4}"), "'quantization_config' is {\"bits\":4}",
        "f32, f16 or bf16");
    bad(BERT("\"architectures\": [\"BertForQuestionAnswering\"]"), "BertForQuestionAnswering",
        "BertForMaskedLM");
    bad(BERT("\"architectures\": [\"BertForSequenceClassification\"], \"id2label\": {},"
             "\"num_labels\": 3"),
        "id2label", "num_labels");
}

/* The context of pre-training is read beside the object, too. */
static void rope_beside(void **state)
{
    const char *text =
        full("{\"model_type\": \"llama\", \"original_max_position_embeddings\": 64,"
             "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8,"
             "\"low_freq_factor\": 1, \"high_freq_factor\": 4}}",
            NULL);
    assert_non_null(strstr(text, "rope=llama3,factor=8,low_freq=1,high_freq=4,original=64"));
}

/* Models that no published form can express are not built. */
static void unpublished(void **state)
{
    choir_model_info info = {0};
    const char *const texts[] = {"mistral:attention_bias=1", "mistral:mlp_bias=1,window=0",
        "llama:window=5,attention_bias=1", "llama:window=5,mlp_bias=1"};
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++) {
        assert_fails(choir_model_describe(texts[i], &info), CHOIR_ERR_ARGUMENT,
            "_bias=1 is for llama without a window");
    }
    ok(choir_model_describe("llama:attention_bias=1,mlp_bias=1", &info));
    info = (choir_model_info){0};
    assert_fails(choir_model_describe("donut:height=64,image_width=64,window=4", &info),
        CHOIR_ERR_ARGUMENT,
        "that 128 divides (patch=4 x window=4, times 2 for each stage after the first), got 64");
}

#define LLAMA(more) "{\"model_type\": \"llama\", " more "}"

/* As transformers: `rope_scaling or rope_parameters`, and theta beside it. */
static void rope_twice(void **state)
{
    static const struct {
        const char *scaling, *parameters, *has, *lacks;
        bool noted;
    } cases[] = {
        {"{\"rope_type\": \"linear\", \"factor\": 4}",
            "{\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 500000}",
            "theta=10000,eps=1e-06,tied=0,attention_bias=0,mlp_bias=0,rope=linear,factor=4",
            "factor=2", true},
        {"{\"rope_type\": \"default\"}", "{\"rope_type\": \"linear\", \"factor\": 2}",
            "theta=10000", "rope=", true},
        {"{}", "{\"rope_type\": \"linear\", \"factor\": 2}", "rope=linear,factor=2", "factor=4",
            false},
        {"null", "{\"rope_theta\": 500000}", "theta=500000", "rope=", false},
        {"{\"rope_theta\": 5000, \"type\": \"default\"}", "null", "theta=5000", "rope=", false},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        char *notes = NULL;
        char *json = choir__format(LLAMA("\"rope_scaling\": %s, \"rope_parameters\": %s"),
            cases[i].scaling, cases[i].parameters);
        const char *text = full(json, &notes);
        if (!strstr(text, cases[i].has) || strstr(text, cases[i].lacks) ||
            cases[i].noted != !!strstr(notes, "'rope_parameters' has no effect"))
            fail_msg("case %zu: %s, %s", i, text, notes);
        free(notes);
        free(json);
    }
}

/* As transformers, which warns of keys that a kind of rotary positions does not have. */
static void rope_unknown_keys(void **state)
{
    static const struct {
        const char *rope, *note; /* note: "" if nothing is unknown */
    } cases[] = {
        {"{\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 5000}", ""},
        {"{\"rope_type\": \"linear\", \"factor\": 4, \"mscale\": 2, \"finetuned\": true}",
            "not known and ignored in rope_parameters of rope_type 'linear': mscale, finetuned"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 2}", ""},
        {"{\"rope_theta\": 5000, \"beta_fast\": 32}",
            "not known and ignored in rope_parameters of rope_type 'default': beta_fast"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        char *notes = NULL;
        char *json = choir__format(LLAMA("\"rope_parameters\": %s"), cases[i].rope);
        full(json, &notes);
        if (!strstr(notes ? notes : "", cases[i].note) ||
            (!*cases[i].note && notes && strstr(notes, "ignored in")))
            fail_msg("case %zu: %s", i, notes);
        free(notes);
        free(json);
    }
}

static void bad_vit(void **state)
{
    bad("{\"model_type\": \"vit\", \"image_size\": \"large\"}", "'image_size' is \"large\"",
        "expected the side of a square, or [height, width]");
    bad("{\"model_type\": \"vit\", \"hidden_act\": \"quick_gelu\"}",
        "'hidden_act' is \"quick_gelu\"", "expected gelu");
    bad("{\"model_type\": \"vit\", \"architectures\": [\"ViTForImageClassification\"],"
        "\"problem_type\": \"regression\"}",
        "'problem_type' is \"regression\"", "expected single_label_classification");
    bad("{\"model_type\": \"vit\", \"patch_size\": [8, 16]}", "'patch_size' is [8,16]",
        "whole number");
    bad("{\"model_type\": \"vit\", \"num_attention_heads\": 7}", "heads=7", "width=768");
}

static void bad_llama(void **state)
{
    bad(LLAMA("\"hidden_size\": 100"), "'hidden_size' is 100", "32, as head_dim is missing");
    bad(LLAMA("\"num_key_value_heads\": 5"), "'num_key_value_heads' is 5", "32");
    bad(LLAMA("\"hidden_act\": \"gelu\""), "hidden_act", "silu");
    bad(LLAMA("\"head_dim\": 7"), "got 7", "even");
    bad(LLAMA("\"rope_scaling\": {\"type\": \"ntk\"}"), "rope_scaling",
        "unknown rope_type: choose one of default, linear, dynamic, yarn, longrope, llama3");
    bad(LLAMA("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 0]}"),
        "rope_scaling", "expected a list of numbers above 0 as its 'short_factor'");
    bad(LLAMA("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"partial_rotary_factor\":"
              " 0.5}"),
        "unknown option 'partial'", "model llama");
    bad("{\"model_type\": \"gemma2\", \"layer_types\": [\"full_attention\"]}", "layer_types",
        "num_hidden_layers, 26, names");
    bad("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"layer_types\": [\"chunked\"]}",
        "layer_types", "no other kind is built");
    bad("{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"sliding_attention\": "
        "{\"rope_type\": \"yarn\"}}}",
        "rope_parameters", "expected rope_type default for sliding_attention");
    bad("{\"model_type\": \"smollm3\", \"no_rope_layers\": [1]}", "no_rope_layers",
        "36, numbers");
    bad(LLAMA("\"rope_scaling\": 3"), "'rope_scaling' is 3", "an object");
    bad(LLAMA("\"rope_parameters\": {\"rope_type\": 3}"), "rope_parameters",
        "unknown rope_type");
    bad(LLAMA("\"rope_scaling\": {\"type\": \"linear\"}"), "rope_scaling", "'factor'");
    bad(LLAMA("\"rope_scaling\": {\"type\": \"linear\", \"factor\": -2}"), "rope_scaling",
        "above 0");
    bad(LLAMA("\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8}"),
        "rope_parameters", "low_freq_factor");
}

static void bad_donut(void **state)
{
    bad(DONUT("\"qkv_bias\": false", "\"d_model\": 8"), "encoder", "qkv_bias");
    bad(DONUT("\"depths\": \"x\"", "\"scale_embedding\": true"), "encoder", "depths");
    bad(DONUT("\"depths\": [2]", "\"d_model\": -8"), "decoder", "d_model");
    bad(DONUT("\"depths\": [2]", "\"scale_embedding\": false"), "decoder", "scale_embedding");
    bad(DONUT("\"depths\": [2]", "\"d_model\": 8"), "'decoder.scale_embedding' is missing",
        "means false");
    bad(DONUT("\"depths\": [2]", "\"cross_attention_hidden_size\": 8"),
        "'decoder.cross_attention_hidden_size' is 8", "null");
    bad("{\"model_type\": \"vision-encoder-decoder\"}", "encoder", "object");
}

static void bad_files(void **state)
{
    bad("{\"model_type\": \"gpt2\",\n  \"n_layer\": }", "line 2", "column");
    bad("", "line 1", "column");
    bad("[1, 2]", "expected a JSON object", "");
    bad("{\"n_layer\": 2, \"n_layer\": 3}", "line 1", "duplicate");
    bad("{}", "model_type", "gpt2");
    bad("{\"model_type\": \"frob\"}", "'model_type' is \"frob\"", "bert");
    bad("{\"model_type\": 7}", "'model_type' is 7", "gpt2");
}

static void there_and_back(void **state)
{
    const char *texts[] = {
        "gpt2:layers=2,heads=3,width=48,hidden=100,context=64,vocab=99,dropout=0.25,eps=0.001",
        "bert:layers=2,heads=3,width=48,hidden=100,context=64,vocab=99,types=4,classes=0,"
        "dropout=0.25,eps=1e-12",
        "llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=1,attention_bias=1,mlp_bias=1",
        "llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,attention_bias=0,mlp_bias=0,rope=linear,factor=2.5",
        "llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,attention_bias=0,mlp_bias=0,rope=llama3,factor=2.5,"
        "low_freq=1,high_freq=4,original=7",
        "mistral:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=5,theta=5000,eps=0.001,tied=0,attention_bias=0,mlp_bias=0",
        "mistral:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,attention_bias=0,mlp_bias=0",
        "llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,attention_bias=0,mlp_bias=0,rope=yarn,factor=2.5,"
        "low_freq=1,high_freq=32,original=7,attention_factor=0.75,unrounded=1",
        "llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,attention_bias=0,mlp_bias=0,rope=dynamic,factor=2.5,"
        "original=9",
        "qwen2:layers=3,heads=4,kv_heads=2,head_dim=6,width=24,hidden=64,context=9,vocab=50,"
        "window=5,theta=5000,eps=0.001,tied=0,pattern=ffs",
        "qwen3:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,attention_bias=1",
        "gemma:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "theta=5000,eps=0.001,tied=1,attention_bias=0",
        "gemma2:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=5,theta=5000,eps=0.001,tied=1,attention_bias=0,pattern=sf,query_scale=9,"
        "softcap=50,final_softcap=0",
        "gemma3:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=5,theta=5000,eps=0.001,tied=1,attention_bias=0,pattern=s,local_theta=100,"
        "query_scale=9,softcap=0,final_softcap=0,rope=linear,factor=8",
        "phi3:layers=2,heads=4,kv_heads=2,head_dim=8,width=32,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=0,partial=0.5,rope=longrope,factor=3,original=3,"
        "short=1/1.03,long=2/3.5,pad=3",
        "smollm3:layers=4,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=5,theta=5000,eps=0.001,tied=1,attention_bias=0,mlp_bias=0,pattern=fwsn,pad=3",
        "bert:layers=1,heads=1,width=8,hidden=9,context=7,vocab=6,types=2,classes=5,dropout=0,"
        "eps=1e-12",
        "donut:height=64,image_width=32,patch=4,window=4,embed=16,depths=2-2,heads=2-4,layers=2,"
        "decoder_heads=2,width=24,hidden=40,context=12,vocab=40,pad=3,start=2,dropout=0.25,"
        "encoder_dropout=0.125,eps=0.001",
        "bert:layers=1,heads=1,width=8,hidden=9,context=7,vocab=6,types=2,classes=0,dropout=0,"
        "eps=1e-12,pad=5",
        "bert:layers=1,heads=1,width=8,hidden=9,context=7,vocab=6,types=2,classes=4,dropout=0,"
        "eps=1e-12,pad=5,words=1",
        "llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,hidden=64,context=9,vocab=50,"
        "window=0,theta=5000,eps=0.001,tied=1,attention_bias=1,mlp_bias=1,pad=7",
        "vit:layers=2,heads=3,width=24,hidden=40,patch=4,image=12,image_width=20,channels=1,"
        "classes=5,dropout=0.25,eps=0.001,qkv_bias=0",
        "vit:layers=2,heads=3,width=24,hidden=40,patch=4,image=12,channels=3,classes=2,"
        "dropout=0,eps=1e-12,qkv_bias=1",
        "xlm-roberta:layers=1,heads=1,width=8,hidden=9,context=7,vocab=6,types=1,classes=0,"
        "dropout=0,eps=1e-05,pad=1"};
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++) {
        char *json = choir__config_json(texts[i], NULL, NULL), *notes = NULL;
        assert_non_null(json);
        assert_string_equal(full(json, &notes), texts[i]);
        assert_string_equal(notes, "");
        free(notes);
        free(json);
    }
    char *json =
             choir__config_json("llama:layers=2,heads=4,kv_heads=2,head_dim=8,width=24,"
                                "hidden=64,context=9,vocab=50,window=5,theta=5000,eps=0.001,"
                                "tied=0,attention_bias=0,mlp_bias=0",
                 NULL, NULL),
         *notes = NULL;
    assert_string_equal(full(json, &notes), texts[5]); /* a llama with a window is a mistral */
    assert_string_equal(notes, "");
    free(notes);
    free(json);
    assert_null(choir__config_json("toy:in=3", NULL, NULL));
    assert_null(choir__config_json("frob", NULL, NULL));
}

static void paths(void **state)
{
    char folder[] = "/tmp/choir-config-XXXXXX", file[64], *text, *notes;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/config.json", folder);
    assert_true(choir__config_is_path(folder));
    assert_true(choir__config_is_path("any.json"));
    assert_false(choir__config_is_path("gpt2"));
    assert_false(choir__config_is_path("gpt2:layers=2"));
    assert_false(choir__config_is_path("frob"));
    assert_fails(choir__config_read(folder, &text, &notes), CHOIR_ERR_IO, file);
    assert_int_equal(mkdir(file, 0777), 0);
    assert_fails(choir__config_read(folder, &text, &notes), CHOIR_ERR_IO, "expected a file");
    rmdir(file);
    spit(file, gpt2, strlen(gpt2));
    for (int i = 0; i < 2; i++) {
        ok(choir__config_read(i ? file : folder, &text, &notes));
        assert_int_equal(strncmp(text, "gpt2:", 5), 0);
        free(text);
        free(notes);
    }
    unlink(file);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_files),
        cmocka_unit_test(published_llama), cmocka_unit_test(published_donut),
        cmocka_unit_test(published_vit), cmocka_unit_test(parts_of_donut),
        cmocka_unit_test(rope_beside), cmocka_unit_test(rope_twice),
        cmocka_unit_test(rope_unknown_keys), cmocka_unit_test(unpublished),
        cmocka_unit_test(bad_donut), cmocka_unit_test(bad_llama), cmocka_unit_test(bad_vit),
        cmocka_unit_test(left_out), cmocka_unit_test(notes_of_unknown_keys),
        cmocka_unit_test(bad_values), cmocka_unit_test(bad_files),
        cmocka_unit_test(names_of_classes), cmocka_unit_test(there_and_back),
        cmocka_unit_test(paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
