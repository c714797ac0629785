/* config.json of published models: reads it, writes the result and reads that again. */
#include "fuzz.h"

#include <stdlib.h>
#include "nn/models/config.h"

/* Writes the model's file with the keys and the tokens of the one it was read from. */
static void write_again(const char *text, const char *json, size_t size)
{
    json_t *root = json_loadb(json, size, 0, NULL);
    free(choir__config_json(text, NULL, NULL));
    free(choir__config_json(text, NULL, &(choir__config_origin){root, root, {1, 2}}));
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = NULL, *notes = NULL;
    if (choir__config_parse("config.json", (const char *)data, size, &text, &notes) == CHOIR_OK)
        write_again(text, (const char *)data, size);
    free(text);
    free(notes);
    return 0;
}
