/* Folds lines for a narrow terminal: words move to the next line, behind an indent, where they
 * would cross its edge. */
#include "line/fold.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "line/terminal.h"

int choir__fold_columns(int fd)
{
    int columns;
    /* a full line wraps on some terminals */
    return choir__terminal_size(fd, &columns, NULL) ? columns - 1 : INT_MAX;
}

/* Returns the bytes of the first word with the blanks before it and a comma behind it. */
static int word_at(const char *line, int length, int *blanks)
{
    int at = 0;
    while (at < length && line[at] == ' ')
        at++;
    *blanks = at;
    while (at < length && line[at] != ' ' && line[at] != ',')
        at++;
    return at + (at < length && line[at] == ',');
}

static void fold_line(FILE *out, const char *line, int length, int columns)
{
    int used = 0, blanks, indent = 0;
    for (int at = 0, bytes; at < length; at += bytes) {
        bytes = word_at(line + at, length - at, &blanks);
        int width = choir__columns(line + at, (size_t)bytes);
        if (!at)
            indent = (int)choir__min(blanks + 2, columns / 2);
        if (at && used + width > columns) {
            fprintf(out, "\n%*s", indent, "");
            fwrite(line + at + blanks, 1, (size_t)(bytes - blanks), out);
            used = indent + width - blanks;
        } else {
            fwrite(line + at, 1, (size_t)bytes, out);
            used += width;
        }
    }
}

char *choir__fold(const char *text, size_t bytes, int columns)
{
    choir__paragraph folded;
    const char *end = text + bytes;
    choir__paragraph_begin(&folded);
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        int length = (int)((line_end ? line_end : end) - text);
        if (length > columns)
            fold_line(folded.out, text, length, columns);
        else
            fwrite(text, 1, (size_t)length, folded.out);
        if (line_end)
            fputc('\n', folded.out);
        text += length + (line_end != NULL);
    }
    fclose(folded.out);
    return folded.text;
}

void choir__paragraph_begin(choir__paragraph *p)
{
    *p = (choir__paragraph){0};
    p->out = open_memstream(&p->text, &p->bytes);
    if (p->out)
        return;
    fprintf(stderr, "choir: out of host memory\n");
    exit(1); /* as the library does */
}

void choir__paragraph_end(choir__paragraph *p, FILE *to)
{
    fclose(p->out);
    char *folded = choir__fold(p->text, p->bytes, choir__fold_columns(fileno(to)));
    fputs(folded, to);
    fflush(to);
    free(folded);
    free(p->text);
}
