/* The registry of image formats. A file's first bytes determine its format, because names can
 * be wrong. */
#include <string.h>

#include "data/images/image.h"

static const struct {
    const char *mark;
    size_t bytes;
    const choir__image_format *format;
} formats[] = {
    {"\xFF\xD8\xFF", 3, &choir__jpeg_format},
    {"\x89PNG\r\n\x1A\n", 8, &choir__png_format},
};

const choir__image_format *choir__image_format_at(size_t index)
{
    return index < CHOIR_COUNT(formats) ? formats[index].format : NULL;
}

const choir__image_format *choir__image_format_of(const void *data, size_t bytes)
{
    for (size_t i = 0; i < CHOIR_COUNT(formats); i++)
        if (bytes >= formats[i].bytes && !memcmp(data, formats[i].mark, formats[i].bytes))
            return formats[i].format;
    return NULL;
}
