/* Parquet files, as the plug-in reads them with Apache Arrow: each whole line must be an object
 * of JSON. The plug-in's source is linked, so that its code is instrumented; Arrow's is not. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/json.h"
#include "data/parquet/plugin.h"

enum { ROOM = 1 << 16, MOST = 1 << 20 };

extern const choir__parquet_plugin choir_plugin;

/* Returns whether a text of a file can be the reason. */
static bool is_of_the_file(const char *wrong)
{
    return strstr(wrong, "UTF-8") || strstr(wrong, "u0000") || strstr(wrong, "deeply");
}

/* Parses the whole lines, and returns how many bytes they are. */
static size_t check_lines(choir__json_nodes *nodes, char *text, size_t bytes)
{
    char *from = text, *end;
    while ((end = memchr(from, '\n', bytes - (size_t)(from - text)))) {
        const char *at, *wrong = choir__json_parse(nodes, from, end, &at);
        if (wrong ? !is_of_the_file(wrong) : nodes->node[0].type != CHOIR__JSON_OBJECT) {
            fprintf(
                stderr, "%s at byte %td of a line\n", wrong ? wrong : "no object", at - from);
            abort();
        }
        from = end + 1;
    }
    return (size_t)(from - text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[2 * ROOM];
    char why[CHOIR__PARQUET_WHY] = "";
    choir__json_nodes nodes = {0};
    void *file = choir_plugin.open(fuzz_write("a.parquet", data, size), why);
    if (!file)
        return 0;
    size_t kept = 0, all = 0;
    for (int64_t n; all < MOST && (n = choir_plugin.read(file, text + kept, ROOM, why)) > 0;) {
        size_t used = check_lines(&nodes, text, kept + (size_t)n);
        all += (size_t)n;
        kept += (size_t)n - used;
        memmove(text, text + used, kept);
        if (kept > ROOM)
            break; /* a line longer than all that is looked at */
    }
    choir_plugin.close(file);
    choir__json_nodes_free(&nodes);
    return 0;
}
