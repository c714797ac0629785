/* Base64, for bytes in JSON. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *choir__base64_decode(const char *text, size_t length, size_t *bytes)
{
    while (length && text[length - 1] == '=')
        length--;
    char *out = choir__alloc(length / 4 * 3 + 4);
    uint32_t bits = 0;
    int have = 0;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        const char *digit = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (!digit) {
            free(out);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)(digit - alphabet);
        if ((have += 6) >= 8)
            out[n++] = (char)(bits >> (have -= 8));
    }
    *bytes = n;
    return out;
}

char *choir__base64_encode(const char *data, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)data;
    char *out = choir__alloc(bytes / 3 * 4 + 8), *to = out;
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t rest = (uint32_t)(bytes - i), v = (uint32_t)s[i] << 16;
        v |= rest > 1 ? (uint32_t)s[i + 1] << 8 : 0;
        v |= rest > 2 ? s[i + 2] : 0;
        *to++ = alphabet[v >> 18];
        *to++ = alphabet[v >> 12 & 63];
        *to++ = rest > 1 ? alphabet[v >> 6 & 63] : '=';
        *to++ = rest > 2 ? alphabet[v & 63] : '=';
    }
    *to = '\0';
    return out;
}
