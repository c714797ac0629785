/* One file in a folder of its own, tensors to write to it, and headers that no program would
 * write. */
#ifndef CHOIR_TEST_SAFETENSORS_FIXTURE_H
#define CHOIR_TEST_SAFETENSORS_FIXTURE_H

#include <signal.h>

#include "folder_fixture.h"
#include "written_files.h"
#include "checkpoint/format/safetensors.h"

static char path[256];

static inline int set_up(void **state)
{
    signal(SIGXFSZ, SIG_IGN);
    int bad = make_folder(state);
    strcpy(path, at("x.safetensors"));
    return bad;
}

static inline int tear_down(void **state)
{
    unlink(path);
    return remove_folder(state);
}

static const float f32s[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const double f64s[1] = {2.5};
static const uint16_t halves[3] = {0x3C00, 0xC000, 0x0001};
static const uint8_t bytes5[5] = {1, 0, 1, 1, 0};
static const choir__st_tensor samples[] = {
    {"mask", CHOIR_BOOL, {1, {5}}, bytes5, .bytes = 5},
    {"b.weight", CHOIR_F32, {2, {2, 3}}, f32s, .bytes = 24},
    {"a.weight", CHOIR_F32, {2, {3, 2}}, f32s, .bytes = 24},
    {"half \"quoted\" \xC3\xA9", CHOIR_BF16, {1, {3}}, halves, .bytes = 6},
    {"scalar", CHOIR_F64, {0, {0}}, f64s, .bytes = 8},
    {"empty", CHOIR_I32, {3, {4, 0, 2}}, f32s, .bytes = 0},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

/* Writes a file with this header, which claims to have `length` bytes, and data_bytes bytes of
 * data. */
static inline void put_header(uint64_t length, const char *header, size_t data_bytes)
{
    size_t header_bytes = strlen(header), total = 8 + header_bytes + data_bytes;
    unsigned char *file = calloc(1, total + 1);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, header_bytes);
    spit(path, file, total);
    free(file);
}

/* A tensor's entry in a header. */
#define ENTRY(dtype, shape, begin, end)                                                        \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

/* Reads every byte that a tensor claims, for the sanitizers. */
static inline unsigned touch_all(const choir__st_file *file)
{
    unsigned sum = 0;
    for (int i = 0; i < choir__st_count(file); i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        for (size_t k = 0; k < t->bytes; k++)
            sum += ((const unsigned char *)t->data)[k];
    }
    return sum;
}

#endif
