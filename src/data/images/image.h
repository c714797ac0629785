/* Images on their way from files to samples.
 *
 *     bytes of a file -> decoder -> 8-bit RGB of a region -> resample -> a sample's floats
 *
 * An image's size is known from its header before anything is decoded. So the crop is chosen
 * first, and the decoder reads only the part that the crop needs, shrunk as far as the sample's
 * size allows. */
#ifndef CHOIR_IMAGE_H
#define CHOIR_IMAGE_H

#include "data/dataset.h"

/* A rectangle of pixels. */
typedef struct choir__image_region {
    int x, y, width, height;
} choir__image_region;

/* A decoder's result: rows of 8-bit RGB that contain at least the requested region. Pixel 0 is
 * pixel (x, y) of the image shrunk by `shrink`. Readers may read CHOIR__PIXEL_SLACK bytes past
 * the last row. */
typedef struct choir__pixels {
    uint8_t *rgb;
    int64_t stride; /* bytes from row to row */
    int x, y, width, height;
} choir__pixels;

enum { CHOIR__PIXEL_SLACK = 64 };

/* An image being read: its file, and buffers that are reused for the next image. Only one
 * thread at a time may use a decoder. */
typedef struct choir__decoder {
    const char *name; /* name of the file, for messages */
    const uint8_t *data;
    size_t bytes;
    int width, height; /* size of the whole image */
    const struct choir__image_format *format;
    void *jpeg; /* libjpeg's object, once made */
    void *png;  /* the open PNG */
    uint8_t *rgb;
    size_t room;
} choir__decoder;

/* The reader of one image format, as the decoder uses it. */
typedef struct choir__image_format {
    int shrinks; /* the largest shrink of `read`: 1, 2, 4 or 8 */
    choir_status (*open)(choir__decoder *d);
    choir_status (*read)(
        choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels);
    void (*close)(choir__decoder *d); /* closes this image */
    void (*free)(choir__decoder *d);  /* frees memory that is kept between images */
} choir__image_format;

extern const choir__image_format choir__jpeg_format, choir__png_format;

/* The registry. choir__image_format_at returns the format at an index, or NULL after the last
 * one. choir__image_format_of returns the format of a file with these first bytes, or NULL if
 * no format matches. */
const choir__image_format *choir__image_format_at(size_t index);
const choir__image_format *choir__image_format_of(const void *data, size_t bytes);

/* Reads the header and sets d->width and d->height. data must stay until close. An image of
 * more than max_pixels is an error. Errors: format, naming the file; unsupported (a format that
 * is not built in). */
choir_status choir__decoder_open(
    choir__decoder *d, const char *name, const void *data, size_t bytes, int64_t max_pixels);

/* Reads a region, in pixels of the image shrunk by `shrink` (1, 2, 4, 8; at most
 * d->format->shrinks). A shrunk image has ceil(width / shrink) columns. Errors: format,
 * memory. */
choir_status choir__decoder_read(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels);

void choir__decoder_close(choir__decoder *d); /* releases the image, keeps the buffers */
void choir__decoder_free(choir__decoder *d);

/* Ensures that d->rgb has room for this many rows. Error: memory. */
choir_status choir__decoder_room(choir__decoder *d, int64_t stride, int rows);

#endif
