/* Files of records: byte 0 chooses .jsonl, .csv, .tsv or .json. Both splits are opened as
 * documents of a language model, with the characters as tokens; their samples must be tokens.
 * The same file is read as texts without classes. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <choir/data.h>

enum { CONTEXT = 6, SAMPLES = 8 };

static void read_samples(choir_dataset *data)
{
    int64_t x[CONTEXT], y[CONTEXT], count = choir_dataset_length(data);
    for (int64_t i = 0; i < count && i < SAMPLES; i++) {
        if (choir_dataset_get(data, count - 1 - i, x, y) != CHOIR_OK)
            abort();
        for (int t = 0; t < CONTEXT; t++)
            if (x[t] < 0 || x[t] >= data->classes ||
                (y[t] != CHOIR_IGNORED && (y[t] < 0 || y[t] >= data->classes)))
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a.jsonl", "a.csv", "a.tsv", "a.json"};
    choir_corpus_opts opts = choir_corpus_defaults();
    choir_tokenizer *tokenizer = NULL;
    choir_texts texts = {0};
    char path[512];
    opts.context = CONTEXT;
    if (size < 1)
        return 0;
    const char *name = names[data[0] % 4];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    fuzz_write(name, data + 1, size - 1);
    for (choir_split split = CHOIR_TRAIN; split <= CHOIR_VALIDATION; split++) {
        choir_dataset *set;
        if (choir_dataset_corpus(path, split, opts, &tokenizer, &set) != CHOIR_OK)
            continue;
        read_samples(set);
        choir_dataset_free(set);
    }
    (void)!choir_texts_read(path, choir_labelled_defaults(), &texts);
    choir_texts_free(&texts);
    choir_tokenizer_free(tokenizer);
    return 0;
}
