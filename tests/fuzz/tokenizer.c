/* tokenizer.json: read, and then used on the file itself. */
#include "fuzz.h"

#include <stdlib.h>
#include <choir/data.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_tokenizer *tokenizer = NULL;
    int64_t count, *ids = malloc(size * sizeof *ids + 8);
    const char *path = fuzz_write("tokenizer.json", data, size);
    if (choir_tokenizer_load(path, &tokenizer) == CHOIR_OK)
        choir_tokenizer_encode(tokenizer, (const char *)data, size, ids, &count);
    choir_tokenizer_free(tokenizer);
    free(ids);
    return 0;
}
