/* An evaluation as a row of numbers, "eval/NAME", for recorders that know rows alone; other
 * events have none. */
#include <stdio.h>
#include <string.h>

#include "record/recorder.h"

void choir__event_as_row(const choir__record_event *e, choir__event_row *made)
{
    const char *name;
    json_t *value;
    int count = 0;
    bool eval = !strcmp(e->kind, "eval");
    json_object_foreach((json_t *)e->fields, name, value)
    {
        if (!eval || !json_is_number(value) || count == CHOIR__EVENT_NUMBERS)
            continue;
        snprintf(made->names[count], sizeof made->names[count], "%s/%s", e->kind, name);
        made->numbers[count] = (choir__number){made->names[count], json_number_value(value)};
        count++;
    }
    made->row = (choir__row){e->step, e->time, count, made->numbers};
}
