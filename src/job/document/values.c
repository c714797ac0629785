/* An option's value as JSON of its own type, by the table of options: the value as it was
 * given, or the full one with all options of an optimizer or a schedule. Reals are written with
 * the digits that read back as the same number. */
#include "job/document/values.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "job/model/amp.h"
#include "job/model/optimizers.h"

json_t *choir__job_value(const choir__job *j, const choir__cli_option *o)
{
    const void *place = (const char *)j + o->at;
    char *given = choir__cli_text(o, place), *text = choir__job_located(o, given);
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
    free(given);
    return value;
}

json_t *choir__job_full_value(const choir__job *j, const choir__cli_option *o)
{
    bool optimizer = !strcmp(o->name, "optimizer"), decay = !strcmp(o->name, "weight-decay");
    float weight_decay = 0;
    char *text = optimizer || decay             ? choir__cli_optimizer_text(j, &weight_decay)
                 : !strcmp(o->name, "schedule") ? choir__job_schedule_text(j)
                 : !strcmp(o->name, "amp") ? choir__strdup(choir__amp_find(j->optim.amp)->name)
                                           : NULL;
    char number[CHOIR__NUMBER_TEXT];
    json_t *value = NULL;
    if (decay && text) {
        choir__single_text(weight_decay, number);
        value = json_real(strtod(number, NULL));
    } else if (text)
        value = json_string(text);
    free(text);
    return value ? value : choir__job_value(j, o);
}

json_t *choir__job_device(const choir__job *j)
{
    const char *name = j->placement.device_names[0];
    return json_stringn(name, strcspn(name, ":"));
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
