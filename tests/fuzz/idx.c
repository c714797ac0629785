/* IDX: byte 0 decides whether the images are compressed, byte 1 where the labels begin. */
#include "fuzz.h"

#include <choir/data.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_dataset *dataset = NULL;
    float x[1 << 12];
    int64_t y;
    if (size < 1)
        return 0;
    size_t cut = 1 + (size_t)data[0] * (size - 1) / 255;
    fuzz_write("a-images-idx3-ubyte", data + 1, cut - 1);
    fuzz_write("a-labels-idx1-ubyte", data + cut, size - cut);
    if (choir_dataset_idx(fuzz_folder(), CHOIR_TRAIN, &dataset) != CHOIR_OK)
        return 0;
    choir_shape s = dataset->x_shape;
    if (s.dim[1] * s.dim[2] <= (int64_t)(sizeof x / sizeof *x))
        choir_dataset_get(dataset, choir_dataset_length(dataset) - 1, x, &y);
    choir_dataset_free(dataset);
    return 0;
}
