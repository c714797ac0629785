/* Chains of hashes: writing and reading. A line is written by one call, so a process that is
 * killed leaves whole lines and at most one broken one, which the next one cuts off. */
#include "audit/chain.h"

#include <stdlib.h>
#include <string.h>

#include "base/plugin/build_id.h"
#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/text.h"
#include "record/lines.h"

enum { VERSION = 1 };

static const char *const keys[CHOIR__AUDIT_KINDS] = {
    [CHOIR__AUDIT_READ_WEIGHTS] = "read_weights",
    [CHOIR__AUDIT_READ_STATE] = "read_state",
    [CHOIR__AUDIT_BATCH] = "batch",
    [CHOIR__AUDIT_SAMPLES] = "samples",
    [CHOIR__AUDIT_LOSSES] = "losses",
    [CHOIR__AUDIT_GRADIENTS] = "gradients",
    [CHOIR__AUDIT_WEIGHTS] = "weights",
    [CHOIR__AUDIT_STATE] = "state",
};

/* --- links --- */

static const char link_key[] = ",\"chain\":\"";

/* Stores the link of a line whose text before its link is given; before: the link before it, ""
 * of the first line. */
static void link_of(
    const char *before, const char *text, size_t bytes, char hex[CHOIR__SHA256_HEX])
{
    choir__sha256_state state;
    choir__sha256_init(&state);
    choir__sha256_update(&state, before, strlen(before));
    choir__sha256_update(&state, text, bytes);
    choir__sha256_final(&state, hex);
}

/* Returns the place of a line's link, or NULL. */
static const char *find_link(const char *line, size_t bytes)
{
    size_t tail = sizeof link_key - 1 + CHOIR__SHA256_HEX - 1 + 2; /* with "} */
    const char *at = bytes > tail ? line + bytes - tail : NULL;
    return at && !memcmp(at, link_key, sizeof link_key - 1) ? at : NULL;
}

/* --- writing --- */

struct choir__chain_writer {
    choir__lines lines;
    choir__text_buffer text;
    int64_t last; /* step of the last line */
    char link[CHOIR__SHA256_HEX];
};

/* Returns the step of a line, or -1. */
static int64_t step_of(const char *line, size_t bytes)
{
    static const char *const begins[] = {"{\"step\":", "{\"begin\":"};
    for (size_t i = 0; i < CHOIR_COUNT(begins); i++) {
        size_t n = strlen(begins[i]);
        if (bytes > n && !memcmp(line, begins[i], n))
            return strtoll(line + n, NULL, 10);
    }
    return -1;
}

typedef struct kept {
    int64_t resumed;
    choir__chain_writer *writer;
} kept;

/* A line stays if it is of a step that is done. The first one that does, from the end, is the
 * one that the next line is linked to. */
static bool line_stays(const char *line, size_t bytes, void *arg)
{
    kept *k = arg;
    const char *link = find_link(line, bytes);
    int64_t step = step_of(line, bytes);
    if (!link || step < 0 || step > k->resumed)
        return false;
    snprintf(k->writer->link, CHOIR__SHA256_HEX, "%s", link + sizeof link_key - 1);
    k->writer->last = line[2] == 's' ? step : 0;
    return true;
}

/* Adds the line that is in the text, and its link. */
static choir_status add(choir__chain_writer *w)
{
    link_of(w->link, w->text.bytes, w->text.used, w->link);
    choir__text_format(&w->text, "%s%s\"}\n", link_key, w->link);
    return choir__lines_add(&w->lines, w->text.bytes, w->text.used);
}

static choir_status add_begin(choir__chain_writer *w, const choir__chain_begin *b)
{
    choir__text_buffer *t = &w->text;
    json_t *job = b->job ? json_loads(b->job, 0, NULL) : NULL;
    char *compact = job ? json_dumps(job, JSON_COMPACT) : NULL;
    choir__text_buffer_clear(t);
    choir__text_open(t, NULL, '{');
    choir__text_value(t, "begin", "%lld", (long long)b->step);
    choir__text_value(t, "audit", "%d", VERSION);
    choir__text_value(t, "every", "%lld", (long long)b->every);
    const char *id = choir__build_id();
    char *build =
        choir__format("Choir %s%s%s%s", CHOIR_VERSION, *id ? " (" : "", id, *id ? ")" : "");
    choir__text_string(t, "build", build);
    free(build);
    choir__text_string(t, "bits", b->bits);
    choir__text_value(t, "job", "%s", compact ? compact : "null");
    choir__text_open(t, "modules", '[');
    for (int i = 0; i < b->module_count; i++)
        choir__text_string(t, NULL, b->modules[i]);
    choir__text_close(t, ']');
    free(compact);
    json_decref(job);
    return add(w);
}

choir_status choir__chain_open(
    const char *folder, const choir__chain_begin *begin, choir__chain_writer **writer)
{
    int error = choir__folders_make(folder);
    if (error)
        return choir__error(
            CHOIR_ERR_IO, "cannot write an audit to %s: %s", folder, choir__why(error));
    choir__chain_writer *w = choir__calloc(1, sizeof *w);
    kept k = {begin->step, w};
    char *path = choir__format("%s/" CHOIR__AUDIT_FILE, folder);
    choir_status status =
        choir__lines_open(&w->lines, path, begin->step ? line_stays : NULL, &k);
    free(path);
    if (status == CHOIR_OK)
        status = add_begin(w, begin);
    *writer = w;
    if (status != CHOIR_OK) {
        (void)!choir__chain_close(w);
        *writer = NULL;
    }
    return status;
}

choir_status choir__chain_add(choir__chain_writer *w, const choir__chain_line *line)
{
    choir__text_buffer *t = &w->text;
    if (line->step <= w->last)
        return CHOIR_OK;
    choir__text_buffer_clear(t);
    choir__text_open(t, NULL, '{');
    choir__text_value(t, "step", "%lld", (long long)line->step);
    choir__text_string(t, "loss", line->loss);
    choir__text_value(t, "key", "\"%016llx\"", (unsigned long long)line->key);
    for (int kind = 0; kind < CHOIR__AUDIT_KINDS; kind++) {
        choir__text_open(t, keys[kind], '[');
        for (int i = 0; i < line->count[kind]; i++) {
            const choir__audit_hash *h = &line->hash[kind][i];
            if (h->known)
                choir__text_value(t, NULL, "\"%016llx\"", (unsigned long long)h->value);
            else
                choir__text_value(t, NULL, "null");
        }
        choir__text_close(t, ']');
    }
    w->last = line->step;
    return add(w);
}

choir_status choir__chain_close(choir__chain_writer *w)
{
    if (!w)
        return CHOIR_OK;
    choir_status status = choir__lines_close(&w->lines);
    choir__text_buffer_free(&w->text);
    free(w);
    return status;
}

void choir__chain_line_free(choir__chain_line *line)
{
    for (int kind = 0; kind < CHOIR__AUDIT_KINDS; kind++)
        free(line->hash[kind]);
}

/* --- reading --- */

static choir_status not_a_line(const char *path, int64_t number, const char *why)
{
    return choir__error(CHOIR_ERR_FORMAT, "%s:%lld: %s", path, (long long)number, why);
}

/* Reads the line that follows a link, and replaces the link by its own. */
static choir_status read_line(const char *path, int64_t number, const char *line, size_t bytes,
    char link[CHOIR__SHA256_HEX], json_t **object)
{
    char expected[CHOIR__SHA256_HEX];
    const char *own = bytes && line[bytes - 1] == '\n' ? find_link(line, bytes - 1) : NULL;
    if (!own)
        return not_a_line(
            path, number, "the line is cut off, or was written by another program");
    link_of(link, line, (size_t)(own - line), expected);
    if (memcmp(expected, own + sizeof link_key - 1, CHOIR__SHA256_HEX - 1) != 0)
        return not_a_line(path, number,
            "the chain breaks here: the line was edited, or lines before it were removed or "
            "edited");
    *object = json_loadb(line, bytes, 0, NULL);
    if (!json_is_object(*object))
        return not_a_line(path, number, "the line is no JSON object");
    memcpy(link, expected, sizeof expected);
    return CHOIR_OK;
}

bool choir__chain_follows(const char *line, size_t bytes, char link[CHOIR__SHA256_HEX])
{
    const char *own = find_link(line, bytes);
    if (own)
        link_of(link, line, (size_t)(own - line), link);
    return own && !memcmp(link, own + sizeof link_key - 1, CHOIR__SHA256_HEX - 1);
}

choir_status choir__chain_read(const char *folder, choir__chain *chain)
{
    char *path = choir__format("%s/" CHOIR__AUDIT_FILE, folder), *line = NULL;
    char link[CHOIR__SHA256_HEX] = "";
    size_t room = 0;
    int64_t number = 0;
    choir_status status = CHOIR_OK;
    *chain = (choir__chain){.lines = json_array()};
    FILE *file = choir__file_try_stream(path);
    for (ssize_t n; file && status == CHOIR_OK && (n = getline(&line, &room, file)) > 0;) {
        json_t *object = NULL;
        status = read_line(path, ++number, line, (size_t)n, link, &object);
        if (status == CHOIR_OK)
            json_array_append_new(chain->lines, object);
        else
            json_decref(object);
    }
    if (file)
        fclose(file);
    chain->begin = json_array_get(chain->lines, 0);
    if (status == CHOIR_OK && chain->begin && !json_object_get(chain->begin, "begin"))
        status = not_a_line(path, 1, "expected the line with which an audit begins");
    if (status != CHOIR_OK)
        choir__chain_free(chain);
    free(line);
    free(path);
    return status;
}

void choir__chain_free(choir__chain *chain)
{
    json_decref(chain->lines);
    *chain = (choir__chain){0};
}

const json_t *choir__chain_at(const choir__chain *chain, int64_t step)
{
    size_t i;
    json_t *line;
    json_array_foreach(chain->lines, i, line)
    {
        const json_t *number = json_object_get(line, "step");
        if (number && json_integer_value(number) == step)
            return line;
    }
    return NULL;
}

int64_t choir__chain_last(const choir__chain *chain)
{
    for (size_t i = json_array_size(chain->lines); i-- > 0;) {
        const json_t *number = json_object_get(json_array_get(chain->lines, i), "step");
        if (number)
            return json_integer_value(number);
    }
    return 0;
}
