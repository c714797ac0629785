/* Files of weights, their index, and config.json. */
#include "cases.h"

#define LONG   "an_unusually_long_beginning_that_all_of_these_names_have_in_common_"
#define TENSOR "\"%zu\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
#define LAST   "\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}"
#define INFO   "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{"

/* A header as usual, its length in front, and the four bytes of LAST behind. */
static void make_file(blob *input, const cost_case *c, size_t n)
{
    blob header = {0};
    append_usual(&header, c, n);
    uint64_t length = header.bytes;
    append(input, &length, sizeof length); /* little-endian, as the format is */
    append(input, header.data, header.bytes);
    append(input, "\0\0\0\0", 4);
    free(header.data);
}

static const cost_case cases[] = {
    {"safetensors: tensors", read_safetensors, "{", TENSOR, LAST "}", 1000, .make = make_file},
    {"safetensors: tensors, falling", read_safetensors, "{", TENSOR, LAST "}", 1000,
        .falling = true, .make = make_file},
    {"safetensors: names with a beginning in common", read_safetensors, "{",
        "\"" LONG "%zu\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},", LAST "}",
        500, .make = make_file},
    {"safetensors: metadata", read_safetensors, "{\"__metadata__\":{", "\"k%zu\":\"value\",",
        "\"format\":\"pt\"}," LAST "}", 2000, .make = make_file},
    {"safetensors: nested lists", read_safetensors, "{\"a\":", "[", "", 5000,
        .make = make_file},
    {"safetensors: blanks", read_safetensors, "{" LAST, "        ", "}", 2000,
        .make = make_file},
    {"safetensors: a long name", read_safetensors, "{\"", "aaaaaaaa", "\":1}", 2000,
        .make = make_file},
    {"stored: tensors", read_stored, "{", TENSOR, LAST "}", 1000, .make = make_file},
    {"stored: places", read_stored, INFO, "\\\"%zu\\\":{\\\"saved_offsets\\\":[]},",
        "\\\"z\\\":{\\\"saved_offsets\\\":[]}}\"}," LAST "}", 1000, .make = make_file},
    {"index: files", read_shards, "{\"weight_map\":{", "\"t%zu\":\"f%zu.safetensors\",",
        "\"a\":\"1.safetensors\"}}", 2000},
    {"index: tensors of a file", read_shards, "{\"weight_map\":{",
        "\"t%zu\":\"1.safetensors\",", "\"a\":\"1.safetensors\"}}", 2000},
    {"index: files with a beginning in common", read_shards, "{\"weight_map\":{",
        "\"t%zu\":\"" LONG "%zu.safetensors\",", "\"a\":\"1.safetensors\"}}", 1000},
    {"index: nested lists", read_shards, "{\"weight_map\":", "[", "", 5000},
    {"config: keys", read_config, "{\"model_type\":\"gpt2\",", "\"k%zu\":1,", "\"a\":1}", 2000},
    {"config: labels", read_config, "{\"model_type\":\"bert\",\"id2label\":{",
        "\"%zu\":\"label %zu\",", "\"a\":\"b\"}}", 1000},
    {"config: architectures", read_config, "{\"model_type\":\"bert\",\"architectures\":[",
        "\"A%zu\",", "\"B\"]}", 2000},
    {"config: a long text", read_config, "{\"model_type\":\"", "aaaaaaaa", "\"}", 3000},
    {"config: nested lists", read_config, "{\"model_type\":", "[", "", 5000},
};

const cost_table cost_weights = COST_TABLE(cases);
