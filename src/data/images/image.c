/* The decoder's buffer of pixels, which grows to the largest region that was asked for, with
 * some bytes of slack behind the last row for loops that read whole vectors. */
#include "data/images/image.h"

#include <stdlib.h>
#include <string.h>

choir_status choir__decoder_room(choir__decoder *d, int64_t stride, int rows)
{
    size_t bytes = (size_t)stride * (size_t)rows + CHOIR__PIXEL_SLACK;
    if (bytes <= d->room)
        return CHOIR_OK;
    uint8_t *more = malloc(bytes);
    if (!more)
        return choir__error(
            CHOIR_ERR_MEMORY, "%s: no host memory for its %zu bytes of pixels", d->name, bytes);
    memset(more + bytes - CHOIR__PIXEL_SLACK, 0, CHOIR__PIXEL_SLACK);
    free(d->rgb);
    d->rgb = more;
    d->room = bytes;
    return CHOIR_OK;
}
