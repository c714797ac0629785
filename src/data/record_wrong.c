/* The message about a record that cannot be read, with its file, line and column, so that a
 * user can find the record in an editor. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/records.h"

char *choir__data_record_place(const choir__data_record_at *at)
{
    return at->line ? choir__format("%s, %s %lld", at->path, at->row ? "row" : "line",
                          (long long)at->line)
                    : choir__strdup(at->path);
}

choir_status choir__data_record_wrong(const choir__data_record_at *at, const char *format, ...)
{
    char text[300], column[32] = "", *place = choir__data_record_place(at);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (at->line && at->column && !at->row)
        snprintf(column, sizeof column, ", column %lld", (long long)at->column);
    choir_status status = choir__error(CHOIR_ERR_FORMAT, "%s%s: %s", place, column, text);
    free(place);
    return status;
}
