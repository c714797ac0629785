/* metadata.jsonl, the images and JSON of a folder. Both splits are opened with one tokenizer,
 * which is then saved as checkpoints save it, and loaded. The only image that exists is a.png,
 * a small one. Samples are read, and their tokens must be within the vocabulary. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <choir/data.h>

enum { SIDE = 4, CONTEXT = 12, SAMPLES = 4 };

/* 1 x 1, grey */
static const uint8_t pixel[] = {0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00,
    0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08,
    0x00, 0x00, 0x00, 0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41,
    0x54, 0x78, 0xda, 0x63, 0x68, 0x00, 0x00, 0x00, 0x82, 0x00, 0x81, 0xda, 0x45, 0x08, 0x3b,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static void read_samples(choir_dataset *data, const choir_tokenizer *tokenizer)
{
    float x[3 * SIDE * SIDE];
    int64_t y[CONTEXT], count = choir_dataset_length(data);
    for (int64_t i = 0; i < count && i < SAMPLES; i++) {
        if (choir_dataset_get(data, i, x, y) != CHOIR_OK)
            continue; /* another image than a.png */
        for (int t = 0; t < CONTEXT; t++)
            if (!choir_tokenizer_decode(tokenizer, y[t]))
                abort();
    }
}

/* A resumed run must read the tokenizer that the checkpoint stores. */
static void save_and_load(const choir_tokenizer *tokenizer)
{
    char path[512];
    choir_tokenizer *again;
    snprintf(path, sizeof path, "%s/tokenizer.json", fuzz_folder());
    if (choir_tokenizer_save(tokenizer, path) != CHOIR_OK)
        return;
    if (choir_tokenizer_load(path, &again) != CHOIR_OK ||
        choir_tokenizer_size(again) != choir_tokenizer_size(tokenizer)) {
        fprintf(stderr, "saved and not read: %s\n", choir_error_message());
        abort();
    }
    choir_tokenizer_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int ready;
    choir_document_opts o = choir_document_defaults();
    choir_tokenizer *tokenizer = NULL;
    o.image.height = o.image.width = SIDE;
    o.context = CONTEXT;
    if (!ready++)
        fuzz_write("a.png", pixel, sizeof pixel);
    fuzz_write("metadata.jsonl", data, size);
    for (choir_split split = CHOIR_TRAIN; split <= CHOIR_VALIDATION; split++) {
        choir_dataset *set;
        if (choir_dataset_documents(fuzz_folder(), split, o, &tokenizer, &set) != CHOIR_OK)
            continue;
        read_samples(set, tokenizer);
        choir_dataset_free(set);
    }
    if (tokenizer)
        save_and_load(tokenizer);
    choir_tokenizer_free(tokenizer);
    return 0;
}
