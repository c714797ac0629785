/* Whether a GGUF file describes the model that it was made of. */
#ifndef CHOIR_JOB_EXPORT_GGUF_CHECK_H
#define CHOIR_JOB_EXPORT_GGUF_CHECK_H

#include <stdbool.h>

#include <choir/status.h>

/* Reads the file back. from: the model's folder, for the message; model: its full text;
 * window_lost: the file has no window, and a context that does not exceed the model's. Error:
 * unsupported, with the options that the file lacks or has otherwise; io, format. */
CHOIR_CHECKED choir_status choir__gguf_check_model(
    const char *path, const char *from, const char *model, bool window_lost);

#endif
