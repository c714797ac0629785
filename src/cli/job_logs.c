/* The destinations of a job's records are checked before the training: two of them in one place
 * would spoil each other, and a table would replace a file that is none. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/options.h"
#include "cli/job.h"
#include "record/recorder.h"

/* Returns the destination with an absolute path, so that two spellings of a place are equal. */
static char *whole_name(const char *dest)
{
    char path[PATH_MAX], folder[PATH_MAX];
    const char *place = strchr(dest, ':') + 1, *slash = strrchr(place, '/');
    int kind = (int)(place - dest);
    if (realpath(place, path))
        return choir__format("%.*s%s", kind, dest, path);
    const char *name = slash ? slash + 1 : place;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - place), place);
    return realpath(slash ? folder : ".", path)
               ? choir__format("%.*s%s/%s", kind, dest, path, name)
               : choir__strdup(dest);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static choir_status check_table(const choir__job *j, const char *dest)
{
    const char *place = dest + strlen("csv:");
    if (strncmp(dest, "csv:", strlen("csv:")))
        return CHOIR_OK;
    return j->data && is_same_file(place, j->data)
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "--log %s: this file is the data of the job: choose another one", dest)
               : choir__csv_check(place);
}

/* Checks destination i of the list against those before it. */
static choir_status check_place(char **names, int i, const char *dest)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(names[k], names[i]))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "--log %s: the records of this job are there already; name each place once",
                dest);
    return CHOIR_OK;
}

/* Checks what would otherwise be found only when the log is opened, which costs its records. */
static choir_status check_port(const char *dest)
{
    const char *port = strrchr(dest, ':') + 1;
    int64_t number;
    if (strncmp(dest, "metrics:", strlen("metrics:")))
        return CHOIR_OK;
    return strcspn(port, " +-") && choir__parse_int(port, 1, 65535, &number)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "--log %s: expected :PORT or HOST:PORT, with a port from 1 to 65535",
                     dest);
}

static bool has_histograms(const char *dest)
{
    const choir__recorder_ops *ops;
    const char *place;
    return choir__recorder_find(dest, &ops, &place) == CHOIR_OK && ops->histogram;
}

static choir_status no_histograms(const choir__job *j)
{
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--log-histograms %lld: no log of this job takes histograms: add --log tensorboard:DIR",
        (long long)j->log_histograms);
}

/* Calls a function for each destination of --log, until it fails. */
static choir_status each(
    const choir__job *j, choir_status (*check)(const char *dest, void *arg), void *arg)
{
    char *all = choir__strdup(j->logs ? j->logs : ""), *rest = all, *dest;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (dest = strsep(&rest, "\n")) && *dest)
        status = check(dest, arg);
    free(all);
    return status;
}

static choir_status check_word(const char *dest, void *takers)
{
    *(int *)takers += has_histograms(dest);
    return check_port(dest);
}

choir_status choir__job_check_log_words(const choir__job *j)
{
    int takers = 0;
    choir_status status = each(j, check_word, &takers);
    return status == CHOIR_OK && j->log_histograms > 0 && !takers ? no_histograms(j) : status;
}

typedef struct places {
    const choir__job *job;
    char **names; /* (count) of those that were checked */
    int count;
} places;

static choir_status check_one(const char *dest, void *arg)
{
    places *p = arg;
    p->names[p->count] = whole_name(dest);
    choir_status status = check_place(p->names, p->count++, dest);
    return status == CHOIR_OK ? check_table(p->job, dest) : status;
}

choir_status choir__job_check_logs(const choir__job *j)
{
    const char *folder = j->run ? j->run : j->save;
    places p = {j, choir__calloc((j->logs ? strlen(j->logs) : 0) + 1, sizeof(char *)), 0};
    char *own = folder ? choir__format("run:%s", folder) : NULL;
    choir_status status = own ? check_one(own, &p) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = each(j, check_one, &p);
    for (int i = 0; i < p.count; i++)
        free(p.names[i]);
    free(p.names);
    free(own);
    return status;
}
