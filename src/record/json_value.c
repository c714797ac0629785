/* jansson refuses strings that are not UTF-8, and its texts of numbers are longer than those
 * that read back exactly. */
#include "record/json_value.h"

#include <stdlib.h>

#include "base/base.h"
#include "base/number.h"
#include "base/text.h"

json_t *choir__json_string(const char *text)
{
    char *clean = choir__text_mended(text);
    json_t *made = json_string(clean);
    free(clean);
    return made;
}

char *choir__json_plain(const json_t *value)
{
    char number[CHOIR__NUMBER_TEXT];
    if (json_is_string(value))
        return choir__strdup(json_string_value(value));
    if (!json_is_real(value))
        return json_dumps(value, JSON_ENCODE_ANY);
    choir__number_text(json_real_value(value), number);
    return choir__strdup(number);
}
