/* A shard and its metadata about the places of its parts. Its folder also has a shard with rows
 * 2 and 3 of the tensor "a" (4, 2), and with all of "b". An input that begins with the byte 1
 * is a recipe (header_recipe.h). */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "checkpoint/stored.h"
#include "header_recipe.h"

static const char other[] =
    "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"a\\\":{\\\"saved_offsets\\\":[2,0]},"
    "\\\"b\\\":{\\\"saved_offsets\\\":[]}}\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}}";

static void write_other(void)
{
    char file[512] = {0};
    uint64_t length = strlen(other);
    memcpy(file, &length, sizeof length); /* little-endian, as the format is */
    memcpy(file + sizeof length, other, length);
    fuzz_write("2.safetensors", file, sizeof length + length + 20);
}

/* Reads every entry; after a successful open none may be missing. */
static void read_all(const choir__stored *stored)
{
    for (int i = 0; i < stored->count; i++) {
        const choir__stored_tensor *t = &stored->tensors[i];
        choir__box_region whole = choir__box_region_whole(t->whole);
        size_t count = (size_t)choir__box_region_count(&whole, t->whole.ndim);
        if (choir__stored_find(stored, t->name) != t || count > 1 << 20)
            abort();
        void *data = malloc(count * choir_dtype_size(t->dtype) + 1);
        choir__stored_read(t, &whole, data, t->dtype);
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int ready;
    choir__stored stored;
    if (!ready++)
        write_other();
    blob first = weights_of(data, size);
    const char *paths[] = {fuzz_write("1.safetensors", first.data, first.bytes), NULL};
    free(first.data);
    char second[512];
    snprintf(second, sizeof second, "%s/2.safetensors", fuzz_folder());
    paths[1] = second;
    for (int count = 1; count <= 2; count++)
        if (choir__stored_open(&stored, "here", paths, count) == CHOIR_OK) {
            read_all(&stored);
            choir__stored_close(&stored);
        }
    return 0;
}
