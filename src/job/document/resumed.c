/* The job of the checkpoint that --resume goes on from, and the notes on what differs. */
#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"
#include "job/job.h"

const char *choir__job_recorded(const choir__job *j, const char *name)
{
    return json_string_value(
        json_object_get(json_object_get(j->saves.resumed, "options"), name));
}

void choir__job_add_note(choir__job *j, char *line)
{
    char *all = choir__format("%s%s\n", j->saves.notes ? j->saves.notes : "", line);
    free(j->saves.notes);
    free(line);
    j->saves.notes = all;
}
