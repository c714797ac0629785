/* The names of a classifier's classes: kept in the record of its job, and in the config.json of
 * a published model. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/base.h"
#include "job/job.h"

void choir__job_record_classes(json_t *record, const choir_class_names *classes)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < classes->count; i++)
        json_array_append_new(list, json_string(classes->name[i]));
    if (classes->count)
        json_object_set(record, "classes", list);
    json_decref(list);
}

choir_status choir__classes_of_record(const json_t *record, choir_class_names *classes)
{
    const json_t *list = json_object_get(record, "classes");
    bool good = !list || json_is_array(list);
    *classes = (choir_class_names){0};
    if (json_array_size(list) > 0)
        classes->name = choir__calloc(json_array_size(list), sizeof *classes->name);
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        good = name != NULL;
        if (good)
            classes->name[classes->count++] = choir__strdup(name);
    }
    if (good)
        return CHOIR_OK;
    choir_class_names_free(classes);
    return choir__error(
        CHOIR_ERR_FORMAT, "job.json: key 'classes': expected a list of the classes' names");
}

char *choir__classes_note(const choir_dataset *data, const choir_class_names *classes)
{
    enum { SHOWN = 20 };
    char *note = NULL;
    size_t bytes;
    FILE *out = data->numbered ? open_memstream(&note, &bytes) : NULL;
    for (int64_t c = 0; out && c < choir__min(classes->count, SHOWN); c++)
        fprintf(out, "%s%lld is %s",
            c ? ", " : "labels are numbers of the model's classes: ", (long long)c,
            classes->name[c]);
    if (out && classes->count > SHOWN)
        fprintf(out, ", ...");
    if (out)
        fclose(out);
    return note;
}

/* Reads the names of classes from a folder's config.json, if it has one. */
static choir_status of_config(const char *folder, choir_class_names *classes)
{
    struct stat s;
    char *config = choir__format("%s/config.json", folder);
    choir_status status =
        stat(config, &s) == 0 ? choir_model_class_names(config, classes) : CHOIR_OK;
    free(config);
    return status;
}

choir_status choir__classes_of_saved(const char *path, choir_class_names *classes)
{
    char found[PATH_MAX], *job = NULL;
    choir_status status = CHOIR_OK;
    *classes = (choir_class_names){0};
    if (choir_training_find(path, found) != CHOIR_OK) /* a published folder */
        return of_config(path, classes);
    status = choir_training_job(found, &job);
    json_t *record = job ? json_loads(job, 0, NULL) : NULL;
    if (status == CHOIR_OK)
        status = choir__classes_of_record(record, classes);
    if (status == CHOIR_OK && !classes->count)
        status = of_config(found, classes);
    json_decref(record);
    free(job);
    return status;
}
