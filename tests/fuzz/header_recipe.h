/* Whole safetensors files out of a fuzzer's bytes. Random changes of a file nearly always leave
 * a header that is no JSON, or whose numbers do not agree; here the bytes are decisions, and
 * each sequence of them makes a header of tensors side by side, and of the places of their
 * parts in a whole (DCP_SHARDING_INFO). Now and then a decision makes one number another. */
#ifndef CHOIR_FUZZ_HEADER_RECIPE_H
#define CHOIR_FUZZ_HEADER_RECIPE_H

#include <inttypes.h>
#include <stdio.h>

#include "recipe.h"

enum { MOST_TENSORS = 6, MOST_DATA = 1 << 12 };

/* Returns n, or, if a decision says so, a number that does not fit. */
static inline int64_t nearly(recipe *r, int64_t n)
{
    static const int64_t others[] = {
        0, 1, -1, 4, INT64_C(1) << 31, INT64_C(1) << 61, INT64_MAX};
    unsigned decision = choose(r, 256);
    if (decision >= 254)
        return n + (decision == 254 ? 1 : -1);
    return decision >= 247 ? others[decision - 247] : n;
}

static inline void append_numbers(recipe *r, blob *b, const int64_t *n, unsigned count)
{
    append_text(b, "[");
    for (unsigned i = 0; i < count; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s%" PRId64, i ? "," : "", nearly(r, n[i]));
        append_text(b, text);
    }
    append_text(b, "]");
}

/* Appends "NAME":{"dtype":..,"shape":..,"data_offsets":..}; *end moves behind its data. Its
 * place in the whole goes to `places`. */
static inline void append_tensor(
    recipe *r, unsigned number, blob *b, blob *places, int64_t *end)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } dtypes[] = {{"F32", 4}, {"F64", 8}, {"BF16", 2}, {"F16", 2}, {"I64", 8}, {"I32", 4},
        {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"C64", 8}};
    static const char *const names[] = {"a", "b", "c", "a.b", "h.0.weight", ""};
    unsigned dtype = choose(r, choose(r, 4) ? 2 : 10), ndim = choose(r, 4);
    const char *name = names[(number + (choose(r, 8) == 1)) % 6]; /* now and then one twice */
    int64_t shape[4] = {0}, from[4] = {0}, offsets[2] = {*end, *end + dtypes[dtype].bytes};
    char text[128];
    for (unsigned d = 0; d < ndim; d++) {
        shape[d] = choose(r, 5);
        from[d] = choose(r, 8) == 1 ? shape[d] : 0;
        offsets[1] = *end + (offsets[1] - *end) * shape[d];
    }
    *end = offsets[1];
    snprintf(text, sizeof text,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":", b->bytes > 1 ? "," : "", name,
        dtypes[dtype].name);
    append_text(b, text);
    append_numbers(r, b, shape, ndim);
    append_text(b, ",\"data_offsets\":");
    append_numbers(r, b, offsets, 2);
    append_text(b, "}");
    if (choose(r, 4) == 0)
        return;
    snprintf(text, sizeof text,
        "%s\\\"%s\\\":{\\\"saved_offsets\\\":", places->bytes ? "," : "", name);
    append_text(places, text);
    append_numbers(r, places, from, choose(r, 16) == 1 ? 4 : ndim);
    for (unsigned d = 0; d < ndim; d++) /* of the whole */
        shape[d] += from[d] + (choose(r, 8) == 1);
    append_text(places, ",\\\"shape\\\":");
    append_numbers(r, places, shape, ndim);
    append_text(places, "}");
}

/* Returns the bytes of a file; the caller frees them. */
static inline blob make_weights(recipe *r)
{
    blob file = {0}, header = {0}, places = {0};
    int64_t end = 0;
    append_text(&header, "{");
    for (unsigned i = 0, n = choose(r, MOST_TENSORS); i < n; i++)
        append_tensor(r, i, &header, &places, &end);
    if (places.bytes && choose(r, 4)) {
        append_text(&header, ",\"__metadata__\":{\"format\":\"pt\",\"DCP_SHARDING_INFO\":\"{");
        append(&header, places.data, places.bytes);
        append_text(&header, "}\"}");
    }
    append_text(&header, "}");
    while (header.bytes % 8)
        append_text(&header, " ");
    uint64_t length = (uint64_t)nearly(r, (int64_t)header.bytes);
    append(&file, &length, sizeof length); /* little-endian, as the format is */
    append(&file, header.data, header.bytes);
    int64_t bytes = nearly(r, end);
    for (int64_t i = 0; i < bytes && i < MOST_DATA; i++)
        append(&file, &i, 1);
    free(header.data);
    free(places.data);
    return file;
}

/* Returns the file that an input stands for: itself, or, if it begins with the byte 1, the one
 * that its recipe makes. */
static inline blob weights_of(const uint8_t *data, size_t size)
{
    blob file = {0};
    if (size && data[0] == 1)
        return make_weights(&(recipe){data + 1, data + size});
    append(&file, data, size);
    return file;
}

#endif
