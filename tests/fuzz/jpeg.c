/* JPEGs are opened, cropped and resampled. */
#include "image_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image(data, size);
}
