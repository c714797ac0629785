/* PNGs are opened, cropped and resampled. Bit 5 of the first byte: the check sums of the chunks
 * are made right, which random changes of the chunks never leave. */
#include "image_input.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static uint32_t get_big(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A chunk: its length, a type of 4 bytes, `length` bytes, and a check sum of type and bytes. */
static void make_sums_right(uint8_t *png, size_t size)
{
    size_t at = 8; /* behind the signature */
    while (size >= 12 && at <= size - 12 && get_big(png + at) <= size - 12 - at) {
        size_t length = get_big(png + at);
        uint32_t sum = (uint32_t)crc32(0, png + at + 4, (uInt)length + 4);
        for (int i = 0; i < 4; i++)
            png[at + 8 + length + i] = (uint8_t)(sum >> 8 * (3 - i));
        at += 12 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || !(data[0] & 32))
        return fuzz_image(data, size);
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    make_sums_right(copy + 4, size - 4);
    fuzz_image(copy, size);
    free(copy);
    return 0;
}
