/* JSON of others within bounds: depth is counted before the parser, which calls itself, sees
 * the text; long strings of events are cut between two characters, and an event that is still
 * too long keeps its kind, step and time alone. */
#include "cli/watch/run.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "record/events.h"

enum { DEEPEST = 64, MOST_TEXT = 2000, MOST_KIND = 64, MOST_EVENT = 8 * 1024 };

/* Brackets in strings do not count. */
static bool is_too_deep(const char *text, size_t bytes)
{
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes && depth <= DEEPEST; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted)
            i += text[i] == '\\'; /* skips the escaped character */
        else if (text[i] == '[' || text[i] == '{')
            depth++;
        else if (text[i] == ']' || text[i] == '}')
            depth--;
    }
    return depth > DEEPEST;
}

json_t *choir__watch_json(const char *text, size_t bytes)
{
    return is_too_deep(text, bytes) ? NULL : json_loadb(text, bytes, 0, NULL);
}

json_t *choir__watch_json_file(const char *path, size_t most)
{
    struct stat s;
    int fd = choir__file_try(path, O_RDONLY, CHOIR__FILE_REGULAR);
    bool fits = fd >= 0 && fstat(fd, &s) == 0 && (uint64_t)s.st_size <= most;
    char *text = fits ? malloc(most + 1) : NULL;
    ssize_t n = text ? pread(fd, text, most + 1, 0) : -1; /* the file may have grown */
    json_t *value = n >= 0 && (size_t)n <= most ? choir__watch_json(text, (size_t)n) : NULL;
    free(text);
    if (fd >= 0)
        close(fd);
    return value;
}

/* --- events --- */

/* Returns at most `most` bytes of a string, cut between two characters. */
static json_t *cut(const json_t *string, size_t most)
{
    size_t bytes = json_string_length(string);
    const char *text = json_string_value(string);
    if (bytes > most)
        for (bytes = most; bytes && ((unsigned char)text[bytes] & 0xc0) == 0x80; bytes--)
            ;
    return json_stringn(text, bytes);
}

static json_t *without_fields(const json_t *event)
{
    const char *kind = CHOIR__KEY(line, event), *step = CHOIR__KEY(line, step),
               *time = CHOIR__KEY(line, time);
    json_t *left = json_pack("{s:o, s:O}", kind, cut(json_object_get(event, kind), MOST_KIND),
        step, json_object_get(event, step));
    if (json_is_number(json_object_get(event, time)))
        json_object_set(left, time, json_object_get(event, time));
    json_object_set_new(left, "too_long", json_true());
    return left;
}

char *choir__watch_json_event(json_t *event)
{
    const size_t form = JSON_COMPACT | JSON_PRESERVE_ORDER;
    const char *name;
    json_t *value;
    json_object_foreach(event, name, value) if (json_string_length(value) > MOST_TEXT)
        json_object_set_new(event, name, cut(value, MOST_TEXT));
    char *text = json_dumps(event, form);
    if (text && strlen(text) <= MOST_EVENT)
        return text;
    free(text);
    json_t *left = without_fields(event);
    text = json_dumps(left, form);
    json_decref(left);
    return text;
}
