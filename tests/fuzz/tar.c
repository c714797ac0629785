/* Tars with images: byte 0 decides whether the header of each whole block gets a right
 * checksum, so that changed headers are read on. Both splits are opened, and a sample is read.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/data.h>

enum { SIDE = 4, BLOCK = 512, SUM = 148 };

/* Writes the sum into every block that looks like a header. */
static void mend(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + BLOCK <= size; at += BLOCK) {
        unsigned sum = 0;
        char text[8];
        if (memcmp(data + at + 257, "ustar", 5) != 0)
            continue;
        for (size_t i = 0; i < BLOCK; i++)
            sum += i >= SUM && i < SUM + 8 ? ' ' : data[at + i];
        snprintf(text, sizeof text, "%06o", sum & 0777777);
        memcpy(data + at + SUM, text, 7);
        data[at + SUM + 7] = ' ';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float x[3 * SIDE * SIDE];
    int64_t y;
    char path[512];
    choir_image_opts opts = choir_image_defaults();
    opts.height = opts.width = SIDE;
    opts.crop = CHOIR_CROP_RESIZED;
    opts.max_pixels = 1 << 16;
    if (size < 1)
        return 0;
    uint8_t *copy = malloc(size);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 1)
        mend(copy, size - 1);
    snprintf(path, sizeof path, "%s/a.tar", fuzz_folder());
    fuzz_write("a.tar", copy, size - 1);
    free(copy);
    for (choir_split split = CHOIR_TRAIN; split <= CHOIR_VALIDATION; split++) {
        choir_dataset *set;
        if (choir_dataset_shards(path, split, opts, &set) != CHOIR_OK)
            continue;
        if (choir_dataset_get(set, choir_dataset_length(set) - 1, x, &y) == CHOIR_OK &&
            (y < 0 || y >= set->classes))
            abort();
        choir_dataset_free(set);
    }
    return 0;
}
