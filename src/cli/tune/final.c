/* choir tune --test: a command that runs with the best trial when the search has ended, such as
 * an evaluation on data that no trial has seen. */
#include <ctype.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/base.h"
#include "line/say.h"
#include "cli/tune/search.h"
#include "tune/trials/command.h"

extern char **environ;

/* Copies the next word to `word`: up to a blank outside of quotes, without the quotes. Returns
 * where it ends, or NULL if a quote is not closed. */
static const char *next_word(const char *text, char *word)
{
    char quote = 0;
    for (; *text && (quote || !isspace((unsigned char)*text)); text++) {
        if (quote ? *text == quote : *text == '\'' || *text == '"')
            quote = quote ? 0 : *text;
        else
            *word++ = *text;
    }
    *word = '\0';
    return quote ? NULL : text;
}

choir_status choir__final_words(const char *text, char ***words)
{
    size_t count = 0;
    char *word = choir__alloc(strlen(text) + 1);
    const char *at = text;
    *words = choir__calloc(strlen(text) / 2 + 2, sizeof(char *));
    while (at && *(at += strspn(at, " \t\n"))) {
        at = next_word(at, word);
        (*words)[count++] = choir__strdup(word);
    }
    free(word);
    if (!at || !count)
        return choir__error(CHOIR_ERR_ARGUMENT, "--test: expected %s, got '%s'",
            at ? "a command" : "quotes that are closed", text);
    return CHOIR_OK;
}

int choir__final_run(const choir__search *s, char *const *words, const choir_trial *best)
{
    char *dir = s->job.dir
                    ? choir__format("%s/%lld", s->job.dir, (long long)choir_trial_number(best))
                    : NULL;
    char **line = choir__command_of(words, s->space, best, dir, NULL);
    pid_t pid;
    fflush(stdout); /* before the command's own output */
    int ended = -1, error = posix_spawnp(&pid, line[0], NULL, NULL, line, environ);
    while (!error && waitpid(pid, &ended, 0) < 0 && errno == EINTR)
        ;
    if (error)
        fprintf(stderr, "choir tune: --test: cannot run %s: %s\n", line[0], choir__why(error));
    else if (ended)
        fprintf(stderr, "choir tune: --test: %s failed\n", line[0]);
    free(dir);
    choir__command_free(line);
    return error || ended ? CHOIR__EXIT_FAILED : CHOIR__EXIT_OK;
}
