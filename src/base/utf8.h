/* UTF-8: characters and their bytes. */
#ifndef CHOIR_BASE_UTF8_H
#define CHOIR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHOIR__CODE_POINTS = 0x110000, CHOIR__LONGEST_UTF8 = 4 };

/* Returns the length of the character at text < end; 0: it is not UTF-8. Which bytes may come
 * second is in table 3-7 of the Unicode Standard. */
static inline int choir__utf8_length(const char *text, const char *end)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    if (end - text < 2 || s[0] < 0xC2)
        return 0;
    if (s[0] < 0xE0)
        return (s[1] & 0xC0) == 0x80 ? 2 : 0;
    if (end - text < 3)
        return 0;
    bool second = (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80;
    if (s[0] < 0xF0) /* neither overlong nor half of a surrogate pair */
        return second && (s[0] != 0xE0 || s[1] >= 0xA0) && (s[0] != 0xED || s[1] < 0xA0) ? 3
                                                                                         : 0;
    if (end - text < 4 || s[0] > 0xF4)
        return 0;
    second = second && (s[3] & 0xC0) == 0x80;
    return second && (s[0] != 0xF0 || s[1] >= 0x90) && (s[0] != 0xF4 || s[1] < 0x90) ? 4 : 0;
}

/* Returns the length of the character at text < end, and its code point; 0 if it is not
 * UTF-8. */
int choir__utf8_decode(const char *text, const char *end, uint32_t *code);

/* Writes the character and a '\0'; returns its length without the '\0'. */
int choir__utf8_encode(uint32_t code, char out[CHOIR__LONGEST_UTF8 + 1]);

bool choir__is_utf8(const char *text, size_t bytes);

/* Writes "'x' (U+0078)", or only the number of a control character. */
const char *choir__utf8_describe(uint32_t code, char out[32]);

/* Returns whether choir__clean leaves a character of n bytes as it is; line ends and tabs are.
 */
bool choir__utf8_is_clean(const char *character, int n);

#endif
