/* PNG, by libpng: every colour type and depth as 8-bit RGB. Palettes are looked up, grey
 * becomes three equal values, 16 bits are scaled to 8, alpha is dropped.
 *
 * libpng reports errors by a function that must not return, so each entry point has its
 * setjmp. */
#include "data/images/image.h"

#ifdef CHOIR_HAVE_PNG
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 16 << 20, /* limit for text, profiles and the like, unpacked */
    CHUNKS_KEPT = 8         /* chunks kept per image */
};

typedef struct png {
    png_structp read;
    png_infop info;
    const uint8_t *at, *end;
    choir__decoder *decoder;
    png_bytepp rows; /* rows of an interlaced image */
} png;

static void fail(png_structp read, png_const_charp why)
{
    png *p = png_get_error_ptr(read);
    if (p->at == p->end)
        choir__error(CHOIR_ERR_FORMAT, "%s is cut short: the PNG ends after %zu bytes (%s)",
            p->decoder->name, p->decoder->bytes, why);
    else
        choir__error(CHOIR_ERR_FORMAT, "%s: the PNG is damaged (%s)", p->decoder->name, why);
    png_longjmp(read, 1);
}

static void ignore(png_structp read, png_const_charp why)
{
    (void)read, (void)why;
}

static void give_bytes(png_structp read, png_bytep to, size_t bytes)
{
    png *p = png_get_io_ptr(read);
    if (bytes > (size_t)(p->end - p->at)) {
        p->at = p->end;
        png_error(read, "more data are promised");
    }
    memcpy(to, p->at, bytes);
    p->at += bytes;
}

static void close_png(choir__decoder *d)
{
    png *p = d->png;
    if (!p)
        return;
    png_destroy_read_struct(&p->read, &p->info, NULL);
    free(p->rows);
    free(p);
    d->png = NULL;
}

/* Makes libpng skip texts, profiles and the like, which it would keep: a chunk of a few
 * kilobytes may unpack to CHUNK_BYTES, and a file may have any number of them. */
static void skip_texts(png *p)
{
    static const png_byte names[] = "tEXt\0zTXt\0iTXt\0iCCP\0sPLT\0eXIf\0pCAL\0sCAL\0hIST";
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    png_set_keep_unknown_chunks(p->read, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(
        p->read, PNG_HANDLE_CHUNK_NEVER, names, (int)(sizeof names / 5));
#endif
    png_set_chunk_cache_max(p->read, CHUNKS_KEPT);
}

static choir_status open_png(choir__decoder *d)
{
    png *p = d->png = choir__calloc(1, sizeof *p);
    *p = (png){.at = d->data, .end = d->data + d->bytes, .decoder = d};
    p->read = png_create_read_struct(PNG_LIBPNG_VER_STRING, p, fail, ignore);
    p->info = p->read ? png_create_info_struct(p->read) : NULL;
    if (!p->info)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory to read it", d->name);
    if (setjmp(png_jmpbuf(p->read)))
        return CHOIR_ERR_FORMAT;
    png_set_read_fn(p->read, p, give_bytes);
    png_set_chunk_malloc_max(p->read, CHUNK_BYTES);
    skip_texts(p);
    png_read_info(p->read, p->info);
    d->width = (int)choir__min(png_get_image_width(p->read, p->info), INT32_MAX);
    d->height = (int)choir__min(png_get_image_height(p->read, p->info), INT32_MAX);
    if (!memmem(p->at, (size_t)(p->end - p->at), "IEND", 4)) {
        p->at = p->end;
        png_error(p->read, "its end is missing");
    }
    return CHOIR_OK;
}

/* Requests all kinds of pixels as RGB, one byte per channel. */
static void ask_for_rgb(png *p)
{
    png_set_expand(p->read);
    png_set_scale_16(p->read);
    png_set_gray_to_rgb(p->read);
    png_set_strip_alpha(p->read);
}

static choir_status read_all(choir__decoder *d, choir__pixels *pixels)
{
    png *p = d->png;
    if (choir__decoder_room(d, pixels->stride, d->height) != CHOIR_OK)
        return CHOIR_ERR_MEMORY;
    if (!(p->rows = malloc((size_t)d->height * sizeof *p->rows)))
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for its rows", d->name);
    for (int y = 0; y < d->height; y++)
        p->rows[y] = d->rgb + y * pixels->stride;
    png_read_image(p->read, p->rows);
    pixels->rgb = d->rgb + pixels->y * pixels->stride;
    return CHOIR_OK;
}

/* Rows above the region are unpacked too; each overwrites the one before. */
static choir_status read_some(choir__decoder *d, choir__pixels *pixels)
{
    png *p = d->png;
    if (choir__decoder_room(d, pixels->stride, pixels->height) != CHOIR_OK)
        return CHOIR_ERR_MEMORY;
    for (int y = 0; y < pixels->y; y++)
        png_read_row(p->read, d->rgb, NULL);
    for (int y = 0; y < pixels->height; y++)
        png_read_row(p->read, d->rgb + y * pixels->stride, NULL);
    pixels->rgb = d->rgb;
    return CHOIR_OK;
}

static choir_status read_png(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels)
{
    png *p = d->png;
    (void)shrink; /* always 1 */
    if (setjmp(png_jmpbuf(p->read)))
        return CHOIR_ERR_FORMAT;
    ask_for_rgb(p);
    int passes = png_set_interlace_handling(p->read);
    png_read_update_info(p->read, p->info);
    pixels->stride = (int64_t)png_get_rowbytes(p->read, p->info);
    if (pixels->stride != 3 * (int64_t)d->width)
        png_error(p->read, "its pixels do not become RGB");
    pixels->y = need.y;
    pixels->width = d->width;
    pixels->height = need.height;
    pixels->x = 0;
    return passes > 1 ? read_all(d, pixels) : read_some(d, pixels);
}

#else

static choir_status open_png(choir__decoder *d)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s is a PNG, and this Choir is built without libpng: install it and build with"
        " -DCHOIR_PNG=ON",
        d->name);
}

static choir_status read_png(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels)
{
    (void)need, (void)shrink, (void)pixels;
    return open_png(d);
}

static void close_png(choir__decoder *d)
{
    (void)d;
}

#endif

const choir__image_format choir__png_format = {
    .shrinks = 1, .open = open_png, .read = read_png, .close = close_png, .free = close_png};
