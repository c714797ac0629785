/* Decoding an image of any format, and the sizes that an image may have. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/images/image.h"

enum { SIDE = 65535 };

static choir_status unknown(const choir__decoder *d)
{
    char start[64] = "";
    if (!d->bytes)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: expected a JPEG or PNG, got an empty file", d->name);
    for (size_t i = 0; i < d->bytes && i < 8; i++)
        if (isprint(d->data[i]))
            snprintf(start + strlen(start), sizeof start - strlen(start), "%c", d->data[i]);
        else
            snprintf(start + strlen(start), sizeof start - strlen(start), "<%02x>", d->data[i]);
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: expected a JPEG or PNG, got a file that begins with %s", d->name, start);
}

choir_status choir__decoder_open(
    choir__decoder *d, const char *name, const void *data, size_t bytes, int64_t max_pixels)
{
    d->name = name;
    d->data = data;
    d->bytes = bytes;
    d->width = d->height = 0;
    d->format = choir__image_format_of(data, bytes);
    if (!d->format)
        return unknown(d);
    choir_status status = d->format->open(d);
    if (status == CHOIR_OK &&
        (d->width < 1 || d->height < 1 || d->width > SIDE || d->height > SIDE))
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: expected an image of 1 to 65535 pixels per side, got %d x %d", name, d->width,
            d->height);
    if (status == CHOIR_OK && (int64_t)d->width * d->height > max_pixels)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s says it has %d x %d pixels, more than the %lld that an image may have", name,
            d->width, d->height, (long long)max_pixels);
    if (status != CHOIR_OK)
        choir__decoder_close(d);
    return status;
}

choir_status choir__decoder_read(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels)
{
    return d->format->read(d, need, shrink, pixels);
}

void choir__decoder_close(choir__decoder *d)
{
    if (d->format)
        d->format->close(d);
    d->data = NULL;
}

void choir__decoder_free(choir__decoder *d)
{
    const choir__image_format *format;
    for (size_t i = 0; (format = choir__image_format_at(i)); i++)
        format->free(d);
    free(d->rgb);
    *d = (choir__decoder){0};
}
