/* The destinations of a job's records are checked before the training: two of them in one place
 * would spoil each other, and a table would replace a file that is not a table. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/files/file.h"
#include "job/job.h"
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

char *choir__job_destination(const char *dest)
{
    const choir__recorder_ops *ops;
    const char *place;
    bool is_path = choir__recorder_find(dest, &ops, &place) == CHOIR_OK && *ops->place != ':' &&
                   !strstr(place, "://");
    return is_path ? whole_name(dest) : choir__strdup(dest);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static choir_status check_table(const choir__job_data *d, const char *dest)
{
    const char *place = dest + strlen("csv:");
    if (strncmp(dest, "csv:", strlen("csv:")))
        return CHOIR_OK;
    return d->path && is_same_file(place, d->path)
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

static bool takes_histograms(const char *dest)
{
    const choir__recorder_ops *ops;
    const char *place;
    return choir__recorder_find(dest, &ops, &place) == CHOIR_OK && ops->histogram;
}

bool choir__job_has_histograms(const choir__job_records *r)
{
    bool has = false;
    char *all = choir__strdup(r->logs ? r->logs : ""), *rest = all, *dest;
    while ((dest = strsep(&rest, "\n")) && *dest)
        has |= takes_histograms(dest);
    free(all);
    return has;
}

static choir_status no_histograms(const choir__job_records *r)
{
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--log-histograms %lld: no log of this job takes histograms: add --log tensorboard:DIR",
        (long long)r->log_histograms);
}

choir_status choir__job_check_logs(const choir__job *j)
{
    const char *folder = j->records.run ? j->records.run : j->saves.dir;
    char *all = choir__strdup(j->records.logs ? j->records.logs : "");
    char *run = folder ? choir__format("run:%s", folder) : NULL;
    char *rest = all, *dest, **names = choir__calloc(strlen(all) + 1, sizeof *names);
    int count = 0;
    choir_status status = CHOIR_OK;
    if (run) /* apart from the list, because a folder's name may have line ends */
        names[count++] = whole_name(run);
    while (status == CHOIR_OK && (dest = strsep(&rest, "\n")) && *dest) {
        names[count] = whole_name(dest);
        status = check_place(names, count++, dest);
        if (status == CHOIR_OK)
            status = check_table(&j->data, dest);
    }
    if (status == CHOIR_OK && j->records.log_histograms > 0 &&
        !choir__job_has_histograms(&j->records))
        status = no_histograms(&j->records);
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    free(run);
    free(all);
    return status;
}
