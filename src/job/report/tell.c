/* Sentences of a job for people, beside its events: on standard error, as messages of its
 * command, and for a program's own recorder. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/secret.h"
#include "job/report/own.h"
#include "line/say.h"

void choir__job_tell(const choir__job *j, const char *format, ...)
{
    char *sentence = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&sentence, format, args) < 0)
        sentence = choir__strdup(format);
    va_end(args);
    if (!j->records.silent)
        choir__line_tell(j->command, "%s", sentence);
    choir__own_note(&j->records, sentence + (strncmp(sentence, "note: ", 6) ? 0 : 6));
    free(sentence);
}

static void tell_notes(const choir__job *j, const char *notes, bool shown)
{
    if (shown)
        choir__line_notes(j->command, notes);
    char *all = choir__hide_passwords(choir__clean(choir__strdup(notes))), *rest = all, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line)
            choir__own_note(&j->records, line);
    free(all);
}

void choir__job_tell_notes(const choir__job *j, const char *notes)
{
    if (notes)
        tell_notes(j, notes, !j->records.silent);
}

void choir__job_tell_read(const choir__job *j, const char *notes)
{
    if (notes)
        tell_notes(j, notes, !j->records.silent && !j->records.quiet);
}
