/* Records of an array, as Alpaca's and ShareGPT's files are published:
 *
 *     [ {"instruction": ..., "output": ...}, {...},
 *       {...} ]
 *
 * An object is found by its braces, and parsed as a line of JSON is. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "data/records.h"

static const char blanks[] = " \t\r\n";

bool choir__is_array_file(const char *path)
{
    char text[4097];
    int fd;
    const size_t n = strlen(path);
    if (n < 6 || strcmp(path + n - 5, ".json") != 0)
        return false;
    if (choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &fd) != CHOIR_OK) {
        (void)choir_error_message(); /* the file's reader will say so */
        return false;
    }
    const ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes < 0 ? 0 : bytes] = '\0';
    const char *at = text + (strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3);
    at += strspn(at, blanks);
    if (*at != '[')
        return false;
    at += 1 + strspn(at + 1, blanks);
    return *at == '{';
}

/* Returns the place behind the object's last brace, or NULL: it is not in [at, end). */
static char *object_end(char *at, const char *end)
{
    int64_t depth = 0;
    bool inside = false; /* within a string */
    for (; at < end; at++) {
        if (inside && *at == '\\')
            at++;
        else if (*at == '"')
            inside = !inside;
        else if (!inside && (*at == '{' || *at == '['))
            depth++;
        else if (!inside && (*at == '}' || *at == ']') && --depth <= 0)
            return at + 1;
    }
    return NULL;
}

/* Moves to the next character that is not blank; *c 0: the file has ended. */
static choir_status skip_blanks(choir__data_records *r, char *c)
{
    for (;;) {
        while (r->next < r->end && r->data[r->next] && strchr(blanks, r->data[r->next]))
            r->behind += r->data[r->next++] == '\n';
        if (r->next < r->end || r->ended) {
            *c = r->next < r->end ? r->data[r->next] : '\0';
            r->at.line = r->behind + 1;
            return CHOIR_OK;
        }
        choir_status status = choir__data_records_fill(r);
        if (status != CHOIR_OK)
            return status;
    }
}

/* Reads what stands between two objects; *more: false behind the last one. */
static choir_status find_object(choir__data_records *r, bool *more)
{
    const char before = r->places++ ? ',' : '[';
    char c;
    choir_status status = skip_blanks(r, &c);
    *more = false;
    if (status != CHOIR_OK)
        return status;
    if (before == ',' && c == ']') {
        r->next++;
        status = skip_blanks(r, &c);
        return status == CHOIR_OK && c
                   ? choir__data_record_wrong(&r->at, "expected nothing behind the array")
                   : status;
    }
    if (c != before)
        return choir__data_record_wrong(&r->at,
            before == '[' ? "expected an array, [...]" : "expected , or ] in the array");
    r->next++;
    status = skip_blanks(r, &c);
    if (status == CHOIR_OK && c != '{')
        return choir__data_record_wrong(&r->at, "expected an object, {...}");
    *more = status == CHOIR_OK;
    return status;
}

choir_status choir__array_find(choir__data_records *r, char **from, char **end)
{
    bool more;
    choir_status status = find_object(r, &more);
    char *stop = NULL;
    *end = NULL;
    while (status == CHOIR_OK && more &&
           !(stop = object_end(r->data + r->next, r->data + r->end))) {
        if (r->ended)
            return choir__data_record_wrong(&r->at, "the file ends within an object");
        status = choir__data_records_fill(r);
    }
    if (!stop)
        return status;
    *from = r->data + r->next;
    *end = stop;
    r->at.line = r->behind + 1;
    r->behind += choir__lines_in(*from, stop);
    r->next = (size_t)(stop - r->data);
    return status;
}

choir_status choir__array_parse(choir__data_records *r, char *from, char *end)
{
    const char *where, *line = from;
    const char *wrong;
    char next = *end; /* parsing may end the object with '\0' */
    wrong = choir__json_parse(&r->nodes, from, end, &where);
    *end = next;
    if (!wrong)
        return CHOIR_OK;
    r->at.line += choir__lines_in(from, where);
    for (const char *at = from; at < where; at++)
        line = *at == '\n' ? at + 1 : line;
    r->at.column = where - line + 1;
    return choir__data_record_wrong(&r->at, "%s", wrong);
}
