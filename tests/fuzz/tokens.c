/* Files of token ids: with Choir's header, with llm.c's, or without one. */
#include "fuzz.h"

#include <choir/data.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_dataset *d = NULL;
    int64_t x[2], y[2];
    const char *path = fuzz_write("ids.bin", data, size);
    for (int split = 0; split < 2; split++)
        if (choir_dataset_tokens(path, 2, (choir_split)split, 0, &d) == CHOIR_OK) {
            int64_t length = choir_dataset_length(d);
            for (int64_t i = 0; i < length && i < 64; i++)
                choir_dataset_get(d, i, x, y);
            choir_dataset_get(d, length - 1, x, y);
            choir_dataset_free(d);
        }
    return 0;
}
