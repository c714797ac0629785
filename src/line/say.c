/* Messages of the command: "choir COMMAND: sentence" on standard error, folded for narrow
 * terminals, without passwords and control characters. Wrong usage names the help. */
#include "line/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/secret.h"
#include "line/terminal.h"

enum { LONGEST = 1200 }; /* bytes of a sentence: some quote what may be as long as a file */

static const char *running = "";

void choir__line_running(const char *command)
{
    running = command;
}

/* Writes "choir COMMAND: ", or "choir: " without a command. */
static void address(FILE *out, const char *command)
{
    fprintf(out, "choir%s%s: ", *command ? " " : "", command);
}

int choir__line_fail(void)
{
    choir__paragraph p;
    choir__paragraph_begin(&p);
    address(p.out, running);
    fprintf(p.out, "%s\n", choir_error_message());
    choir__paragraph_end(&p, stderr);
    return CHOIR__EXIT_FAILED;
}

void choir__line_tell(const char *command, const char *format, ...)
{
    choir__paragraph p;
    va_list args;
    choir__paragraph_begin(&p);
    address(p.out, command);
    va_start(args, format);
    vfprintf(p.out, format, args);
    va_end(args);
    fprintf(p.out, "\n");
    choir__paragraph_end(&p, stderr);
}

int choir__line_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sentence = NULL;
    if (vasprintf(&sentence, format, args) < 0)
        sentence = choir__strdup(format);
    va_end(args);
    choir__clean(sentence); /* the sentence may quote the job of a checkpoint, or a job file */
    choir__hide_passwords(sentence);
    choir__shorten(sentence, LONGEST);
    choir__line_tell(command, "%s; see 'choir %s --help'", sentence, command);
    free(sentence);
    return CHOIR__EXIT_USAGE;
}

int choir__line_refuse(const char *command, bool usage)
{
    return usage ? choir__line_usage(command, "%s", choir_error_message()) : choir__line_fail();
}

void choir__line_notes(const char *command, const char *notes)
{
    char *clean = choir__clean(choir__strdup(notes)); /* some quote a published file */
    choir__hide_passwords(clean);
    choir__paragraph p;
    choir__paragraph_begin(&p);
    for (const char *at = clean; *at;) {
        int length = (int)strcspn(at, "\n");
        address(p.out, *command ? command : running);
        fprintf(p.out, "note: %.*s\n", length, at);
        at += length + (at[length] == '\n');
    }
    choir__paragraph_end(&p, stderr);
    free(clean);
}

choir_status choir__line_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_IO, "cannot write to standard output: %s",
        errno ? strerror(errno) : "some of the output was lost");
}
