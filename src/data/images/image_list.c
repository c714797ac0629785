/* Listing of images: the names in a folder, and in the folders there. */
#include "data/images/image_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/text.h"
#include "data/dataset.h"

enum { DEEPEST = 32 };

void choir__name_list_add(choir__name_list *n, const char *name)
{
    CHOIR__GROW(n->name, n->count);
    n->name[n->count++] = choir__strdup(name);
}

void choir__name_list_free(choir__name_list *n)
{
    for (int64_t i = 0; i < n->count; i++)
        free(n->name[i]);
    free(n->name);
    *n = (choir__name_list){0};
}

bool choir__is_folder_at(const char *path, const char *name)
{
    struct stat info;
    char *whole = choir__format("%s/%s", path, name);
    bool folder = stat(whole, &info) == 0 && S_ISDIR(info.st_mode);
    free(whole);
    return folder;
}

/* Returns whether a name ends in one of the endings, in either case. */
static bool ends_in(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');
    for (; dot && *endings; endings++)
        if (!strcasecmp(dot, *endings))
            return true;
    return false;
}

static const char *const readable[] = {".jpg", ".jpeg", ".png", NULL};
/* Images to torchvision, which are not read here. */
static const char *const unreadable[] = {
    ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", NULL};

bool choir__is_image_name(const char *name)
{
    return ends_in(name, readable);
}

static choir_status open_folder(const char *path, DIR **dir)
{
    *dir = opendir(path);
    return *dir ? CHOIR_OK
                : choir__error(CHOIR_ERR_IO, "%s: no folder that can be read: %s", path,
                      strerror(errno));
}

static bool is_folder_entry(const char *path, const struct dirent *e)
{
    bool known = e->d_type == DT_DIR || e->d_type == DT_REG;
    return known ? e->d_type == DT_DIR : choir__is_folder_at(path, e->d_name);
}

choir_status choir__list_folders(const char *path, choir__name_list *n)
{
    DIR *dir;
    choir_status status = open_folder(path, &dir);
    if (status != CHOIR_OK)
        return status;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && is_folder_entry(path, e))
            choir__name_list_add(n, e->d_name);
    closedir(dir);
    if (n->count)
        qsort(n->name, (size_t)n->count, sizeof *n->name, choir__by_text);
    return CHOIR_OK;
}

/* Adds the images of a folder in its folder `inside` ("" or "a/b/") and in the folders there.
 */
static choir_status add_images(
    const char *root, const char *inside, int depth, choir__name_list *n)
{
    choir__name_list folders = {0};
    DIR *dir = NULL;
    char *path = choir__format("%s/%s", root, inside);
    choir_status status = depth < DEEPEST
                              ? open_folder(path, &dir)
                              : choir__error(CHOIR_ERR_FORMAT,
                                    "%s: folders are nested deeper than %d", path, DEEPEST);
    for (struct dirent *e; dir && status == CHOIR_OK && (e = readdir(dir));) {
        char *name = choir__format("%s%s", inside, e->d_name);
        if (e->d_name[0] == '.')
            ; /* leftovers of other programs */
        else if (is_folder_entry(path, e))
            choir__name_list_add(&folders, name);
        else if (choir__is_image_name(name))
            choir__name_list_add(n, name);
        else if (ends_in(name, unreadable))
            status = choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s%s: expected JPEG or PNG images alone: convert the file or move it away",
                path, e->d_name);
        free(name);
    }
    if (dir)
        closedir(dir);
    for (int64_t i = 0; i < folders.count && status == CHOIR_OK; i++) {
        char *deeper = choir__format("%s/", folders.name[i]);
        status = add_images(root, deeper, depth + 1, n);
        free(deeper);
    }
    choir__name_list_free(&folders);
    free(path);
    return status;
}

/* Orders paths by their folder, then by the file's name. */
static int by_folder(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    const char *end_x = strrchr(x, '/'), *end_y = strrchr(y, '/');
    size_t in_x = end_x ? (size_t)(end_x - x) : 0, in_y = end_y ? (size_t)(end_y - y) : 0;
    int order = memcmp(x, y, in_x < in_y ? in_x : in_y);
    if (order == 0 && in_x != in_y)
        order = in_x < in_y ? -1 : 1;
    return order ? order : strcmp(x, y);
}

choir_status choir__list_images(const char *folder, choir__name_list *n)
{
    choir_status status = add_images(folder, "", 0, n);
    if (n->count)
        qsort(n->name, (size_t)n->count, sizeof *n->name, by_folder);
    return status;
}
