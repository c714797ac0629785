/* GGUF files are opened, and their tensors' values read, as the file has them and as a model.
 */
#include "fuzz.h"

#include "checkpoint/format/packed.h"
#include "checkpoint/gguf/model.h"

static void read_model(const char *path)
{
    char *config = NULL;
    choir__st_file *file = NULL;
    (void)choir__gguf_read_config(path, &config);
    free(config);
    if (choir__gguf_tensors_open(path, &file) != CHOIR_OK)
        return;
    for (int i = 0; i < choir__st_count(file); i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        float value;
        if (choir__is_packed(t))
            (void)choir__packed_nonfinite(t, &value);
    }
    choir__st_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__gguf_in *in = NULL;
    const char *path = fuzz_write("x.gguf", data, size);
    if (choir__gguf_open(&in, path) != CHOIR_OK)
        return 0;
    read_model(path);
    for (int i = 0; i < choir__gguf_count(in); i++) {
        const choir__gguf_tensor_info *t = choir__gguf_get(in, i);
        const int64_t each = choir__quant_types[t->type].values;
        float values[256];
        for (int64_t at = 0; at < t->bytes; at += choir__quant_types[t->type].bytes)
            choir__quant_decode(t->type, values, t->data + at, 0, each);
    }
    int64_t count;
    double number;
    (void)choir__gguf_string(in, "general.architecture");
    (void)choir__gguf_number(in, "general.alignment", &number);
    (void)choir__gguf_strings(in, "tokenizer.ggml.tokens", &count);
    (void)choir__gguf_numbers(in, "tokenizer.ggml.scores", &count);
    choir__gguf_close(in);
    return 0;
}
