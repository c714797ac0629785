/* The files of a folder's splits. A split is one file or several numbered ones, as the Hugging
 * Face Hub has them, in the folder itself or in its folder data:
 *
 *     FOLDER/train.jsonl
 *     FOLDER/data/train-00000-of-00002.parquet, FOLDER/data/train-00001-of-00002.parquet
 *
 * Older ones have a hash behind the numbers: train-00000-of-00001-a09b74b3ef9c3b56.parquet. */
#include "data/record_parts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"

static const char *const training_names[] = {"train", NULL};
static const char *const validation_names[] = {"validation", "val", "dev", "test", NULL};

/* --- numbered files --- */

/* Returns the text after the digits at `text` and stores their number; NULL without digits, or
 * if they exceed a long. */
static const char *number_at(const char *text, long *number)
{
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits > 9)
        return NULL;
    *number = strtol(text, NULL, 10);
    return text + digits;
}

/* Takes the name of NAME-I-of-N[-HASH].SUFFIX apart; returns false if it is another. */
static bool read_number(
    const char *file, const char *name, const char *suffix, long *index, long *count)
{
    size_t bytes = strlen(name);
    if (strncmp(file, name, bytes) || file[bytes] != '-')
        return false;
    const char *at = number_at(file + bytes + 1, index);
    at = at && !strncmp(at, "-of-", 4) ? number_at(at + 4, count) : NULL;
    const char *dot = at ? strrchr(at, '.') : NULL;
    return dot && !strcmp(dot + 1, suffix) && (dot == at || *at == '-');
}

/* Adds the numbered files of a split in the order of their names, which is also the order of
 * their numbers. */
static void add_numbered(
    choir__name_list *files, const char *folder, const char *name, const char *suffix)
{
    struct dirent **entries;
    long index, of;
    int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *path = choir__format("%s/%s", folder, entries[i]->d_name);
        if (read_number(entries[i]->d_name, name, suffix, &index, &of))
            choir__name_list_add(files, path);
        free(path);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* Numbered files must be there from 0 on, each once. */
static choir_status check_numbers(
    const choir__name_list *files, const char *folder, const char *name)
{
    long index = 0, count = 0, of = 0;
    for (int64_t i = 0; i < files->count; i++) {
        const char *file = strrchr(files->name[i], '/') + 1, *suffix = strrchr(file, '.') + 1;
        if (!read_number(file, name, suffix, &index, &of))
            return CHOIR_OK; /* the only one: NAME.SUFFIX */
        count = i ? count : of;
        if (index != i || of != count)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: expected the file %s-%05lld-of-%05ld, got %s", folder, name, (long long)i,
                count, file);
    }
    return files->count == count
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: expected the file %s-%05lld-of-%05ld, got the %lld before it", folder,
                     name, (long long)files->count, count, (long long)files->count);
}

/* --- folders --- */

/* Adds the files of the first name and suffix that the folder has; returns that name. */
static const char *add_first(
    choir__name_list *files, const char *folder, const char *const *names)
{
    static const char *const suffixes[] = {"jsonl", "csv", "tsv", "parquet"};
    for (int n = 0; names[n]; n++)
        for (size_t s = 0; s < CHOIR_COUNT(suffixes); s++) {
            char *path = choir__format("%s/%s.%s", folder, names[n], suffixes[s]);
            if (access(path, R_OK) == 0)
                choir__name_list_add(files, path);
            else
                add_numbered(files, folder, names[n], suffixes[s]);
            free(path);
            if (files->count)
                return names[n];
        }
    return NULL;
}

/* Adds the training files of the folder or of its folder data; returns the one that has them,
 * which the caller frees, or NULL. */
static char *add_training(choir__name_list *files, const char *path)
{
    static const char *const places[] = {"", "/data"};
    for (size_t i = 0; i < CHOIR_COUNT(places); i++) {
        char *folder = choir__format("%s%s", path, places[i]);
        if (add_first(files, folder, training_names))
            return folder;
        free(folder);
    }
    return NULL;
}

bool choir__has_records(const char *path)
{
    if (choir__is_record_file(path))
        return true;
    choir__name_list files = {0};
    free(add_training(&files, path));
    bool found = files.count > 0;
    choir__name_list_free(&files);
    return found;
}

choir_status choir__data_record_parts_find(const char *path, choir__data_record_parts *parts)
{
    *parts = (choir__data_record_parts){0};
    char *folder = choir__is_record_file(path) ? NULL : add_training(&parts->train, path);
    if (!folder) {
        choir__name_list_add(&parts->train, path);
        return CHOIR_OK;
    }
    const char *held = add_first(&parts->held, folder, validation_names);
    choir_status status = check_numbers(&parts->train, folder, training_names[0]);
    if (status == CHOIR_OK && held)
        status = check_numbers(&parts->held, folder, held);
    free(folder);
    return status;
}

void choir__data_record_parts_free(choir__data_record_parts *parts)
{
    choir__name_list_free(&parts->train);
    choir__name_list_free(&parts->held);
}

choir_status choir__data_record_parts_read(
    const choir__name_list *files, choir__data_record_fn *fn, void *arg)
{
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < files->count && status == CHOIR_OK; i++)
        status = choir__data_records_read(files->name[i], fn, arg);
    return status;
}
