/* Images on their way from files to samples.
 *
 *     bytes of a file -> decoder -> 8-bit RGB of a region -> resample -> a sample's floats
 *
 * The size of an image is known from its header, before anything is decoded; so the crop is
 * chosen first, and the decoder is asked only for the part of it that is needed, shrunk as far
 * as the sample's size allows. */
#ifndef CHOIR_IMAGE_H
#define CHOIR_IMAGE_H

#include "data/dataset.h"

/* A rectangle of pixels. */
typedef struct choir__image_region {
    int x, y, width, height;
} choir__image_region;

/* What a decoder gives: rows of 8-bit RGB, at least the region asked for. Its pixel 0 is pixel
 * (x, y) of the image shrunk by `shrink`. Behind the last row CHOIR__PIXEL_SLACK bytes may be
 * read. */
typedef struct choir__pixels {
    uint8_t *rgb;
    int64_t stride; /* bytes from row to row */
    int x, y, width, height;
} choir__pixels;

enum { CHOIR__PIXEL_SLACK = 64 };

/* An image that is being read: its file, and buffers that are used again for the next one. One
 * thread at a time. */
typedef struct choir__decoder {
    const char *name; /* of the file, for messages */
    const uint8_t *data;
    size_t bytes;
    int width, height; /* of the whole image */
    const struct choir__image_format *format;
    void *jpeg; /* libjpeg's object, once made */
    void *png;  /* what is open of a PNG */
    uint8_t *rgb;
    size_t room;
} choir__decoder;

/* What the readers of formats are to the decoder. */
typedef struct choir__image_format {
    int shrinks; /* the most that `read` can shrink by: 1, 2, 4 or 8 */
    choir_status (*open)(choir__decoder *d);
    choir_status (*read)(
        choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels);
    void (*close)(choir__decoder *d); /* of this image */
    void (*free)(choir__decoder *d);  /* what it keeps between images */
} choir__image_format;

extern const choir__image_format choir__jpeg_format, choir__png_format;

/* The registry: the format at an index, NULL behind the last one; and the format of a file with
 * these first bytes, NULL if it is none of them. */
const choir__image_format *choir__image_format_at(size_t index);
const choir__image_format *choir__image_format_of(const void *data, size_t bytes);

/* Looks at the header; d->width and height are valid then. data must stay until close. An image
 * of more than max_pixels is refused. Errors: format, naming the file; unsupported (a format
 * that is not built in). */
choir_status choir__decoder_open(
    choir__decoder *d, const char *name, const void *data, size_t bytes, int64_t max_pixels);

/* The region, in pixels of the image shrunk by `shrink` (1, 2, 4, 8; at most
 * d->format->shrinks); such an image has ceil(width / shrink) columns. Errors: format, memory.
 */
choir_status choir__decoder_read(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels);

void choir__decoder_close(choir__decoder *d); /* forgets the image, keeps the buffers */
void choir__decoder_free(choir__decoder *d);

/* d->rgb with room for so many rows. Error: memory. */
choir_status choir__decoder_room(choir__decoder *d, int64_t stride, int rows);

#endif
