/* The names of a classifier's classes in a config.json, as transformers writes and reads them:
 *
 *     "id2label": {"0": "down", "1": "up"}, "label2id": {"down": 0, "up": 1}
 *
 * Classes without names are LABEL_0, LABEL_1, ... there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/file.h"
#include "nn/models/config.h"

enum { NUMBER = 40 };

/* Writes the name of a class that has none into text and returns it. */
static const char *nameless(int64_t class, char text[NUMBER])
{
    snprintf(text, NUMBER, "LABEL_%lld", (long long)class);
    return text;
}

void choir__config_set_classes(json_t *root, int64_t count, const choir_class_names *names)
{
    json_t *labels = json_object(), *ids = json_object();
    for (int64_t i = 0; i < count; i++) {
        char id[NUMBER], number[NUMBER];
        const char *label = names && i < names->count ? names->name[i] : nameless(i, number);
        snprintf(id, sizeof id, "%lld", (long long)i);
        json_object_set_new(labels, id, json_string(label));
        json_object_set_new(ids, label, json_integer(i));
    }
    json_object_set_new(root, "id2label", labels);
    json_object_set_new(root, "label2id", ids);
}

/* Reads id2label; *named: some class has a name of its own. */
static choir_status read_labels(
    const char *path, const json_t *labels, choir_class_names *names, bool *named)
{
    if (json_object_size(labels) > 0)
        names->name = choir__calloc(json_object_size(labels), sizeof *names->name);
    for (size_t i = 0; i < json_object_size(labels); i++) {
        char id[NUMBER], number[NUMBER];
        snprintf(id, sizeof id, "%zu", i);
        const char *label = json_string_value(json_object_get(labels, id));
        if (!label)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: key 'id2label': expected a text for each class 0, 1, ..., got none for %s",
                path, id);
        *named |= strcmp(label, nameless((int64_t)i, number)) != 0;
        names->name[names->count++] = choir__strdup(label);
    }
    return CHOIR_OK;
}

choir_status choir__config_classes(const char *path, choir_class_names *names)
{
    struct stat s;
    json_error_t why;
    bool folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode), named = false;
    char *file = choir__format("%s%s", path, folder ? "/config.json" : "");
    json_t *root = choir__file_json(file, JSON_REJECT_DUPLICATES, &why);
    const json_t *labels = json_object_get(root, "id2label");
    choir_status status = CHOIR_OK;
    *names = (choir_class_names){0};
    if (!root && why.line < 0)
        status = choir__error(CHOIR_ERR_IO, "%s: %s", file, why.text);
    else if (!root)
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s: expected JSON: line %d: %s", file, why.line, why.text);
    else if (json_is_object(labels))
        status = read_labels(file, labels, names, &named);
    if (!named || status != CHOIR_OK)
        choir_class_names_free(names);
    json_decref(root);
    free(file);
    return status;
}
