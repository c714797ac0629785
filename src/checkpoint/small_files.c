/* The small files that a checkpoint has besides its tensors and its state: its tokenizer, its
 * job, and the files beside a published model's weights. Chat templates with names are in a
 * folder of their own, as transformers has them, and so are files that Choir does not know. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/folder.h"
#include "checkpoint/state.h"
#include "data/beside.h"

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

static bool is_shard(const char *name)
{
    return (starts_with(name, "model") || starts_with(name, "optimizer")) &&
           strstr(name, ".safetensors");
}

/* The name of small file `index`, NULL beyond the last; not of files in folders. */
static const char *small_file(int index)
{
    static const char *const own[] = {
        CHOIR__TOKENIZER_FILE, CHOIR__OWN_TOKENIZER_FILE, CHOIR__JOB_FILE};
    enum { OWN = CHOIR_COUNT(own) };
    return index < OWN ? own[index] : choir__beside_names[index - OWN];
}

choir_status choir__small_files(
    const char *folder, choir_status (*each)(const char *name, void *arg), void *arg)
{
    choir_status status = CHOIR_OK;
    const char *name;
    for (int i = 0; (name = small_file(i)) && status == CHOIR_OK; i++)
        if (choir__folder_has(folder, name))
            status = each(name, arg);
    char **others = choir__beside_list_others(folder);
    for (int i = 0; others && others[i]; i++) {
        if (status == CHOIR_OK)
            status = each(others[i], arg);
        free(others[i]);
    }
    free(others);
    return status;
}

/* --- copies --- */

struct copying {
    const char *from, *to;
    bool published, walked; /* walked: files outside of folders are copied already */
    choir_status status;
};

static choir_status copy_small(const char *name, void *arg)
{
    const struct copying *c = arg;
    const char *as = c->published ? choir__beside_published_name(name) : name;
    if (c->walked && !choir__beside_is_other(name))
        return CHOIR_OK;
    if (choir__folder_has(c->to, as) || (c->published && !strcmp(name, CHOIR__JOB_FILE)))
        return CHOIR_OK;
    if (as == name)
        return choir__folder_copy(c->from, c->to, name);
    char *from = choir__format("%s/" CHOIR__BESIDE_UNKNOWN, c->from);
    choir_status status = choir__folder_copy(from, c->to, as);
    free(from);
    return status;
}

/* In a published folder, folders hold other programs' weights; the one of chat templates is
 * copied. */
static void copy_published(const char *from, const char *name, void *arg)
{
    struct copying *c = arg;
    struct stat info;
    char *path = choir__format("%s/%s", from, name);
    if (c->status == CHOIR_OK && choir__beside_goes_through(name) && stat(path, &info) == 0 &&
        S_ISREG(info.st_mode))
        c->status = choir__folder_copy(from, c->to, name);
    free(path);
}

choir_status choir__small_files_copy(const char *from, const char *to, bool published)
{
    const bool walked = !choir__folder_has(from, CHOIR__STATE_FILE);
    struct copying c = {from, to, published, walked, CHOIR_OK};
    if (walked)
        choir__folder_walk(from, copy_published, &c);
    return c.status == CHOIR_OK ? choir__small_files(from, copy_small, &c) : c.status;
}

/* --- names --- */

/* Returns whether a name is the name of one of the small files, or begins with one, as names of
 * unfinished files do. */
static bool is_small(const char *file, bool whole)
{
    const char *name;
    for (int i = 0; (name = small_file(i)); i++)
        if (whole ? !strcmp(file, name) : starts_with(file, name))
            return true;
    return false;
}

bool choir__is_part_name(const char *name)
{
    return choir__beside_is_other(name) ||
           (!strchr(name, '/') && (is_shard(name) || is_small(name, true)));
}

/* Removes a file of the folder of unknown ones. */
static void unlink_unknown(const char *dir, const char *name, void *arg)
{
    (void)arg;
    char *path = choir__format("%s/%s", dir, name);
    unlink(path);
    free(path);
}

/* Removes a chat template with a name, or an unfinished one, whose name is longer. */
static void unlink_template(const char *dir, const char *name, void *arg)
{
    (void)arg;
    char *path = choir__format("%s/%s", dir, name);
    const char *end = strstr(name, CHOIR__BESIDE_END);
    if (end && (!end[strlen(CHOIR__BESIDE_END)] || strstr(end, ".tmp")))
        unlink(path);
    free(path);
}

void choir__part_remove(const char *dir, const char *name, void *arg)
{
    (void)arg;
    const bool unknown = !strcmp(name, CHOIR__BESIDE_UNKNOWN),
               others = unknown || !strcmp(name, CHOIR__BESIDE_OTHERS);
    if (!others && !is_shard(name) && !is_small(name, false) &&
        !starts_with(name, CHOIR__STATE_FILE))
        return;
    struct stat info;
    char *path = choir__format("%s/%s", dir, name);
    if (others && lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        choir__folder_walk(path, unknown ? unlink_unknown : unlink_template, NULL);
        rmdir(path);
    } else {
        unlink(path); /* what a link leads to stays */
    }
    free(path);
}
