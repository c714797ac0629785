/* Pictures by gnuplot: a script is written to a temporary file and run, and the first line of
 * its messages is the error. An option that needs gnuplot is refused before the work if it is
 * missing. */
#include "line/gnuplot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "line/terminal.h"

enum { FONT = CHOIR__GNUPLOT_FONT };

/* Writes a file's name, quoted for gnuplot. */
static void put_quoted(FILE *g, const char *text)
{
    fputc('\'', g);
    for (; *text; text++)
        fprintf(g, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', g);
}

/* --- texts --- */

/* Returns the bytes of the first letter (0: none is left), and its columns. A picture as SVG is
 * XML, which has neither bytes that are no UTF-8 nor control characters. */
static int letter_at(const char *text, uint32_t *code, int *columns)
{
    if (!*text)
        return 0;
    int n = choir__letter(text, text + strlen(text), code, columns);
    if (*code < ' ' || *code == 0x7f)
        *code = '?';
    return n;
}

int choir__gnuplot_letters(const char *text)
{
    uint32_t code;
    int letters = 0, columns;
    for (int n; (n = letter_at(text, &code, &columns)) > 0; text += n)
        letters += columns;
    return letters;
}

/* Names often differ in their ends alone, so a long one loses its middle. */
void choir__gnuplot_text(FILE *g, const char *text, int most)
{
    uint32_t code;
    int letters = choir__gnuplot_letters(text), at = 0, columns;
    bool cut = letters > most;
    int tail = cut ? most / 3 : 0, head = cut ? most - 1 - tail : letters;
    const char *dots = "…";
    fputc('\'', g);
    for (int n; (n = letter_at(text, &code, &columns)) > 0; text += n, at += columns) {
        if (at + columns > head && at < letters - tail) {
            fputs(dots, g);
            dots = "";
        } else if (code == '?') {
            fputc('?', g);
        } else {
            fprintf(g, code == '\'' ? "''" : "%.*s", n, text);
        }
    }
    fputc('\'', g);
}

/* Pictures have 96 pixels per inch, and most letters of DejaVu Sans are narrower than 0.62 of
 * their font's size. */
double choir__gnuplot_pixels(int letters, int points)
{
    return letters * points * 0.62 * 96 / 72;
}

int choir__gnuplot_room(double pixels, int points, int most)
{
    int letters = (int)(pixels / choir__gnuplot_pixels(1, points));
    return (int)choir__max(choir__min(letters, most), 3);
}

/* gnuplot's own ylabel moves to the left of long numbers, beyond the picture's edge. */
void choir__gnuplot_name_y(FILE *g, double x, const char *name, int most)
{
    fprintf(g, "set label ");
    choir__gnuplot_text(g, name, most);
    fprintf(g, " at screen %g, graph 0.5 center rotate by 90 font ',%d'\n", x, FONT - 1);
}

/* --- pictures --- */

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
    choir__gnuplot_text(g, title, 200);
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
