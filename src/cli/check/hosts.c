/* choir check on several machines: a command per machine, ssh by default, as `choir top`
 * reaches them. What a machine prints is one line of JSON; what else comes is why it has not.
 */
#include "cli/check/hosts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "cli/machines.h"
#include "line/say.h"

typedef struct host {
    const char *name;
    FILE *out;
    json_t *outcome;
    char words[256]; /* last line that is no outcome */
} host;

/* Reads until the machine's command has ended. */
static void read_outcome(host *h)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    while (h->out && (n = getline(&line, &room, h->out)) > 0) {
        json_t *root = *line == '{' ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
        if (json_is_object(root) && json_object_get(root, "cores")) {
            json_decref(h->outcome);
            h->outcome = root;
            continue;
        }
        json_decref(root);
        snprintf(h->words, sizeof h->words, "%.*s", (int)strcspn(line, "\r\n"), line);
        choir__clean(h->words);
    }
    free(line);
    if (h->out)
        pclose(h->out);
}

static void print_fault(const char *name, const json_t *core)
{
    const char *op = json_string_value(json_object_get(core, "op")),
               *class = json_string_value(json_object_get(core, "class")),
               *why = json_string_value(json_object_get(core, "message"));
    long long number = (long long)json_integer_value(json_object_get(core, "core"));
    char *text = op ? choir__format("core %lld computes otherwise: %s of the class %s", number,
                          op, class ? class : "?")
                 : why ? choir__format("core %lld: %s", number, why)
                 : json_is_true(json_object_get(core, "slow"))
                     ? choir__format("core %lld is slow", number)
                     : NULL;
    if (text)
        printf("%s: %s\n", name, choir__clean(text));
    free(text);
}

/* Prints what a machine has said; returns whether it is sound. */
static bool print_host(host *h, bool json)
{
    size_t i;
    json_t *core, *cores = json_object_get(h->outcome, "cores");
    bool sound = h->outcome && !json_integer_value(json_object_get(h->outcome, "faults"));
    if (!h->outcome) {
        choir__cli_tell("check", "%s: it does not answer: %s", h->name,
            *h->words ? h->words : "its command says nothing");
        return false;
    }
    if (json) {
        json_object_set_new(h->outcome, "host", json_string(h->name));
        char *text = json_dumps(h->outcome, JSON_COMPACT | JSON_PRESERVE_ORDER);
        printf("%s\n", text);
        free(text);
        return sound;
    }
    json_array_foreach(cores, i, core)
    {
        print_fault(h->name, core);
    }
    printf("%s: %zu cores: %s\n", h->name, json_array_size(cores),
        sound ? "all as they should be" : "there are faults");
    return sound;
}

int choir__check_hosts(const char *names, const char *through, double seconds, bool json)
{
    enum { MOST = 1024 };
    char *list = choir__strdup(names), *rest = list, *name, *words;
    host *hosts = choir__calloc(MOST, sizeof *hosts);
    int count = 0, status = CHOIR__EXIT_OK;
    words = choir__format("check --json --burn-in %gs 2>&1", seconds);
    while ((name = strsep(&rest, ",")) && status == CHOIR__EXIT_OK) {
        char *command = count < MOST ? choir__machine_command(through, name, words) : NULL;
        if (command)
            hosts[count++] = (host){.name = name, .out = popen(command, "re")};
        else
            status = choir__cli_usage("check",
                "--hosts %s: expected names of at most %d machines, and {} in --through", names,
                MOST);
        free(command);
    }
    for (int i = 0; i < count; i++)
        read_outcome(&hosts[i]);
    for (int i = 0; i < count && status != CHOIR__EXIT_USAGE; i++)
        if (!print_host(&hosts[i], json))
            status = CHOIR__EXIT_FAILED;
    for (int i = 0; i < count; i++)
        json_decref(hosts[i].outcome);
    free(hosts);
    free(words);
    free(list);
    return status;
}
