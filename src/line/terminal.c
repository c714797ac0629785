/* The size of a terminal, and the columns that letters take on it. The C library's wcwidth()
 * depends on the locale, which the command leaves at "C"; the ranges here are the large ones of
 * Unicode's East Asian Width (UAX #11) that are wide. Single wide symbols, and marks that have
 * no width, count as one column. */
#include "line/terminal.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/base.h"
#include "base/utf8.h"

bool choir__terminal_size(int fd, int *columns, int *rows)
{
    struct winsize size = {0};
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < 2)
        return false;
    if (columns)
        *columns = size.ws_col;
    if (rows)
        *rows = size.ws_row > 1 ? size.ws_row : 24;
    return true;
}

static bool is_wide(uint32_t code)
{
    static const uint32_t wide[][2] = {{0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3041, 0xA4CF},
        {0xA960, 0xA97C}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},
        {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x16FE0, 0x18AFF}, {0x1B000, 0x1B2FF},
        {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};
    for (size_t i = 0; i < CHOIR_COUNT(wide); i++)
        if (code >= wide[i][0] && code <= wide[i][1])
            return true;
    return false;
}

int choir__letter(const char *text, const char *end, uint32_t *code, int *columns)
{
    int n = choir__utf8_decode(text, end, code);
    if (n <= 0)
        *code = 0;
    *columns = n > 0 && is_wide(*code) ? 2 : 1;
    return n > 0 ? n : 1;
}

int choir__columns(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    int used = 0, columns;
    uint32_t code;
    for (; text < end; used += columns)
        text += choir__letter(text, end, &code, &columns);
    return used;
}

/* --- folding ---
 *
 * Folds lines for a narrow terminal: words move to the next line, behind an indent, where they
 * would cross its edge. */

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
