/* Folders of images made for a test: JPEGs and PNGs of every kind, all of a known pattern. */
#ifndef CHOIR_TEST_IMAGE_FIXTURE_H
#define CHOIR_TEST_IMAGE_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <jpeglib.h>
#include <png.h>
#include <choir/data.h>
#include "data/images/transform.h"
#include "folder_fixture.h"

/* Returns folder/NAME in one of a few static buffers, and creates its folders. */
static inline const char *new_at(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            fail_msg("%s: %s", path, strerror(errno));
        *slash = '/';
    }
    return path;
}

/* Returns channel c at (x, y): smooth, and different at every place. */
static inline uint8_t pattern(int x, int y, int c)
{
    return (uint8_t)(c == 0   ? 255 * x / (x + 40)
                     : c == 1 ? (3 * y) % 200 + 20
                              : (x + 2 * y) / 3);
}

typedef struct jpeg_kind {
    J_COLOR_SPACE space; /* of the pixels: JCS_RGB, JCS_GRAYSCALE or JCS_CMYK */
    bool whole_chroma, progressive;
    int quality;
} jpeg_kind;

static inline void write_jpeg(const char *path, int width, int height, jpeg_kind kind)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.in_color_space = kind.space;
    c.input_components = kind.space == JCS_GRAYSCALE ? 1 : kind.space == JCS_CMYK ? 4 : 3;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, kind.quality, TRUE);
    if (kind.whole_chroma)
        c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = 1;
    if (kind.progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    uint8_t *row = malloc(4 * (size_t)width);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            for (int i = 0; i < c.input_components; i++) /* CMYK is stored inverted */
                row[c.input_components * x + i] = i == 3 ? 255 : pattern(x, y, i);
        jpeg_write_scanlines(&c, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(f);
}

/* Writes a PNG; type: PNG_COLOR_TYPE_.... A 16-bit value is the pattern's byte and a lower byte
 * of its own. */
static inline void write_png(
    const char *path, int width, int height, int type, int depth, bool interlaced)
{
    png_structp w = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(w);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    png_init_io(w, f);
    png_set_IHDR(w, info, (png_uint_32)width, (png_uint_32)height, depth, type,
        interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
        PNG_FILTER_TYPE_DEFAULT);
    png_color palette[256];
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(w, info, palette, 256);
    png_write_info(w, info);
    int channels = png_get_channels(w, info), bytes = depth / 8;
    uint8_t *pixels = malloc((size_t)width * (size_t)height * 8),
            **rows = malloc(8 * (size_t)height);
    for (int y = 0; y < height; y++) {
        uint8_t *p = rows[y] = pixels + (size_t)y * (size_t)width * 8;
        for (int x = 0; x < width; x++)
            for (int i = 0; i < channels; i++) {
                *p++ = i == 3 ? (uint8_t)(x * y) : pattern(x, y, i);
                if (bytes == 2)
                    *p++ = 7;
            }
    }
    png_write_image(w, rows);
    png_write_end(w, NULL);
    png_destroy_write_struct(&w, &info);
    free(rows);
    free(pixels);
    fclose(f);
}

static const jpeg_kind photo = {JCS_RGB, false, false, 90};

#endif
