/* JPEG, by libjpeg-turbo.
 *
 * All of the file's bits up to the last needed row must be decoded. But the inverse transform,
 * which is most of the remaining work, runs only for blocks of the region, and at 1/2, 1/4 or
 * 1/8 of the size on 4 x 4, 2 x 2 or 1 coefficients of a block. Rows below the region are not
 * read. To detect a truncated file with any crop, the file's end mark is looked up first.
 *
 * libjpeg reports errors by a function that must not return, so each entry point has its
 * setjmp. Warnings of libjpeg (data that cannot be decoded, or too little of it) are errors
 * here, except for harmless ones. */
#include "data/images/image.h"

#ifdef CHOIR_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>

enum {
    SCANS = 32, /* scans of a progressive image; programs that write images make 10 or fewer */
    PIXELS_PER_BYTE = 256, /* pixels per byte that further scans may pass over */
    EDGE = 2,              /* pixels beyond the region that smooth chroma reads */
    ROWS = 16
};

typedef struct jpeg {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr error;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    choir__decoder *decoder;
    uint8_t *line; /* one row of a CMYK image */
    bool short_of; /* the file ended */
} jpeg;

/* --- functions that libjpeg calls --- */

static void fail(j_common_ptr c)
{
    jpeg *j = (jpeg *)c; /* c is its first member */
    char why[JMSG_LENGTH_MAX];
    j->error.format_message(c, why);
    if (j->short_of)
        choir__error(CHOIR_ERR_FORMAT, "%s is cut short: the JPEG ends after %zu bytes",
            j->decoder->name, j->decoder->bytes);
    else
        choir__error(CHOIR_ERR_FORMAT, "%s: the JPEG is damaged (%s)", j->decoder->name, why);
    longjmp(j->jump, 1);
}

static void note(j_common_ptr c, int level)
{
    switch (c->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA: /* found in published data sets, and harmless */
    case JWRN_TOO_MUCH_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_PROGRESSION: return;
    default: break;
    }
    if (level < 0)
        fail(c);
}

static void print_nothing(j_common_ptr c)
{
    (void)c;
}

/* Each scan costs a pass over all coefficients, and can be a few bytes. Those beyond SCANS must
 * have bytes for it. */
static void limit_scans(j_common_ptr c)
{
    jpeg *j = (jpeg *)c;
    int64_t pixels = (int64_t)j->c.image_width * j->c.image_height,
            further = j->c.input_scan_number - SCANS;
    if (!c->is_decompressor || further <= 0 ||
        further * pixels <= PIXELS_PER_BYTE * (int64_t)j->decoder->bytes)
        return;
    choir__error(CHOIR_ERR_FORMAT,
        "%s: a JPEG of %d x %d pixels in %zu bytes, with more than %d scans: save it again",
        j->decoder->name, (int)j->c.image_width, (int)j->c.image_height, j->decoder->bytes,
        j->c.input_scan_number - 1);
    longjmp(j->jump, 1);
}

static void begin(j_decompress_ptr c)
{
    (void)c;
}

static boolean no_more(j_decompress_ptr c)
{
    ((jpeg *)c)->short_of = true;
    ERREXIT(c, JERR_INPUT_EOF);
    return FALSE;
}

static void pass_over(j_decompress_ptr c, long bytes)
{
    if (bytes <= 0)
        return;
    if ((size_t)bytes > c->src->bytes_in_buffer)
        no_more(c);
    c->src->next_input_byte += bytes;
    c->src->bytes_in_buffer -= (size_t)bytes;
}

/* --- opening --- */

static bool create(jpeg *j)
{
    j->c.err = jpeg_std_error(&j->error);
    j->error.error_exit = fail;
    j->error.emit_message = note;
    j->error.output_message = print_nothing;
    if (setjmp(j->jump))
        return false;
    jpeg_create_decompress(&j->c);
    j->source = (struct jpeg_source_mgr){.init_source = begin,
        .fill_input_buffer = no_more,
        .skip_input_data = pass_over,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = begin};
    j->c.src = &j->source;
    j->progress.progress_monitor = limit_scans;
    j->c.progress = &j->progress;
    return true;
}

/* Creates libjpeg's object, once for many images. */
static bool made(choir__decoder *d)
{
    jpeg *j = d->jpeg;
    if (j)
        return true;
    j = choir__calloc(1, sizeof *j);
    j->decoder = d;
    if (create(j))
        d->jpeg = j;
    else
        free(j);
    return d->jpeg;
}

/* Finds the end mark, FF D9, which compressed data never contain. */
static bool has_end(const uint8_t *from, const uint8_t *end)
{
    for (const uint8_t *at = end; at - from >= 2; at--)
        if (at[-2] == 0xFF && at[-1] == 0xD9)
            return true;
    return false;
}

static choir_status read_header(choir__decoder *d, jpeg *j)
{
    if (setjmp(j->jump)) {
        jpeg_abort_decompress(&j->c);
        return CHOIR_ERR_FORMAT;
    }
    j->decoder = d;
    j->short_of = false;
    j->source.next_input_byte = d->data;
    j->source.bytes_in_buffer = d->bytes;
    jpeg_read_header(&j->c, TRUE);
    if (!has_end(j->source.next_input_byte, d->data + d->bytes)) {
        j->short_of = true;
        ERREXIT(&j->c, JERR_INPUT_EOF);
    }
    d->width = (int)j->c.image_width;
    d->height = (int)j->c.image_height;
    return CHOIR_OK;
}

static choir_status open_jpeg(choir__decoder *d)
{
    return made(d) ? read_header(d, d->jpeg) : CHOIR_ERR_MEMORY;
}

/* --- reading --- */

static void cmyk_to_rgb(const uint8_t *in, uint8_t *out, int pixels, bool inverted)
{
    for (int i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++) {
            unsigned ink = in[4 * i + c], black = in[4 * i + 3];
            if (!inverted)
                ink = 255 - ink, black = 255 - black;
            out[3 * i + c] = (uint8_t)((ink * black + 127) / 255);
        }
}

static void read_rows(jpeg *j, const choir__pixels *p)
{
    bool cmyk = j->c.out_color_space == JCS_CMYK;
    JSAMPROW rows[ROWS];
    for (int y = 0; y < p->height;) {
        uint8_t *row = p->rgb + y * p->stride;
        int n = cmyk ? 1 : (int)choir__min(ROWS, p->height - y);
        for (int i = 0; i < n; i++)
            rows[i] = row + i * p->stride;
        if (cmyk)
            rows[0] = j->line;
        int got = (int)jpeg_read_scanlines(&j->c, rows, (JDIMENSION)n);
        if (cmyk && got)
            cmyk_to_rgb(j->line, row, p->width, j->c.saw_Adobe_marker);
        y += got;
    }
}

/* Chooses the columns to decode: whole units of blocks, with a margin so that pixels at the
 * region's edge are the same as in a decode of the whole image. */
static void choose_columns(jpeg *j, choir__image_region need, choir__pixels *p)
{
    int whole = (int)j->c.output_width;
    int low = need.x > EDGE ? need.x - EDGE : 0;
    int high = (int)choir__min(need.x + need.width + EDGE, whole);
    JDIMENSION x = (JDIMENSION)low, width = (JDIMENSION)(high - low);
    if (high - low < whole)
        jpeg_crop_scanline(&j->c, &x, &width);
    else
        x = 0;
    p->x = (int)x;
    p->width = (int)j->c.output_width;
}

static choir_status read_jpeg(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels)
{
    jpeg *j = d->jpeg;
    bool cmyk = j->c.num_components == 4;
    if (setjmp(j->jump)) {
        jpeg_abort_decompress(&j->c);
        return CHOIR_ERR_FORMAT;
    }
    j->c.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    j->c.scale_num = 1;
    j->c.scale_denom = (unsigned)shrink;
    jpeg_start_decompress(&j->c);
    choose_columns(j, need, pixels);
    pixels->y = need.y;
    pixels->height = need.height;
    pixels->stride = 3 * (int64_t)pixels->width;
    if (choir__decoder_room(d, pixels->stride, pixels->height) != CHOIR_OK) {
        jpeg_abort_decompress(&j->c);
        return CHOIR_ERR_MEMORY;
    }
    pixels->rgb = d->rgb;
    if (cmyk)
        j->line = choir__realloc(j->line, 4 * (size_t)pixels->width);
    if (need.y)
        jpeg_skip_scanlines(&j->c, (JDIMENSION)need.y);
    read_rows(j, pixels);
    jpeg_abort_decompress(&j->c);
    return CHOIR_OK;
}

static void close_jpeg(choir__decoder *d)
{
    jpeg *j = d->jpeg;
    if (j && !setjmp(j->jump))
        jpeg_abort_decompress(&j->c);
}

static void free_jpeg(choir__decoder *d)
{
    jpeg *j = d->jpeg;
    if (!j)
        return;
    jpeg_destroy_decompress(&j->c);
    free(j->line);
    free(j);
}

#else

static choir_status open_jpeg(choir__decoder *d)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s is a JPEG, and this Choir is built without libjpeg-turbo: install it and build with"
        " -DCHOIR_JPEG=ON",
        d->name);
}

static choir_status read_jpeg(
    choir__decoder *d, choir__image_region need, int shrink, choir__pixels *pixels)
{
    (void)need, (void)shrink, (void)pixels;
    return open_jpeg(d);
}

static void close_jpeg(choir__decoder *d)
{
    (void)d;
}

static void free_jpeg(choir__decoder *d)
{
    (void)d;
}

#endif

const choir__image_format choir__jpeg_format = {
    .shrinks = 8, .open = open_jpeg, .read = read_jpeg, .close = close_jpeg, .free = free_jpeg};
