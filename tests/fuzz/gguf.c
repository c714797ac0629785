/* GGUF files are opened, and their tensors' values read. */
#include "fuzz.h"

#include "checkpoint/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__gguf_in *in = NULL;
    if (choir__gguf_open(&in, fuzz_write("x.gguf", data, size)) != CHOIR_OK)
        return 0;
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
