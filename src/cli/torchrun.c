/* Forms of torchrun's command line that choir run takes over: variables PET_NAME stand for
 * options that the command line does not give, a .py file runs under Python, and lists of keys
 * and values are read item by item. */
#include "cli/torchrun.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/named.h"
#include "launch/process/signal_table.h"

/* --- the environment --- */

/* Returns the value of the variable that stands for an option, PET_NPROC_PER_NODE for
 * nproc-per-node, or NULL. */
static const char *variable_of(const choir__line_option *o)
{
    char name[64];
    int n = snprintf(name, sizeof name, "PET_%s", o->name);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    const char *value = n < (int)sizeof name ? getenv(name) : NULL;
    bool off = value && (!*value || (!o->argument && !strcmp(value, "0")));
    return off ? NULL : value;
}

char **choir__torchrun_argv(const choir__line_command *command, int *argc, char **argv)
{
    choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS];
    int count = choir__line_options(command, taken), used = 0;
    char **all = choir__calloc((size_t)(*argc + count + 1), sizeof *all);
    all[used++] = argv[0];
    for (int i = 0; i < count; i++) {
        const choir__line_option *o = taken[i].option;
        const char *value = o->name && strcmp(o->name, "help") ? variable_of(o) : NULL;
        if (value)
            all[used++] = choir__line_word(o, o->argument ? value : NULL);
    }
    for (int i = 1; i < *argc; i++)
        all[used++] = argv[i];
    *argc = used;
    return all;
}

/* --- Python --- */

/* A file such as train.py that is no program itself. */
static bool is_script(const char *word)
{
    struct stat s;
    size_t length = strlen(word);
    return length > 3 && !strcmp(word + length - 3, ".py") && stat(word, &s) == 0 &&
           S_ISREG(s.st_mode) && access(word, X_OK) != 0;
}

char **choir__torchrun_command(
    const choir__line_operands *operands, bool module, bool script, bool plain)
{
    static char python3[] = "python3", unbuffered[] = "-u", as_module[] = "-m";
    char *python = getenv("PYTHON_EXEC");
    int used = 0;
    if (!script && (plain || (!module && !is_script(operands->words[0]))))
        return operands->words;
    char **words = choir__calloc((size_t)operands->count + 4, sizeof *words);
    words[used++] = python && *python ? python : python3;
    words[used++] = unbuffered;
    if (module && !script)
        words[used++] = as_module;
    for (int i = 0; i < operands->count; i++)
        words[used++] = operands->words[i];
    return words;
}

/* --- lists --- */

enum { ITEM = 1024 };

/* Copies the next item of a list to `item` and moves *at behind it; false at the end. */
static bool next_item(const char **at, char item[ITEM])
{
    if (!**at)
        return false;
    size_t length = strcspn(*at, ",");
    snprintf(item, ITEM, "%.*s", (int)(length < ITEM ? length : ITEM - 1), *at);
    *at += length + ((*at)[length] == ',');
    return true;
}

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Takes one of etcd's keys; returns false for another key. */
static bool take_etcd(choir__etcd_conf *etcd, const char *key, const char *value)
{
    const struct {
        const char *key, **value;
    } texts[] = {{"cacert", &etcd->cacert}, {"cert", &etcd->cert}, {"key", &etcd->key},
        {"user", &etcd->user}};
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++)
        if (!strcmp(key, texts[i].key)) {
            *texts[i].value = choir__strdup(value);
            etcd->tls |= strcmp(key, "user") != 0;
            return true;
        }
    if (!strcmp(key, "protocol"))
        etcd->tls |= !strcmp(value, "https");
    return !strcmp(key, "protocol");
}

void choir__torchrun_etcd_user(choir__etcd_conf *etcd)
{
    const char *user = getenv("ETCDCTL_USER"), *password = getenv("ETCDCTL_PASSWORD");
    if (!etcd->user && user && *user)
        etcd->user = user;
    const char *colon = etcd->user ? strchr(etcd->user, ':') : NULL;
    etcd->password = colon ? colon + 1 : password ? password : "";
    if (colon)
        etcd->user = choir__format("%.*s", (int)(colon - etcd->user), etcd->user);
}

static int unknown_conf(const char *key)
{
    static const char *const keys[] = {"timeout", "join_timeout", "last_call_timeout",
        "is_host", "cacert", "cert", "key", "user", "protocol"};
    static const choir__name_table table = CHOIR__NAME_TABLE(keys);
    (void)!choir__unknown_name(&table, "key", key);
    return choir__line_usage("run", "--rdzv-conf: %s", choir_error_message());
}

int choir__torchrun_conf(const char *text, choir__agent_opts *o)
{
    /* Properties of torchrun's own store, which has no counterpart here. */
    static const char *const idle[] = {"close_timeout", "read_timeout", "keep_alive_interval",
        "keep_alive_max_attempt", "heartbeat_timeout", "store_type", "use_libuv", "rank"};
    char item[ITEM];
    for (const char *at = text; at && next_item(&at, item);) {
        char *value = strchr(item, '=');
        double seconds = 0;
        if (!value)
            return choir__line_usage(
                "run", "--rdzv-conf: expected KEY=VALUE,..., got '%s'", text);
        *value++ = '\0';
        bool timed = !strcmp(item, "timeout") || !strcmp(item, "join_timeout"),
             last = !strcmp(item, "last_call_timeout");
        if ((timed || last) && !choir__parse_float(value, 0, 1e9, &seconds))
            return choir__line_usage("run",
                "--rdzv-conf: expected seconds from 0 to 1e9 for %s, got '%s'", item, value);
        if (timed)
            o->timeout_s = seconds;
        else if (last)
            o->last_call_s = seconds;
        else if (!strcmp(item, "is_host") && (!*value || !strchr("01tTyYfFnN", *value)))
            return choir__line_usage(
                "run", "--rdzv-conf: expected true or false for is_host, got '%s'", value);
        else if (!strcmp(item, "is_host") && strchr("1tTyY", *value))
            o->node = o->node < 0 ? 0 : o->node;
        else if (strcmp(item, "is_host") != 0 && !take_etcd(&o->etcd, item, value) &&
                 !is_one_of(item, idle, CHOIR_COUNT(idle)))
            return unknown_conf(item);
    }
    return CHOIR__EXIT_OK;
}

int choir__torchrun_signals(const char *text, choir__agent_opts *o)
{
    char item[ITEM], known[ITEM] = "";
    for (const choir__signal_row *row = choir__signal_table; row->number; row++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
            *known ? ", " : "", row->name);
    for (const char *at = text; at && next_item(&at, item);) {
        const choir__signal_row *row = choir__signal_named(item);
        if (!row)
            return choir__line_usage("run",
                "--signals-to-handle: unknown signal '%s': choose among %s", item, known);
        o->handled_signals |= UINT64_C(1) << row->number;
    }
    return CHOIR__EXIT_OK;
}
