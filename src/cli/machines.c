/* Other machines' processes: a command per machine, ssh by default, whose output is read
 * without blocking and cut into rounds (snapshot_stream.c). A machine that is silent for
 * several rounds, or whose command ends, is in trouble, with the last line of its messages as
 * the reason. */
#include "cli/machines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/shell.h"
#include "cli/snapshot_stream.h"

/* A machine is in trouble after this silence, which lasts several rounds. */
static const double silence_s = 5;
static const size_t most_at_once = (size_t)64 << 20; /* bytes read from a machine in one look */
enum { MOST_MACHINES = 128 };

typedef struct machine {
    char *name;
    pid_t pid;                     /* process of the command; -1: it has ended */
    int out, words;                /* pipes of output and messages; -1: closed */
    choir__text_buffer stream;     /* bytes of the next round so far */
    bool marked;                   /* the stream's mark has come; it is not in `stream` */
    choir__text_buffer rounds[2];  /* the newest one and the one before */
    int told;                      /* rounds */
    double since;                  /* choir__now(), of the start or the newest round */
    char last_words[256];          /* the last line of its messages */
    char why[CHOIR__TROUBLE_TEXT]; /* why the machine cannot be seen any more; "": it can */
} machine;

struct choir__machines {
    char *through;
    double interval_s;
    bool all, more; /* all: the machines of all jobs; more: more machines than fit */
    machine machines[MOST_MACHINES];
    int count;
};

/* --- names and commands --- */

/* Returns whether a shell takes every character of the text as it is. */
static bool is_plain(const char *text, const char *signs)
{
    for (const char *c = text; *c; c++)
        if (!strchr(signs, *c) && !(*c >= '0' && *c <= '9') &&
            !((*c | 32) >= 'a' && (*c | 32) <= 'z'))
            return false;
    return *text;
}

/* A name becomes part of a command. */
static bool is_name(const char *name)
{
    return is_plain(name, "._-@:") && *name != '-' && strlen(name) < 256;
}

/* Returns this program's path if it can be part of a command, else its name. */
static char *path_of_self(void)
{
    char path[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    return choir__strdup(length > 0 && is_plain(path, "/._-+@:") ? path : "choir");
}

static char *command_for(const choir__machines *m, const char *name)
{
    char *words = choir__format("__boards %g", m->interval_s),
         *command = choir__machine_command(m->through, name, words);
    free(words);
    return command;
}

char *choir__machine_command(const char *through, const char *name, const char *words)
{
    const char *at = strstr(through, "{}");
    if (!at || !is_name(name))
        return NULL;
    char *self = path_of_self();
    char *command = choir__format(
        "%.*s%s%s %s %s", (int)(at - through), through, name, at + 2, self, words);
    free(self);
    return command;
}

/* --- one machine's command --- */

static void start(choir__machines *m, machine *one)
{
    int out[2] = {-1, -1}, words[2] = {-1, -1}, error = 0;
    char *command = command_for(m, one->name);
    if (pipe2(out, O_CLOEXEC) || pipe2(words, O_CLOEXEC))
        error = errno;
    if (!error)
        error = choir__shell_start(command, -1, out[1], words[1], &one->pid);
    if (error)
        snprintf(
            one->why, sizeof one->why, "%s: cannot run sh: %s", one->name, choir__why(error));
    int both[] = {out[1], words[1], error ? out[0] : -1, error ? words[0] : -1};
    for (size_t i = 0; i < CHOIR_COUNT(both); i++)
        if (both[i] >= 0)
            close(both[i]);
    if (!error) {
        one->out = out[0];
        one->words = words[0];
        fcntl(one->out, F_SETFL, O_NONBLOCK);
        fcntl(one->words, F_SETFL, O_NONBLOCK);
    }
    one->since = choir__now();
    free(command);
}

static void stop(machine *one)
{
    if (one->pid > 0) {
        kill(-one->pid, SIGKILL);
        while (waitpid(one->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    one->pid = -1;
    int both[] = {one->out, one->words};
    for (size_t i = 0; i < CHOIR_COUNT(both); i++)
        if (both[i] >= 0)
            close(both[i]);
    one->out = one->words = -1;
}

/* --- its stream --- */

/* Reads the bytes that have come, up to most_at_once; returns false at the end. */
static bool drain(int fd, choir__text_buffer *into)
{
    char bytes[16384];
    ssize_t got = -1;
    for (size_t room = most_at_once; room;) {
        got = read(fd, bytes, choir__min(room, sizeof bytes));
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        if (got > 0) {
            choir__text_buffer_add(into, bytes, (size_t)got);
            room -= (size_t)got;
        }
    }
    return got != 0;
}

/* Keeps the last line of the messages that is not empty. */
static void take_words(machine *one)
{
    choir__text_buffer words = {0};
    if (one->words >= 0 && !drain(one->words, &words)) {
        close(one->words);
        one->words = -1;
    }
    for (const char *line = words.bytes; line && *line;) {
        size_t length = strcspn(line, "\r\n");
        if (length)
            choir__board_text(one->last_words, sizeof one->last_words, line, length);
        line += length;
        line += strspn(line, "\r\n");
    }
    choir__text_buffer_free(&words);
}

static void note_end(machine *one)
{
    int status = 0;
    if (waitpid(one->pid, &status, WNOHANG) == 0)
        return; /* the output is closed; the status comes soon */
    one->pid = -1;
    take_words(one);
    const char *words = *one->last_words ? one->last_words : "without a message";
    if (WIFSIGNALED(status))
        snprintf(one->why, sizeof one->why, "%s: its command was killed by signal %d, %s",
            one->name, WTERMSIG(status), words);
    else
        snprintf(one->why, sizeof one->why, "%s: its command ended with status %d: %s",
            one->name, WEXITSTATUS(status), words);
}

/* Takes the whole rounds out of the stream and keeps the last two. */
static void take_rounds(machine *one)
{
    choir__round round = {0};
    size_t at = 0;
    choir_status status = CHOIR_OK;
    if (!one->marked && (status = choir__snapshot_stream_mark(&one->stream, &at)) == CHOIR_OK)
        one->marked = at;
    while (one->marked &&
           (status = choir__snapshot_stream_find(&one->stream, at, &round)) == CHOIR_OK &&
           round.bytes) {
        choir__text_buffer older = one->rounds[1];
        one->rounds[1] = one->rounds[0];
        one->rounds[0] = older;
        choir__text_buffer_clear(&one->rounds[0]);
        choir__text_buffer_add(&one->rounds[0], round.bytes, round.count);
        one->told++;
        one->since = choir__now();
        at = round.end;
    }
    if (status != CHOIR_OK) {
        snprintf(one->why, sizeof one->why, "%s: %s", one->name, choir_error_message());
        stop(one);
    } else {
        choir__text_buffer_drop(&one->stream, at);
    }
}

static void hear(machine *one)
{
    if (*one->why || one->pid < 0)
        return;
    bool more = drain(one->out, &one->stream);
    take_words(one);
    take_rounds(one);
    if (!more && !*one->why)
        note_end(one);
}

/* --- all machines --- */

static void add(choir__machines *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->machines[i].name, name))
            return;
    if (!is_name(name))
        return;
    m->more |= m->count == MOST_MACHINES;
    if (m->more)
        return;
    machine *one = &m->machines[m->count++];
    *one = (machine){.name = choir__strdup(name), .pid = -1, .out = -1, .words = -1};
    start(m, one);
}

static void add_of_jobs(choir__machines *m, const choir__snapshot *looks)
{
    char own[64] = "";
    gethostname(own, sizeof own - 1);
    for (int i = 0; i < looks->count && m->all; i++)
        for (int k = 0; k < looks->seen[i]->machine_count; k++)
            if (strcmp(looks->seen[i]->machines[k], own) != 0)
                add(m, looks->seen[i]->machines[k]);
}

static choir_status add_named(choir__machines *m, const char *names)
{
    choir_status status = CHOIR_OK;
    char *list = choir__strdup(names), *rest = list;
    for (char *name; (name = strsep(&rest, ",")) && status == CHOIR_OK;)
        if (!strcmp(name, "all"))
            m->all = true;
        else if (!is_name(name))
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "--hosts: expected names of machines, separated by commas, got '%s'", name);
        else
            add(m, name);
    free(list);
    return status;
}

choir_status choir__machines_open(
    const char *names, const char *through, double interval_s, choir__machines **machines)
{
    *machines = NULL;
    if (!strstr(through, "{}"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--through: expected a command with {} for the name of the machine, got '%s'",
            through);
    choir__machines *m = choir__calloc(1, sizeof *m);
    m->through = choir__strdup(through);
    m->interval_s = interval_s;
    choir_status status = add_named(m, names);
    if (status == CHOIR_OK && m->more)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "--hosts: expected at most %d machines, got more", MOST_MACHINES);
    if (status == CHOIR_OK)
        *machines = m;
    else
        choir__machines_close(m);
    return status;
}

void choir__machines_close(choir__machines *m)
{
    for (int i = 0; m && i < m->count; i++) {
        machine *one = &m->machines[i];
        stop(one);
        choir__text_buffer_free(&one->stream);
        for (int k = 0; k < 2; k++)
            choir__text_buffer_free(&one->rounds[k]);
        free(one->name);
    }
    if (m)
        free(m->through);
    free(m);
}

void choir__machines_look(choir__machines *m, const choir__snapshot *here, choir__snapshot *now,
    choir__snapshot *before)
{
    *now = *before = (choir__snapshot){0};
    add_of_jobs(m, here);
    for (int i = 0; i < m->count; i++) {
        machine *one = &m->machines[i];
        choir__snapshot *into[] = {now, before};
        hear(one);
        for (int k = 0; k < 2 && !*one->why; k++) {
            choir__snapshot some =
                choir__snapshot_stream_parse(one->rounds[k].bytes, one->rounds[k].used);
            choir__snapshot_move(into[k], &some);
        }
    }
}

static bool is_settled(const machine *one)
{
    return one->told > 1 || *one->why;
}

void choir__machines_wait(choir__machines *m, const choir__snapshot *here, double seconds)
{
    double until = choir__now() + seconds;
    bool all = false;
    add_of_jobs(m, here);
    while (!all && choir__now() < until) {
        struct pollfd waits[MOST_MACHINES];
        int count = 0;
        all = true;
        for (int i = 0; i < m->count; i++) {
            hear(&m->machines[i]);
            if (is_settled(&m->machines[i]))
                continue;
            all = false;
            if (m->machines[i].out >= 0)
                waits[count++] = (struct pollfd){.fd = m->machines[i].out, .events = POLLIN};
        }
        if (!all)
            poll(waits, (nfds_t)count, 50);
    }
}

bool choir__machines_trouble(const choir__machines *m, int i, char text[CHOIR__TROUBLE_TEXT])
{
    if (i > m->count || (i == m->count && !m->more))
        return false;
    if (i == m->count) {
        snprintf(text, CHOIR__TROUBLE_TEXT, "the jobs have more machines than the %d shown",
            MOST_MACHINES);
        return true;
    }
    const machine *one = &m->machines[i];
    double silent_s = choir__now() - one->since;
    *text = '\0';
    if (*one->why)
        snprintf(text, CHOIR__TROUBLE_TEXT, "%s", one->why);
    else if (silent_s > silence_s + 3 * m->interval_s)
        snprintf(text, CHOIR__TROUBLE_TEXT, "%s: no news for %.0f s%s%s", one->name, silent_s,
            *one->last_words ? ": " : "", one->last_words);
    return true;
}
