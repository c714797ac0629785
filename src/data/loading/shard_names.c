/* The tars that a path names: NAME.tar, NAME-{000..010}.tar, or a folder's by their names. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/loading/shards.h"

enum { MOST_SHARDS = 100000 };

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

bool choir__is_tar_name(const char *name)
{
    return ends_in(name, ".tar");
}

choir_status choir__file_shards_list(choir__name_list *files, const char *path)
{
    const char *open = strchr(path, '{'), *dots = open ? strstr(open, "..") : NULL;
    const char *close = dots ? strchr(dots, '}') : NULL;
    char *first_end, *last_end;
    if (!close) {
        choir__name_list_add(files, path);
        return CHOIR_OK;
    }
    static const char digits[] = "0123456789";
    size_t widest = 9, from = strspn(open + 1, digits), to = strspn(dots + 2, digits);
    long first = strtol(open + 1, &first_end, 10), last = strtol(dots + 2, &last_end, 10);
    if (!from || !to || from > widest || to > widest || first_end != dots ||
        last_end != close || first < 0 || last < first || last - first >= MOST_SHARDS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a range of at most %d tars, such as {000..010}", path, MOST_SHARDS);
    for (long i = first; i <= last; i++) {
        char *name = choir__format(
            "%.*s%0*ld%s", (int)(open - path), path, (int)(dots - open - 1), i, close + 1);
        choir__name_list_add(files, name);
        free(name);
    }
    return CHOIR_OK;
}

static bool begins_with(const char *text, const char *begin)
{
    return !strncmp(text, begin, strlen(begin));
}

static bool is_other_tar(const char *name, const char *begin)
{
    (void)begin;
    return choir__is_tar_name(name) && !begins_with(name, "val") && !begins_with(name, "test");
}

static bool is_tar_of(const char *name, const char *begin)
{
    return choir__is_tar_name(name) && begins_with(name, begin);
}

/* Adds the folder's tars for which `takes` is true, in the order of their names; returns their
 * number. */
static int64_t add_tars(choir__name_list *files, const char *folder,
    bool (*takes)(const char *name, const char *begin), const char *begin)
{
    int64_t before = files->count;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && takes(e->d_name, begin)) {
            char *path = choir__format("%s/%s", folder, e->d_name);
            choir__name_list_add(files, path);
            free(path);
        }
    if (dir)
        closedir(dir);
    if (files->count > before)
        qsort(files->name + before, (size_t)(files->count - before), sizeof *files->name,
            choir__by_text);
    return files->count - before;
}

choir_status choir__shards_find(const char *path, choir__shard_files *f)
{
    if (choir__is_tar_name(path))
        return choir__file_shards_list(&f->all, path);
    f->training = add_tars(&f->all, path, is_tar_of, "train");
    if (!f->training)
        f->training = add_tars(&f->all, path, is_other_tar, "");
    f->splits =
        add_tars(&f->all, path, is_tar_of, "val") || add_tars(&f->all, path, is_tar_of, "test");
    return CHOIR_OK;
}

bool choir__is_shards(const char *path)
{
    choir__name_list files = {0};
    if (choir__is_tar_name(path))
        return true;
    int64_t count = add_tars(&files, path, is_tar_of, "");
    choir__name_list_free(&files);
    return count > 0;
}
