/* Commands with placeholders: names in braces are checked against the space before the search,
 * and replaced per trial; an argument whose parameter the trial lacks is left out with its
 * option. choir train gets the other parameters as options. */
#include "tune/trials/command.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/secret.h"
#include "tune/space/space.h"
#include "tune/trials/checkpoints.h"

/* --- placeholders --- */

/* Returns the length of the name in {NAME}, if text begins with that; else 0. Other braces, as
 * of JSON or of a shell, are no placeholders. */
static int name_at(const char *text)
{
    int n = 0;
    while (*text == '{' &&
           (isalnum((unsigned char)text[1 + n]) || (text[1 + n] && strchr("_-.", text[1 + n]))))
        n++;
    return n > 0 && text[1 + n] == '}' ? n : 0;
}

/* Finds the next placeholder in text: stores its beginning, and the length of its name. {{NAME}
 * is not a placeholder. */
static bool next_placeholder(const char *text, const char **begin, int *length)
{
    for (; *text; text++) {
        if (text[0] == '{' && name_at(text + 1))
            text++;
        else if ((*length = name_at(text)) > 0) {
            *begin = text;
            return true;
        }
    }
    return false;
}

/* Writes text up to `end`, with {{NAME} as {NAME}. */
static void write_plain(FILE *out, const char *text, const char *end)
{
    for (; text < end; text++)
        if (text[0] != '{' || !name_at(text + 1))
            fputc(*text, out);
        else
            fputc(*text++, out);
}

static bool is_word(const char *begin, int length, const char *word)
{
    return (int)strlen(word) == length && !strncmp(begin + 1, word, (size_t)length);
}

/* Returns the parameter that a placeholder names, or NULL. */
static const char *parameter_of(const choir_space *space, const char *begin, int length)
{
    for (int i = 0; i < choir_space_count(space); i++)
        if (is_word(begin, length, choir_space_name(space, i)))
            return choir_space_name(space, i);
    return NULL;
}

/* Returns whether a word has the placeholder {name}. */
static bool names(const char *word, const char *name)
{
    const char *at;
    int length;
    for (; next_placeholder(word, &at, &length); word = at + length + 2)
        if (is_word(at, length, name))
            return true;
    return false;
}

static bool mentions(char *const *command, const char *name)
{
    for (; *command; command++)
        if (names(*command, name))
            return true;
    return false;
}

bool choir__command_is_train(char *const *command)
{
    const char *slash = strrchr(command[0], '/');
    return !strcmp(slash ? slash + 1 : command[0], "choir") && command[1] &&
           !strcmp(command[1], "train");
}

choir_status choir__command_check_names(char *const *command, const choir_space *space)
{
    const char *at;
    int length;
    for (int i = 0; i < space->count; i++)
        if (space->param[i].only_if && names(command[0], space->param[i].name))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "'%s': expected a program that every trial has, and %s is conditional",
                command[0], space->param[i].name);
    for (char *const *word = command; *word; word++)
        for (const char *text = *word; next_placeholder(text, &at, &length);
             text = at + length + 2)
            if (!parameter_of(space, at, length) && !is_word(at, length, "trial") &&
                !is_word(at, length, "dir"))
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "'%s': the space has no parameter '%.*s' ({{%.*s} stands for the text itself)",
                    *word, length, at + 1, length, at + 1);
    return CHOIR_OK;
}

bool choir__command_appends(char *const *command, const char *name)
{
    return choir__command_is_train(command) && !mentions(command, name);
}

choir_status choir__command_check(char *const *command, const choir_space *space)
{
    choir_status status = choir__command_check_names(command, space);
    if (status != CHOIR_OK)
        return status;
    for (int i = 0; i < choir_space_count(space) && !choir__command_is_train(command); i++)
        if (!mentions(command, choir_space_name(space, i)))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "parameter %s: the command has no {%s} to put it in",
                choir_space_name(space, i), choir_space_name(space, i));
    return CHOIR_OK;
}

bool choir__command_uses_dir(char *const *command, const choir_space *space)
{
    return mentions(command, "dir") && !parameter_of(space, "{dir}", (int)strlen("dir"));
}

/* --- a trial's command line --- */

/* Returns an argument with its placeholders replaced, or NULL if the trial lacks one of them.
 */
static char *replace(
    const char *word, const choir_space *space, const choir_trial *trial, const char *dir)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    const char *at;
    int length;
    bool has_all = true;
    while (has_all && next_placeholder(word, &at, &length)) {
        const char *name = parameter_of(space, at, length), *value = dir ? dir : ".";
        write_plain(out, word, at);
        if (is_word(at, length, "trial") && !name)
            fprintf(out, "%lld", (long long)choir_trial_number(trial));
        else if (!name || (value = choir_trial_text(trial, name)))
            fputs(value, out);
        else
            has_all = false;
        word = at + length + 2;
    }
    write_plain(out, word, word + strlen(word));
    fclose(out);
    if (has_all)
        return text;
    free(text);
    return NULL;
}

/* Returns whether a word is an option whose value is the next word: "-m", "--momentum", but not
 * "-", "--" or "-1". */
static bool takes_next(const char *word)
{
    size_t dashes = strspn(word, "-");
    return dashes > 0 && isalpha((unsigned char)word[dashes]) && !strpbrk(word, "={");
}

/* Returns whether a command has an option, as "--save" or "--save=DIR". */
static bool has_word(char *const *command, const char *word)
{
    size_t length = strlen(word);
    for (; *command; command++)
        if (!strncmp(*command, word, length) && strchr("=", (*command)[length]))
            return true;
    return false;
}

choir_status choir__command_check_pauses(
    char *const *command, const char *scheduler, const char *metric, const char *unit)
{
    if (!choir__command_is_train(command))
        return CHOIR_OK;
    const char *each = !strcmp(unit, "epoch") ? "--eval-epochs" : "--eval-every";
    bool validates = has_word(command, each) || has_word(command, "--eval-epochs");
    if (!strncmp(metric, "eval_", 5) && !validates)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--scheduler %s: expected a command with %s N, since %s decides on the way",
            scheduler, each, metric);
    if (has_word(command, "--save") || has_word(command, "--resume"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--scheduler %s: expected a command without --save and --resume, which each trial "
            "gets for its own folder",
            scheduler);
    return CHOIR_OK;
}

enum { MORE = 5 }; /* words that choir__command_of_trial adds */

char **choir__command_of(
    char *const *command, const choir_space *space, const choir_trial *trial, const char *dir)
{
    size_t room = 2 * (size_t)choir_space_count(space) + MORE + 1, n = 0;
    for (char *const *word = command; *word; word++)
        room++;
    char **line = choir__calloc(room, sizeof(char *));
    for (size_t i = 0; command[i]; i++) {
        line[n] = replace(command[i], space, trial, dir);
        if (line[n])
            n++;
        else if (i > 0 && n > 0 && takes_next(command[i - 1]))
            free(line[--n]), line[n] = NULL;
    }
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *value = choir_trial_text(trial, name);
        if (!value || !choir__command_appends(command, name))
            continue;
        line[n++] = choir__format("--%s", name);
        line[n++] = choir__strdup(value);
    }
    return line;
}

char **choir__command_of_trial(char *const *command, const choir_space *space,
    const choir_trial *trial, const char *dir, const char *checkpoint)
{
    char **line = choir__command_of(command, space, trial, dir);
    size_t n = 0;
    if (!choir__command_is_train(command))
        return line;
    while (line[n])
        n++;
    if (!has_word(command, "--json"))
        line[n++] = choir__strdup("--json");
    if (checkpoint) {
        line[n++] = choir__strdup("--save");
        line[n++] = choir__strdup(checkpoint);
    }
    if (checkpoint && choir__checkpoint_is_there(checkpoint)) {
        line[n++] = choir__strdup("--resume");
        line[n++] = choir__strdup(checkpoint);
    }
    return line;
}

void choir__command_free(char **line)
{
    for (char **word = line; word && *word; word++)
        free(*word);
    free(line);
}

char *choir__command_text(char *const *line)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (char *const *word = line; *word; word++) {
        const char *c = *word;
        bool simple = *c && !c[strspn(c, plain)];
        fputs(word == line ? "" : " ", out);
        if (!simple)
            fputc('\'', out);
        for (; *c; c++)
            fputs(*c == '\'' ? "'\\''" : (char[]){*c, 0}, out);
        if (!simple)
            fputc('\'', out);
    }
    fclose(out);
    return choir__hide_passwords(text);
}
