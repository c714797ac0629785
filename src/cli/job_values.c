/* The options of a job as JSON: see job_values.h. */
#include "cli/job_values.h"

#include <stdlib.h>

json_t *choir__job_value(const choir__job *j, const choir__cli_option *o)
{
    const void *place = (const char *)j + o->at;
    char *text = choir__cli_text(o, place);
    json_t *value = NULL;
    if (o->type == CHOIR__FLAG)
        value = json_boolean(*(const bool *)place);
    else if (text && (o->type == CHOIR__INT || o->type == CHOIR__BYTES))
        value = json_integer(strtoll(text, NULL, 10));
    else if (text && o->type == CHOIR__FLOAT)
        value = json_real(strtod(text, NULL));
    else if (text)
        value = json_string(text);
    free(text);
    return value;
}

char *choir__job_exact_text(const json_t *root)
{
    char *text = NULL;
    for (size_t digits = 15; digits <= 17; digits++) {
        free(text);
        text = json_dumps(
            root, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits));
        json_t *back = json_loads(text, 0, NULL);
        bool same = json_equal(back, root);
        json_decref(back);
        if (same)
            break;
    }
    return text;
}
