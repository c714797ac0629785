/* Data of several sources, or a part of one: "a.jsonl:weight=0.7+b.txt:weight=0.3,first=1000".
 *
 * A text that is the path of a file or folder is never taken apart. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "data/open/reader.h"

/* Returns the first colon of an option, such as ":weight=", or NULL. */
static char *options_of(char *text)
{
    static const char *const keys[] = {":weight=", ":first=", ":part=", ":every="};
    char *found = NULL;
    for (size_t i = 0; i < CHOIR_COUNT(keys); i++) {
        char *at = strstr(text, keys[i]);
        found = at && (!found || at < found) ? at : found;
    }
    return found;
}

static choir_status read_source(char *text, choir__data_source *source)
{
    const choir__option keys[] = {{"weight", CHOIR__FLOAT, &source->weight, 1e-9, 1e9},
        {"first", CHOIR__INT, &source->first, 1, 1e15},
        {"part", CHOIR__FLOAT, &source->part, 1e-9, 1},
        {"every", CHOIR__INT, &source->every, 1, 1e15}, {NULL}};
    *source = (choir__data_source){.path = text, .part = 1, .every = 1};
    char *options = options_of(text);
    if (!options)
        return CHOIR_OK;
    char *of = choir__format("%.*s", (int)(options - text), text);
    char *with_name = choir__format("source%s", options);
    *options = '\0';
    choir_status status = choir__options_parse(with_name, of, keys);
    free(with_name);
    free(of);
    return status;
}

choir_status choir__data_sources_parse(const char *text, choir__data_sources *sources)
{
    *sources = (choir__data_sources){.text = choir__strdup(text)};
    bool is_path = access(text, F_OK) == 0 || choir__data_is_random(text);
    char *rest = sources->text, *part;
    int weighed = 0;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (part = is_path ? rest : strsep(&rest, "+"))) {
        rest = is_path ? NULL : rest;
        if (sources->count == CHOIR__MOST_SOURCES)
            return choir__error(CHOIR_ERR_ARGUMENT, "%s: expected at most %d sources", text,
                CHOIR__MOST_SOURCES);
        choir__data_source *source = &sources->source[sources->count++];
        if (is_path)
            *source = (choir__data_source){.path = part, .part = 1, .every = 1};
        else
            status = read_source(part, source);
        weighed += source->weight > 0;
        if (status == CHOIR_OK && !*part)
            status = choir__error(
                CHOIR_ERR_ARGUMENT, "data '%s': expected a name of each source, got ''", text);
    }
    sources->weighed = weighed > 0;
    if (status == CHOIR_OK && weighed && weighed < sources->count)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: %d of %d sources have a weight: name one for each, or none", text, weighed,
            sources->count);
    return status;
}

void choir__data_sources_free(choir__data_sources *sources)
{
    free(sources->text);
    *sources = (choir__data_sources){0};
}

choir_status choir__data_source_cut(const choir__data_source *source, choir_dataset **dataset)
{
    int64_t length = choir_dataset_length(*dataset);
    int64_t count = (int64_t)ceil((double)length * source->part);
    count = (count + source->every - 1) / source->every;
    if (source->first)
        count = choir__min(count, source->first);
    return count == length ? CHOIR_OK
                           : choir_dataset_subset(*dataset, 0, source->every, count, dataset);
}
