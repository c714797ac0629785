/* The common part of every plug-in's side: base's functions with `...`, built on the host's
 * table. */
#include "base/plugin/plugin.h"

choir_status choir__error(choir_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    choir__verror(status, format, args);
    va_end(args);
    return status;
}
