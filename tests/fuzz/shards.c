/* The index of weights in several files, model.safetensors.index.json. Its folder also has a
 * whole file with the tensors "a" and "b", one with "c", and one that is broken. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include "checkpoint/shards.h"

static void write_weights(const char *name, const char *header, size_t bytes)
{
    char file[512] = {0};
    uint64_t length = strlen(header);
    memcpy(file, &length, sizeof length); /* little-endian, as the format is */
    memcpy(file + sizeof length, header, length);
    fuzz_write(name, file, sizeof length + length + bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int ready;
    choir__file_shards shards = {0};
    if (!ready++) {
        write_weights("1.safetensors",
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
            12);
        write_weights("2.safetensors",
            "{\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
        fuzz_write("3.safetensors", "broken", 6);
    }
    const char *path = fuzz_write("model.safetensors.index.json", data, size);
    if (choir__file_shards_open(&shards, path) != CHOIR_OK)
        return 0;
    for (int i = 0; i < shards.count; i++)
        if (!choir__file_shards_find(&shards, shards.entries[i].tensor->name) ||
            !choir__file_shards_path(&shards, &shards.entries[i]))
            abort();
    choir__file_shards_close(&shards);
    return 0;
}
