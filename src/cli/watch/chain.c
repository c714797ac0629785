/* Reading a chain as it grows: see chain.h. A line is compared with the one before it, and a
 * page gets enough to say where two runs part: 64 bits of each kind of hashes, which tell
 * whether it is equal, and 16 bits of each module's, which tell the module. */
#include "cli/watch/chain.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "audit/chain.h"
#include "base/rng.h"
#include "cli/watch/run.h"

enum { MOST_MODULES = 512, MOST_NAME = 200, HASH = 16, CODE = 4 };

void choir__watch_chain_open(choir__watch_chain *c, const char *folder)
{
    c->lines.path = choir__format("%s/" CHOIR__AUDIT_FILE, folder);
}

static void forget(choir__watch_chain *c)
{
    for (int i = 0; i < CHOIR__WATCH_LINKS; i++) {
        free(c->first[i]);
        free(c->newest[i]);
    }
    free(c->head);
    *c = (choir__watch_chain){.lines = c->lines, .version = c->version + 1};
}

void choir__watch_chain_close(choir__watch_chain *c)
{
    forget(c);
    free(c->lines.path);
}

void choir__watch_chain_rewind(choir__watch_chain *c)
{
    forget(c);
    choir__tail_rewind(&c->lines);
}

/* --- lines --- */

/* Adds a text of a file that may be anything: of some length at most. */
static void put_text(choir__text_buffer *out, const char *key, const json_t *value)
{
    char *text = json_is_string(value)
                     ? choir__format("%.*s", MOST_NAME, json_string_value(value))
                     : NULL;
    char *mended = text ? choir__text_mended(text) : NULL;
    choir__text_string(out, key, mended);
    free(mended);
    free(text);
}

static void take_begin(choir__watch_chain *c, const json_t *line)
{
    choir__text_buffer t = {0};
    const json_t *modules = json_object_get(line, "modules");
    choir__text_open(&t, NULL, '{');
    put_text(&t, "build", json_object_get(line, "build"));
    put_text(&t, "bits", json_object_get(line, "bits"));
    choir__text_value(
        &t, "every", "%lld", (long long)json_integer_value(json_object_get(line, "every")));
    choir__text_open(&t, "modules", '[');
    for (size_t i = 0; i < json_array_size(modules) && i < MOST_MODULES; i++)
        put_text(&t, NULL, json_array_get(modules, i));
    choir__text_close(&t, ']');
    free(c->head);
    c->head = choir__strdup(t.bytes + 1); /* behind the bracket */
    c->version++;
    choir__text_buffer_free(&t);
}

/* Adds ["HASH OF ALL", "CODES"]; a hash that is not known has no digits in its code. */
static void put_hashes(choir__text_buffer *t, const char *key, const json_t *list)
{
    uint64_t all = 0;
    size_t count = json_array_size(list);
    char codes[MOST_MODULES * CODE + 1] = "";
    for (size_t i = 0; i < count; i++) {
        const char *hash = json_string_value(json_array_get(list, i));
        bool known = hash && strlen(hash) == HASH && strspn(hash, "0123456789abcdef") == HASH;
        all = choir__mix(all, known ? strtoull(hash, NULL, 16) : 1);
        if (i < MOST_MODULES)
            memcpy(codes + i * CODE, known ? hash : "----", CODE);
    }
    choir__text_open(t, key, '[');
    choir__text_value(t, NULL, "\"%016llx\"", (unsigned long long)all);
    choir__text_string(t, NULL, codes);
    choir__text_close(t, ']');
}

static void take_step(choir__watch_chain *c, const json_t *line)
{
    static const char *const lists[] = {"read_weights", "read_state", "samples", "batch",
        "losses", "gradients", "weights", "state"};
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_value(
        &t, "step", "%lld", (long long)json_integer_value(json_object_get(line, "step")));
    put_text(&t, "loss", json_object_get(line, "loss"));
    put_text(&t, "key", json_object_get(line, "key"));
    choir__text_string(&t, "link", c->link);
    for (size_t i = 0; i < CHOIR_COUNT(lists); i++)
        put_hashes(&t, lists[i], json_object_get(line, lists[i]));
    choir__text_close(&t, '}');
    char **place = c->steps < CHOIR__WATCH_LINKS ? &c->first[c->steps]
                                                 : &c->newest[c->steps % CHOIR__WATCH_LINKS];
    free(*place);
    *place = choir__strdup(t.bytes);
    c->steps++;
    choir__text_buffer_free(&t);
}

static void take(void *arg, char *text, size_t bytes)
{
    choir__watch_chain *c = arg;
    c->count++;
    if (c->broken)
        return;
    json_t *line =
        choir__chain_follows(text, bytes, c->link) ? choir__watch_json(text, bytes) : NULL;
    if (!line) {
        c->broken = c->count;
        c->version++;
    } else if (json_is_integer(json_object_get(line, "begin"))) {
        take_begin(c, line);
    } else if (json_is_integer(json_object_get(line, "step"))) {
        take_step(c, line);
    }
    json_decref(line);
}

choir__tail_state choir__watch_chain_look(choir__watch_chain *c)
{
    return choir__tail_read(&c->lines, take, c);
}

/* --- telling --- */

bool choir__watch_chain_news(
    const choir__watch_chain *c, choir__watch_chain_known *known, choir__text_buffer *out)
{
    if (!c->count || (known->version == c->version && known->steps == c->steps))
        return false;
    choir__text_value(out, "from", "%lld", (long long)known->steps);
    choir__text_value(out, "count", "%lld", (long long)c->steps);
    choir__text_value(out, "broken", "%lld", (long long)c->broken);
    if (c->head && known->version != c->version)
        choir__text_format(out, ",%s", c->head);
    choir__text_open(out, "lines", '[');
    for (int64_t i = known->steps; i < c->steps; i++) {
        if (i >= CHOIR__WATCH_LINKS && i < c->steps - CHOIR__WATCH_LINKS)
            continue;
        choir__text_value(out, NULL, "%s",
            i < CHOIR__WATCH_LINKS ? c->first[i] : c->newest[i % CHOIR__WATCH_LINKS]);
    }
    choir__text_close(out, ']');
    *known = (choir__watch_chain_known){c->version, c->steps};
    return true;
}
