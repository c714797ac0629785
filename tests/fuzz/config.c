/* config.json of published models: reads it, writes the result and reads that again. */
#include "fuzz.h"

#include <stdlib.h>
#include "nn/models/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = NULL, *notes = NULL;
    if (choir__config_parse("config.json", (const char *)data, size, &text, &notes) == CHOIR_OK)
        free(choir__config_json(text, NULL, NULL));
    free(text);
    free(notes);
    return 0;
}
