/* The message about a record that cannot be read. */
#include <stdarg.h>
#include <stdio.h>

#include "data/records.h"

choir_status choir__record_wrong(const choir__record_at *at, const char *format, ...)
{
    char text[300], column[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (at->column && !at->row)
        snprintf(column, sizeof column, ", column %lld", (long long)at->column);
    return at->line ? choir__error(CHOIR_ERR_FORMAT, "%s, %s %lld%s: %s", at->path,
                          at->row ? "row" : "line", (long long)at->line, column, text)
                    : choir__error(CHOIR_ERR_FORMAT, "%s: %s", at->path, text);
}
