/* Safetensors files are opened, and all bytes that the header declares are read. An input that
 * begins with the byte 1 is a recipe of one (header_recipe.h). */
#include "fuzz.h"

#include "checkpoint/format/safetensors.h"
#include "header_recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__st_file *file = NULL;
    blob x = weights_of(data, size);
    choir_status status = choir__st_open(fuzz_write("x.safetensors", x.data, x.bytes), &file);
    free(x.data);
    if (status != CHOIR_OK)
        return 0;
    volatile uint8_t sum = 0;
    for (int i = 0; i < choir__st_count(file); i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        for (size_t b = 0; b < t->bytes; b++)
            sum += ((const uint8_t *)t->data)[b];
    }
    (void)sum;
    choir__st_metadata(file, "format");
    choir__st_close(file);
    return 0;
}
