/* Pictures by gnuplot: a script is written to a temporary file and run, and the first line of
 * its messages is the error. Words are quoted, and bytes that XML cannot hold become question
 * marks. An option that needs gnuplot is refused before the work if it is missing. */
#include "line/gnuplot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/utf8.h"

enum { FONT = CHOIR__GNUPLOT_FONT };

/* Writes a file's name, quoted for gnuplot. */
static void put_quoted(FILE *g, const char *text)
{
    fputc('\'', g);
    for (; *text; text++)
        fprintf(g, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', g);
}

/* A picture as SVG is XML, which has neither bytes that are no UTF-8 nor control characters. */
void choir__gnuplot_words(FILE *g, const char *text)
{
    const char *end = text + strlen(text);
    fputc('\'', g);
    while (text != end) {
        uint32_t code = 0;
        int n = choir__utf8_decode(text, end, &code);
        if (n <= 0 || code < 0x20)
            fputc('?', g);
        else if (code == '\'')
            fputs("''", g);
        else
            fwrite(text, 1, (size_t)n, g);
        text += choir__max(n, 1);
    }
    fputc('\'', g);
}

void choir__gnuplot_begin(
    FILE *g, const char *file, int width, int height, int font, double scale)
{
    if (!strcmp(strrchr(file, '.'), ".svg"))
        fprintf(g,
            "set terminal svg size %d,%d dynamic noenhanced background rgb 'white' font 'DejaVu "
            "Sans,Helvetica,Arial,%d' fontscale %g\n",
            width, height, font, scale);
    else
        fprintf(g, "set terminal pngcairo size %d,%d noenhanced font 'DejaVu Sans,%d'\n", width,
            height, font);
    fprintf(g, "set encoding utf8\nset output ");
    put_quoted(g, file);
    fprintf(g, "\n");
}

void choir__gnuplot_panel(FILE *g, choir__panel p, const char *title)
{
    fprintf(g,
        "reset\nset lmargin at screen %g\nset rmargin at screen %g\n"
        "set bmargin at screen %g\nset tmargin at screen %g\n"
        "set border 3 lc rgb '#444444'\nset tics nomirror\nset grid ytics lc rgb '#DDDDDD' lt 1\n"
        "set style fill solid 1 noborder\nset key off\nset xtics font ',%d'\n"
        "set ytics font ',%d'\nset title offset 0,-0.2 font ',%d' ",
        p.x, p.x + p.width, p.y, p.y + p.height, FONT - 2, FONT - 2, FONT + 1);
    choir__gnuplot_words(g, title);
    fprintf(g, "\n");
}

/* Runs gnuplot and reports the first line of its messages, if any, without control characters.
 */
static choir_status run_gnuplot(const char *script)
{
    char line[256] = "", rest[256], *command = choir__format("gnuplot '%s' 2>&1", script);
    FILE *f = popen(command, "r");
    free(command);
    if (!f)
        return choir__error(CHOIR_ERR_IO, "cannot run gnuplot: %s", strerror(errno));
    while (fgets(rest, sizeof rest, f))
        if (!*line && strcspn(rest, "\n"))
            snprintf(line, sizeof line, "%.*s", (int)strcspn(rest, "\n"), rest);
    int status = pclose(f);
    return status ? choir__error(CHOIR_ERR_IO, "gnuplot failed: %s", line) : CHOIR_OK;
}

choir_status choir__gnuplot(void (*write)(const void *arg, FILE *g), const void *arg)
{
    const char *folder = getenv("TMPDIR");
    char *script = choir__format("%s/choir-plot-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(script);
    FILE *g = fd >= 0 ? fdopen(fd, "w") : NULL;
    choir_status status = CHOIR_OK;
    if (!g)
        status = choir__error(CHOIR_ERR_IO, "cannot write %s: %s", script, strerror(errno));
    if (g) {
        write(arg, g);
        if (fclose(g) != 0)
            status = choir__error(CHOIR_ERR_IO, "cannot write %s: %s", script, strerror(errno));
        if (status == CHOIR_OK)
            status = run_gnuplot(script);
        unlink(script);
    }
    free(script);
    return status;
}

static bool is_installed(const char *program)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at;) {
        int length = (int)strcspn(at, ":");
        char *file = choir__format("%.*s/%s", length, at, program);
        bool there = access(file, X_OK) == 0;
        free(file);
        if (there)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

choir_status choir__gnuplot_check(const char *option, const char *path)
{
    if (!is_installed("gnuplot"))
        return choir__error(CHOIR_ERR_STATE,
            "%s %s: gnuplot draws it, and is not there: install Debian's gnuplot-nox", option,
            path);
    bool was_there = access(path, F_OK) == 0;
    int fd = choir__file_try(path, O_WRONLY | O_CREAT | O_APPEND, CHOIR__FILE_OUTPUT);
    if (fd < 0)
        return choir__error(CHOIR_ERR_IO, "%s %s: cannot write there: %s", option, path,
            choir__file_why(errno));
    close(fd);
    if (!was_there)
        unlink(path);
    return CHOIR_OK;
}
