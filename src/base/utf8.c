/* UTF-8: which bytes are a character is in the header; texts are checked by eight bytes of
 * ASCII at a time, which most text consists of. */
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

int choir__utf8_decode(const char *text, const char *end, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = choir__utf8_length(text, end);
    if (!n)
        return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3F);
    *code = c;
    return n;
}

int choir__utf8_encode(uint32_t c, char out[CHOIR__LONGEST_UTF8 + 1])
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    out[n] = '\0';
    return n;
}

static const uint64_t TOPS = 0x8080808080808080u;

bool choir__is_utf8(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while (text < end) {
        uint64_t eight, others = 0; /* characters of ASCII, mostly */
        while (end - text >= 8 && (memcpy(&eight, text, 8), !(others = eight & TOPS)))
            text += 8;
        text += others ? __builtin_ctzll(others) / 8 : 0;
        int n = 1;
        for (bool ascii = false; text < end && !ascii && n; text += n) {
            ascii = !(*text & 0x80);
            n = choir__utf8_length(text, end);
        }
        if (!n)
            return false;
    }
    return true;
}

const char *choir__utf8_describe(uint32_t code, char out[32])
{
    char text[CHOIR__LONGEST_UTF8 + 1];
    choir__utf8_encode(code, text);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0))
        snprintf(out, 32, "U+%04X", code);
    else
        snprintf(out, 32, "'%s' (U+%04X)", text, code);
    return out;
}

bool choir__utf8_is_clean(const char *character, int n)
{
    char copy[CHOIR__LONGEST_UTF8 + 1] = "";
    memcpy(copy, character, (size_t)n);
    return !memcmp(choir__clean(copy), character, (size_t)n);
}
