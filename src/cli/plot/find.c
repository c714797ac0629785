/* The runs that words of the command line name. A folder with metrics.jsonl is a run. Any other
 * folder stands for the runs in it, up to three levels below, as in choir watch, in the order
 * of their names, with numbers as numbers: trial 2 comes before trial 10.
 *
 *     runs/             first/metrics.jsonl            search/  0/checkpoint/metrics.jsonl
 *                       second/metrics.jsonl                    1/checkpoint/metrics.jsonl
 *
 * A word that names neither stays as it is: reading it tells why it is no run. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/folders.h"
#include "cli/plot/find.h"
#include "base/files/run_files.h"

enum { DEPTH = 3, MOST_FOLDERS = 4096 };

typedef struct search {
    choir__plot_runs *runs;
    const char *place; /* the word that is searched */
    int most, looked_at;
} search;

static choir_status add(choir__plot_runs *runs, const char *path, int most, bool found)
{
    if (runs->count == most)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected at most %d runs, got more (the next is %s): name the runs to draw", most,
            path);
    CHOIR__GROW(runs->run, runs->count);
    runs->run[runs->count++] = (choir__plot_run){choir__strdup(path), found};
    return CHOIR_OK;
}

static int may_be_folder(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "latest") != 0 &&
           strcmp(entry->d_name, "best") != 0; /* links of a run to its checkpoints */
}

static choir_status look_in(search *s, const char *folder, int depth);

static choir_status look_at(search *s, const char *path, int depth)
{
    if (!choir__is_folder(path))
        return CHOIR_OK;
    if (++s->looked_at > MOST_FOLDERS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has more than %d folders: name the runs in it", s->place, MOST_FOLDERS);
    if (!choir__folder_has(path, CHOIR__METRICS_FILE))
        return depth ? look_in(s, path, depth - 1) : CHOIR_OK;
    return add(s->runs, path, s->most, true);
}

static choir_status look_in(search *s, const char *folder, int depth)
{
    struct dirent **list;
    choir_status status = CHOIR_OK;
    int count = scandir(folder, &list, may_be_folder, versionsort);
    for (int i = 0; i < count; i++) {
        const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
        char *path = choir__format("%s%s%s", folder, slash, list[i]->d_name);
        if (status == CHOIR_OK)
            status = look_at(s, path, depth);
        free(path);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    return status;
}

choir_status choir__plot_find(char *const *words, int count, int most, choir__plot_runs *runs)
{
    choir_status status = CHOIR_OK;
    *runs = (choir__plot_runs){0};
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        search s = {.runs = runs, .place = words[i], .most = most};
        int before = runs->count;
        if (choir__is_folder(words[i]) && !choir__folder_has(words[i], CHOIR__METRICS_FILE))
            status = look_in(&s, words[i], DEPTH - 1);
        if (status == CHOIR_OK && runs->count == before)
            status = add(runs, words[i], most, false);
    }
    return status;
}

void choir__plot_runs_free(choir__plot_runs *runs)
{
    for (int i = 0; i < runs->count; i++)
        free(runs->run[i].path);
    free(runs->run);
    *runs = (choir__plot_runs){0};
}
