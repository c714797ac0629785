/* Names of classes, for models that keep their data's names. */
#include <stdlib.h>

#include "data/dataset.h"

void choir_class_names_free(choir_class_names *names)
{
    if (!names)
        return;
    for (int64_t i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    *names = (choir_class_names){0};
}

void choir_dataset_class_names(
    const choir_dataset *dataset, int64_t count, choir_class_names *names)
{
    if (choir__lacks(dataset, __func__, "dataset") || choir__lacks(names, __func__, "names"))
        return;
    *names = (choir_class_names){0};
    if (!choir_dataset_class_name(dataset, 0))
        return;
    names->name = choir__calloc((size_t)count + 1, sizeof *names->name);
    for (; names->count < count; names->count++) {
        const char *name = choir_dataset_class_name(dataset, names->count);
        names->name[names->count] =
            name ? choir__strdup(name) : choir__format("LABEL_%lld", (long long)names->count);
    }
}

char *choir__class_names_list(const choir_class_names *names)
{
    enum { SHOWN = 20 };
    char *list = choir__strdup("");
    for (int64_t i = 0; i < names->count && i < SHOWN; i++) {
        char *longer = choir__format(
            "%s%s%.60s", list, i ? ", " : "", i + 1 == SHOWN ? "..." : names->name[i]);
        free(list);
        list = longer;
    }
    return list;
}
