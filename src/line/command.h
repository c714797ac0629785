/* Commands and their options as data.
 *
 * Each command has one table of options. The parser (parse.c), --help and the completion
 * of the shell (help.c) and the tests of the man pages (tests/cli/options.sh) all read that
 * table, so an option is stated once: a row, and the member of a struct that gets its value. */
#ifndef CHOIR_LINE_COMMAND_H
#define CHOIR_LINE_COMMAND_H

#include <stddef.h>
#include <stdio.h>

#include "base/options.h"
#include "line/say.h"

typedef struct choir__line_option choir__line_option;
typedef struct choir__line_command choir__line_command;

/* Returns the name of choice i, or NULL if there are fewer. */
typedef const char *choir__line_choices(size_t i);

/* Says whether the numbers of a job depend on an option, or on a key of its strategy. It
 * follows what a checkpoint records, and what happens if the command line of --resume gives
 * another value (job/document/changes.c). `choir __numbers` lists it; tests/cli/numbers.sh
 * tries each. */
typedef enum choir__line_recorded {
    CHOIR__NOT_RECORDED = 0, /* an option of this run alone, on which no number depends */
    CHOIR__RECORDED_FREE,   /* no number depends on it: another value is taken without a word */
    CHOIR__RECORDED_PLACE,  /* where the work runs: numbers depend on it by the default of
                               --microbatches, which the checkpoint keeps, and else as the
                               strategies say */
    CHOIR__RECORDED_JUDGES, /* no number of a step depends on it, but which step is the best, or
                               the last: another value is taken, with a note */
    CHOIR__RECORDED_TAKES,  /* numbers depend on it: another value is taken, with a note, and
                               they change from here on */
    CHOIR__RECORDED_KIND,   /* TAKES, but the name before the colon is refused: see KEEPS */
    CHOIR__RECORDED_KEEPS,  /* another value is refused: what the checkpoint holds belongs to
                               the recorded one */
    CHOIR__RECORDED_CUT,    /* KEEPS, but --recut allows another value, as TAKES */
} choir__line_recorded;

/* The documents (job.json, study files) that contain an option. */
typedef enum choir__line_where {
    CHOIR__OF_WORK = 0, /* all documents: it belongs to the work */
    CHOIR__OF_PLACE,    /* all documents, but it is the place of one run's results: a run that
                           begins from another run's record does not take it */
    CHOIR__OF_RECORDS, /* all documents, but it says what a run keeps and shows of its work, and
                          not how it works */
    CHOIR__OF_LINE,    /* no document: it belongs to one call of the command */
} choir__line_where;

/* The form of options' values in a document, by its purpose. */
typedef enum choir__line_form {
    CHOIR__BRIEF,    /* for a checkpoint's record and the agreement of ranks: as on the command
                        line, but with all sizes of the model */
    CHOIR__COMPLETE, /* for a job file: with defaults, which may differ in another version */
    CHOIR__COMPARED, /* for comparisons: two values with one meaning have one text */
} choir__line_form;

/* Names of other options, and the end of the sentence that refuses an option together with one
 * of them (excludes), or without any of them (needs). */
typedef struct choir__line_pair {
    const char *options[5], *why;
} choir__line_pair;

struct choir__line_option {
    const char *name; /* without its dashes; NULL: the option has a letter only */
    choir__option_type type;
    size_t at, bytes;     /* place and size of the value's member: see CHOIR__LINE_AT */
    double low, high;     /* range of numbers, both ends included */
    const char *preset;   /* default value; NULL: the member stays as it is */
    const char *argument; /* "N" in the help; NULL: the option is a flag */
    const char *alone; /* value of the option if it is given without one, as --audit, and else
                          as --audit=every=9; NULL: it needs a value */
    const char *help;
    const char *elsewhere;         /* names in other programs, with blanks between, or NULL: who
                                      writes one is asked whether this option was meant; behind
                                      a name, in brackets, the form of the value */
    char letter;                   /* 'n' of -n; 0: none */
    choir__line_choices *choices;  /* values that the help and the completion offer, or NULL */
    bool strict;                   /* only the choices are accepted */
    bool passed_on;                /* the command passes it to the jobs that it starts */
    choir__line_recorded recorded; /* role of the option in checkpoints */
    /* For TAKES: returns whether numbers depend on the option, given the values of all options
     * of the job or strategy. NULL: always. */
    bool (*matters)(const void *values);
    bool of_a_rank; /* ranks of a job, and nodes of choir run, may have different values */
    bool repeated;  /* may be given several times and keeps all values; documents have a list */
    bool rereads;   /* needs data that can be read again, so not standard input */
    bool late;      /* the value is complete only when the data are open */
    bool advised;   /* the advice of choir plan has its own value, not the command line's */
    choir__line_where where;
    /* Returns the value's text in a document of this form, on the heap; returns NULL for the
     * text as given. Member NULL: always as given. */
    char *(*written)(const void *values, choir__line_form form);
    /* Returns the value that a run had before documents recorded the option, or NULL: it had
     * the default, or this build lacks the value. Member NULL: always the default. */
    const char *(*unrecorded)(void);
    const char *filled_by; /* option that determines the value, if it is given */
    /* If the command line gives one of these options, a document's value is not taken. */
    const char *displaced_by[3];
    const char *kind; /* option whose name before the colon the value belongs to */
    /* Returns whether a run's recorded value has no use, for another reason than the command
     * line. NULL: never. */
    bool (*idle)(const void *values);
    /* Returns why the option has no effect beside the others, or NULL. Member NULL: it has. */
    const char *(*no_effect)(const void *values);
    choir__line_pair excludes, needs;
    void (*details)(FILE *out); /* prints more lines of help below the option, or NULL */
    const char *group;          /* heading above the option in the help, or NULL */
};

/* Place and size of a member, for a row of the table. Integers may have 4 or 8 bytes. */
#define CHOIR__LINE_AT(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)

/* The highest value of options that have no limit; sums and products with it do not overflow.
 */
#define CHOIR__LINE_NO_LIMIT ((double)(INT64_MAX / 4096))

struct choir__line_command {
    const char *name;
    const char *summary;       /* one line of `choir --help` */
    const char *usage;         /* the words after `choir NAME`, one line per form */
    const char *about;         /* paragraphs of the help */
    const char *example;       /* one line or more, each a command with two blanks in front */
    const char *example_title; /* title of the example, or NULL */
    int (*run)(const choir__line_command *command, int argc, char **argv);

    const choir__line_option *options;   /* ended by a row without name and letter */
    const choir__line_option *inherited; /* table whose passed_on rows it also takes, or NULL */
    size_t inherited_at;                 /* offset of the inherited rows' values */
    bool inherits_all;                   /* takes all rows of the inherited table */
    const char *operand;                 /* the first operand's name, "CHECKPOINT" */
    const char *operand_elsewhere;       /* options that name it in other programs, or NULL */
    int least, most;                     /* range of the number of operands */
    choir__line_choices *operands;       /* values of the first operand, or NULL */
    bool stops_at_operand;               /* options end where the operands begin */
    bool underscores;                    /* names may be written with underscores, too */
    /* Called after each option that was read, in order; returns an exit status. May be NULL. */
    int (*took)(void *values, const choir__line_option *option, const char *text);
};

/* The words of the command line that are not options. */
typedef struct choir__line_operands {
    char **words;
    int count;
} choir__line_operands;

/* choir__line_parse printed the help: the command has nothing else to do. */
enum { CHOIR__EXIT_DONE = -1 };

/* Fills in values from the presets, then from argv. Returns CHOIR__EXIT_OK, CHOIR__EXIT_DONE,
 * or CHOIR__EXIT_USAGE after naming the mistake. */
int choir__line_parse(const choir__line_command *command, void *values, int argc, char **argv,
    choir__line_operands *operands);

/* Prints the command's --help. */
void choir__line_help(const choir__line_command *command, FILE *out);

/* Prints `choir --help`, the list of commands. commands ends with NULL. */
void choir__line_help_commands(const choir__line_command *const *commands, FILE *out);

/* For `details`: prints a name with its help, then the keys, such as "[:every=50]", if any. */
void choir__line_help_choice(
    FILE *out, int width, const char *name, const char *help, const char *keys);

/* choir __complete WORD...: prints the completions of the last word, one per line. Prints
 * nothing where a file name is expected. */
void choir__line_complete(
    const choir__line_command *const *commands, int argc, char **argv, FILE *out);

/* --- for the readers of tables --- */

enum { CHOIR__LINE_MOST_OPTIONS = 128 };

/* An option that a command takes, and the offset of its value in the command's values. */
typedef struct choir__line_taken {
    const choir__line_option *option;
    size_t at;
} choir__line_taken;

/* Lists the command's own options, those it inherits, and --help; returns how many there are.
 */
int choir__line_options(
    const choir__line_command *command, choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS]);

/* Returns the name of the option that may have been meant by another name, or NULL. */
const char *choir__line_nearest(const choir__line_taken *taken, int count, const char *name);

/* Sets the member at `place` to the value that text gives. Error: argument, with the message
 * "expected ..., got ..." or "unknown value ...: choose one of ...". */
choir_status choir__line_set(const choir__line_option *option, void *place, const char *text);

/* Returns the text that choir__line_set takes for the member at `place`, or NULL if no value
 * was specified (a number outside its range, a flag that is off). The caller frees it. */
char *choir__line_text(const choir__line_option *option, const void *place);
/* Returns the option as a word, --NAME=TEXT, or --NAME for NULL; the caller frees it. */
char *choir__line_word(const choir__line_option *option, const char *text);
/* Returns the shortest text that reads as x; the caller frees it. */
char *choir__line_number_text(double x);

/* Writes the choices as "a, b, c" into text and returns it. */
const char *choir__line_list_choices(choir__line_choices *choices, char *text, size_t bytes);

/* Returns whether name is one of the choices. */
bool choir__line_is_choice(choir__line_choices *choices, const char *name);
/* Returns CHOIR_ERR_ARGUMENT with the message of choir__unknown_name (base/named.h). */
choir_status choir__line_no_choice(
    choir__line_choices *choices, const char *kind, const char *name);

/* The process of the command. */

/* Stores the start time of the process; main calls it first. */
void choir__line_start(void);

/* Counts from now on: the process is a program's, and has done other work before. */
void choir__line_start_again(void);

/* Returns the seconds since this process started, including exec and dynamic linking. */
double choir__line_uptime(void);

#endif
