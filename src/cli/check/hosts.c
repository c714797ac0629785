/* choir check on several machines: a command per machine, ssh by default, as `choir top`
 * reaches them. A machine prints lines of JSON, the last one for the whole; what else comes is
 * why it has not.
 * A machine that is silent for longer than the check takes is given up: a network may lose it
 * after the connection. */
#include "cli/check/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/text.h"
#include "cli/machines.h"
#include "launch/process/process.h"
#include "line/say.h"

enum { MOST = CHOIR__CHILDREN_MAX };

static const double patience_s = 20; /* beyond the time of the check */

typedef struct host {
    const char *name;
    char *command;
    int out[2];              /* a pipe: read, write; -1: closed */
    choir__text_buffer text; /* the output so far */
    json_t *cores;           /* the lines of cores and GPUs; NULL: none */
    json_t *outcome;         /* the last line; NULL: it has not come */
    char words[256];         /* last line that is no outcome */
} host;

/* --- the machines' commands --- */

static int become_command(void *arg)
{
    host *h = arg;
    dup2(h->out[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", h->command, (char *)NULL);
    return CHOIR__EXIT_FAILED;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static choir_status start(choir__family *family, int i, host *h)
{
    if (pipe2(h->out, O_CLOEXEC) != 0) {
        h->out[0] = h->out[1] = -1;
        return choir__error(CHOIR_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    }
    choir_status status = choir__family_start(family, i, become_command, h);
    close_end(&h->out[1]);
    return status;
}

/* Takes what a machine has printed; at the end its pipe is closed. */
static void take(host *h)
{
    char bytes[4096];
    ssize_t n = read(h->out[0], bytes, sizeof bytes);
    if (n > 0)
        choir__text_buffer_add(&h->text, bytes, (size_t)n);
    else if (n == 0 || errno != EINTR)
        close_end(&h->out[0]);
}

/* Reads the output of all machines until their commands have ended, the time is over, or a
 * signal comes, which is returned (0: none). */
static int listen_to(choir__family *family, host *hosts, int count, double seconds)
{
    double end = choir__now() + seconds;
    struct pollfd *at = choir__calloc(2 * (size_t)count + 1, sizeof *at);
    choir__signal s = {0};
    bool given_up = false;
    for (;;) {
        int pids = choir__family_poll(family, at), open = 0;
        for (int i = 0; i < count; i++) {
            at[pids + i] = (struct pollfd){.fd = hosts[i].out[0], .events = POLLIN};
            open += hosts[i].out[0] >= 0;
        }
        at[pids + count] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
        if (!family->alive && (!open || given_up))
            break;
        double left = end - choir__now();
        int press = choir__family_press(family), wait = (int)(1e3 * choir__max(left, 0.0)) + 1;
        if (poll(at, (nfds_t)(pids + count + 1),
                given_up || (press >= 0 && press < wait) ? press : wait) < 0)
            continue;
        for (int i = 0; i < count; i++)
            if (at[pids + i].revents)
                take(&hosts[i]);
        choir__family_reap(family, at);
        bool asked = s.number || choir__signals_next(&s);
        if (!given_up && (asked || choir__now() >= end)) {
            given_up = true;
            choir__family_stop(family);
        }
    }
    free(at);
    return s.number;
}

static choir_status ask(host *hosts, int count, double seconds, int *signal_number)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    choir__family family;
    choir_status status = choir__signals_take(numbers, CHOIR_COUNT(numbers));
    if (status != CHOIR_OK)
        return status;
    choir__family_init(&family, count);
    family.own_groups = family.outlives = true;
    family.grace_s = 0;
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = start(&family, i, &hosts[i]);
    if (status == CHOIR_OK)
        *signal_number = listen_to(&family, hosts, count, seconds);
    choir__family_bury(&family);
    choir__family_free(&family);
    choir__signals_give_back();
    return status;
}

/* --- their answers --- */

static void read_line(host *h, const char *line, size_t n)
{
    json_t *root = *line == '{' ? json_loadb(line, n, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(root, "event"));
    if (event && !strcmp(event, "check")) {
        h->cores = h->cores ? h->cores : json_array();
        json_array_append_new(h->cores, root);
        return;
    }
    if (event && !strcmp(event, "checked")) {
        json_decref(h->outcome);
        h->outcome = root;
        return;
    }
    json_decref(root);
    snprintf(h->words, sizeof h->words, "%.*s", (int)strcspn(line, "\r\n"), line);
    choir__clean(h->words);
}

static void read_outcome(host *h)
{
    choir__text_buffer_add(&h->text, "", 1);
    for (char *line = h->text.bytes, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        size_t n = (size_t)(end - line);
        if (*end)
            *end++ = '\0';
        read_line(h, line, n);
    }
}

static void print_fault(const char *name, const json_t *core)
{
    const char *op = json_string_value(json_object_get(core, "op")),
               *class = json_string_value(json_object_get(core, "bits")),
               *why = json_string_value(json_object_get(core, "message")),
               *device = json_string_value(json_object_get(core, "device"));
    const char *number = device && !strncmp(device, "cpu:", 4) ? device + 4 : "?";
    char *text = op    ? choir__format("core %s computes otherwise: %s of the class %s", number,
                             op, class ? class : "?")
                 : why ? choir__format("core %s: %s", number, why)
                 : json_is_true(json_object_get(core, "slow"))
                     ? choir__format("core %s is slow", number)
                     : NULL;
    if (text)
        printf("%s: %s\n", name, choir__clean(text));
    free(text);
}

static void print_json(const host *h, json_t *line)
{
    json_object_set_new(line, "host", json_string(h->name));
    char *text = json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER);
    printf("%s\n", text);
    free(text);
}

/* Prints what a machine has said; returns whether it is sound. */
static bool print_host(host *h, bool json)
{
    size_t i;
    json_t *core;
    bool sound = h->outcome && !json_integer_value(json_object_get(h->outcome, "faults"));
    if (!h->outcome) {
        choir__line_tell("check", "%s: it does not answer: %s", h->name,
            *h->words ? h->words : "its command says nothing");
        return false;
    }
    json_array_foreach(h->cores, i, core)
    {
        if (json)
            print_json(h, core);
        else
            print_fault(h->name, core);
    }
    if (json)
        print_json(h, h->outcome);
    else
        printf("%s: %lld cores: %s\n", h->name,
            (long long)json_integer_value(json_object_get(h->outcome, "cores")),
            sound ? "all as they should be" : "there are faults");
    return sound;
}

static void free_host(host *h)
{
    close_end(&h->out[0]);
    choir__text_buffer_free(&h->text);
    json_decref(h->cores);
    json_decref(h->outcome);
    free(h->command);
}

int choir__check_hosts(const char *names, const char *through, double seconds, bool json)
{
    char *list = choir__strdup(names), *rest = list, *name, *words;
    host *hosts = choir__calloc(MOST, sizeof *hosts);
    int count = 0, status = CHOIR__EXIT_OK, signal_number = 0;
    words = choir__format("check --json --burn-in %gs 2>&1", seconds);
    while ((name = strsep(&rest, ",")) && status == CHOIR__EXIT_OK) {
        char *command = count < MOST ? choir__machine_command(through, name, words) : NULL;
        if (command)
            hosts[count++] = (host){.name = name, .command = command, .out = {-1, -1}};
        else
            status = choir__line_usage("check",
                "--hosts %s: expected names of at most %d machines, and {} in --through", names,
                MOST);
    }
    if (status == CHOIR__EXIT_OK &&
        ask(hosts, count, seconds + patience_s, &signal_number) != CHOIR_OK)
        status = choir__line_fail();
    for (int i = 0; i < count && status != CHOIR__EXIT_USAGE && !signal_number; i++) {
        read_outcome(&hosts[i]);
        if (!print_host(&hosts[i], json))
            status = CHOIR__EXIT_FAILED;
    }
    for (int i = 0; i < count; i++)
        free_host(&hosts[i]);
    free(hosts);
    free(words);
    free(list);
    return signal_number ? 128 + signal_number : status;
}
