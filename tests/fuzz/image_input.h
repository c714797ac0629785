/* Decodes an image from memory as a dataset does. Bytes 0 to 3 choose the crop and its size. */
#ifndef CHOIR_FUZZ_IMAGE_INPUT_H
#define CHOIR_FUZZ_IMAGE_INPUT_H

#include "fuzz.h"

#include "data/images/transform.h"

enum { FUZZ_SIDE = 24 };

static inline int fuzz_image(const uint8_t *data, size_t size)
{
    static choir__image_work work; /* buffers are reused, as in a worker */
    float out[FUZZ_SIDE * FUZZ_SIDE * 3];
    if (size < 4)
        return 0;
    choir__view view;
    choir_image_opts o = choir_image_defaults();
    choir__decoder *d = &work.decoder;
    o.crop = CHOIR_CROP_RESIZED + data[0] % 3;
    o.dct_scaling = data[0] & 64;
    o.width = 1 + data[1] % FUZZ_SIDE;
    o.height = 1 + data[2] % FUZZ_SIDE;
    if (choir__decoder_open(d, "image", data + 4, size - 4, 1 << 16) == CHOIR_OK) {
        if (choir__view_random(&o, "image", d->width, d->height, data[3], &view) == CHOIR_OK)
            choir__image_render(&work, &o, choir__resample_find(), &view, out);
        choir__decoder_close(d);
    }
    if (data[0] & 128)
        choir__image_work_free(&work);
    return 0;
}

#endif
