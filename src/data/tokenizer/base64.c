/* Base64, for bytes in JSON. */
#include <sodium.h>
#include <stdlib.h>

#include "data/tokenizer/hf.h"

enum { FORM = sodium_base64_VARIANT_ORIGINAL };

char *choir__base64_decode(const char *text, size_t length, size_t *bytes)
{
    while (length && text[length - 1] == '=')
        length--;
    char *out = choir__alloc(length + 1);
    if (sodium_base642bin((unsigned char *)out, length + 1, text, length, NULL, bytes, NULL,
            sodium_base64_VARIANT_ORIGINAL_NO_PADDING) == 0)
        return out;
    free(out);
    return NULL;
}

char *choir__base64_encode(const char *data, size_t bytes)
{
    size_t room = sodium_base64_encoded_len(bytes, FORM);
    char *out = choir__alloc(room);
    return sodium_bin2base64(out, room, (const unsigned char *)data, bytes, FORM);
}
