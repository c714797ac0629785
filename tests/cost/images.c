/* Images, tars of them, and data in rows of bytes. Of the harnesses of images, the first four
 * bytes choose a crop. */
#include "cases.h"

#include <zlib.h>

static void append_big(blob *b, uint32_t n, int bytes)
{
    for (int i = bytes; i-- > 0;)
        append(b, (char[]){(char)(n >> 8 * i)}, 1);
}

/* --- JPEG --- */

enum { SIDE = 248 };

/* The header of a progressive grey image, with one code of one bit: 0 is `symbol`. */
static void begin_jpeg(blob *b, int class, char symbol)
{
    append(b, "\0\x08\x08\0", 4);
    append(b, "\xff\xd8\xff\xdb\0\x43\0", 7);
    for (int i = 0; i < 64; i++)
        append(b, "\1", 1);
    append(b, "\xff\xc2\0\x0b\x08\0\xf8\0\xf8\1\1\x11\0", 13);
    append(b, "\xff\xc4\0\x14", 4);
    append(b, (char[]){(char)(class << 4)}, 1);
    append(b, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    append(b, &symbol, 1);
}

/* Scans of the coefficient 1, whose first code ends all blocks of the image: EOB14. */
static void make_scans(blob *b, const cost_case *c, size_t n)
{
    (void)c;
    begin_jpeg(b, 1, (char)0xe0);
    for (size_t i = 0; i < n; i++)
        append(b, "\xff\xda\0\x08\1\1\0\1\1\0\0\1", 12);
    append(b, "\xff\xd9", 2);
}

static void make_comments(blob *b, const cost_case *c, size_t n)
{
    begin_jpeg(b, 1, (char)0xe0);
    for (size_t i = 0; i < n; i++)
        append(b, c->unit, 6);
    append(b, "\xff\xda\0\x08\1\1\0\1\1\0\0\1\xff\xd9", 14);
}

/* --- PNG --- */

static void append_chunk(blob *b, const char *type, const void *data, size_t bytes)
{
    append_big(b, (uint32_t)bytes, 4);
    size_t from = b->bytes;
    append_text(b, type);
    append(b, data, bytes);
    append_big(b,
        (uint32_t)crc32(0, (const unsigned char *)b->data + from, (unsigned)(b->bytes - from)),
        4);
}

static void begin_png(blob *b)
{
    append(b, "\0\x08\x08\0\x89PNG\r\n\x1a\n", 12);
    append_chunk(b, "IHDR", "\0\0\0\x80\0\0\0\x80\x08\0\0\0\0", 13);
}

static void end_png(blob *b)
{
    static unsigned char rows[128 * 129], packed[1024];
    uLongf bytes = sizeof packed;
    compress(packed, &bytes, rows, sizeof rows);
    append_chunk(b, "IDAT", packed, bytes);
    append_chunk(b, "IEND", "", 0);
}

static void make_chunks(blob *b, const cost_case *c, size_t n)
{
    begin_png(b);
    for (size_t i = 0; i < n; i++)
        append_chunk(b, c->unit, "a\0b", 3);
    end_png(b);
}

/* --- tars --- */

static void append_member(blob *b, const char *name, char type, const char *data, size_t bytes)
{
    char block[512] = {0};
    snprintf(block, 100, "%s", name);
    snprintf(block + 100, 8, "%07o", 0644);
    snprintf(block + 124, 12, "%011zo", bytes);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 257,
        "ustar\0"
        "00",
        8);
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof block; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    append(b, block, sizeof block);
    memset(block, 0, sizeof block);
    append(b, data, bytes);
    append(b, block, (sizeof block - bytes % sizeof block) % sizeof block);
}

static void make_tar(blob *b, const cost_case *c, size_t n)
{
    char name[100], label[100];
    blob png = {0};
    begin_png(&png);
    end_png(&png);
    append(b, "", 1);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, c->begin, i);
        snprintf(label, sizeof label, c->unit, i);
        append_member(b, name, *c->end, label, strlen(label));
        snprintf(name, sizeof name, "%zu.png", i);
        append_member(b, name, '0', png.data + 4, png.bytes - 4);
    }
    memset(name, 0, sizeof name);
    for (int i = 0; i < 16; i++)
        append(b, name, 64);
    free(png.data);
}

/* --- rows of bytes --- */

static void make_ids(blob *b, const cost_case *c, size_t n)
{
    (void)c;
    for (size_t i = 0; i < n; i++)
        append(b, (uint16_t[]){(uint16_t)i}, 2);
}

/* Images of 1 x 2, and their labels, which are the last third. */
static void make_idx(blob *b, const cost_case *c, size_t n)
{
    (void)c;
    append(b, "\xaa\0\0\x08\3", 5);
    append_big(b, (uint32_t)n, 4);
    append(b, "\0\0\0\1\0\0\0\2", 8);
    for (size_t i = 0; i < 2 * n; i++)
        append(b, "\1", 1);
    append(b, "\0\0\x08\1", 4);
    append_big(b, (uint32_t)n, 4);
    for (size_t i = 0; i < n; i++)
        append(b, "\1", 1);
}

static const cost_case cases[] = {
    {"jpeg: scans", read_jpeg, .n = 12, .make = make_scans},
    {"jpeg: many scans", read_jpeg, .n = 2000, .make = make_scans},
    {"jpeg: comments", read_jpeg, .unit = "\xff\xfe\0\4ab", .n = 3000, .make = make_comments},
    {"jpeg: tables of restarts", read_jpeg, .unit = "\xff\xdd\0\4\0\1", .n = 3000,
        .make = make_comments},
    {"png: texts", read_png, .unit = "tEXt", .n = 1000, .make = make_chunks},
    {"png: unknown chunks", read_png, .unit = "abCd", .n = 1000, .make = make_chunks},
    {"tar: samples", read_tar, "%zu.cls", "%zu", "0", 200, .make = make_tar},
    {"tar: members of one sample", read_tar, "a.cls", "%zu", "0", 200, .make = make_tar},
    {"tar: labels", read_tar, "%zu.json", "{\"cls\":\"label %zu\"}", "0", 200,
        .make = make_tar},
    {"tar: long names", read_tar, "%zu", "%zu.png", "L", 200, .make = make_tar},
    {"tar: pax headers", read_tar, "%zu", "16 path=abc.cls\n", "x", 200, .make = make_tar},
    {"tokens", read_tokens, .n = 5000, .make = make_ids},
    {"idx", read_idx, .n = 5000, .make = make_idx},
};

const cost_table cost_images = COST_TABLE(cases);
