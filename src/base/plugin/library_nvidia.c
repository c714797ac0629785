/* The search for cuDNN and NCCL: the folder that an environment variable names, the dynamic
 * linker's own search, the folders around the CUDA runtime in use, and the environment's
 * folders of libraries. The linker comes before our own guesses, so LD_LIBRARY_PATH and the
 * plug-in's RUNPATH keep their usual meaning. */
#include "base/plugin/library_nvidia.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/floats.h"

enum { PATH_BYTES = 1024, LOOKED_BYTES = 1400 };

typedef struct search {
    const choir__nvidia_library *of;
    char found[PATH_BYTES];    /* "": not yet */
    char looked[LOOKED_BYTES]; /* the folders without it */
} search;

static void look_in(search *s, const char *folder)
{
    char path[PATH_BYTES];
    if (*s->found || snprintf(path, sizeof path, "%s/%s", folder, s->of->file) >= PATH_BYTES)
        return;
    if (access(path, R_OK) == 0) {
        strcpy(s->found, path);
        return;
    }
    size_t used = strlen(s->looked);
    snprintf(s->looked + used, sizeof s->looked - used, ", %s", folder);
}

/* Looks in the folders that a pattern of the shell matches. */
__attribute__((format(printf, 2, 3))) static void look_by(search *s, const char *format, ...)
{
    char pattern[PATH_BYTES];
    glob_t all;
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(pattern, sizeof pattern, format, args);
    va_end(args);
    if (bytes >= PATH_BYTES || glob(pattern, GLOB_NOCHECK, NULL, &all))
        return;
    for (size_t i = 0; i < all.gl_pathc; i++)
        look_in(s, all.gl_pathv[i]);
    globfree(&all);
}

/* Looks beside libcudart, and in the wheel that is installed beside libcudart's own:
 * nvidia/cu13/lib or nvidia/cuda_runtime/lib, and nvidia/cudnn/lib. */
static void look_near(search *s, const void *runtime)
{
    char folder[PATH_BYTES];
    Dl_info info;
    if (!runtime || !dladdr(runtime, &info) || !info.dli_fname ||
        strlen(info.dli_fname) >= sizeof folder)
        return;
    strcpy(folder, info.dli_fname);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return;
    *slash = '\0';
    look_in(s, folder);
    slash = strrchr(folder, '/');
    if (!slash || strcmp(slash, "/lib"))
        return;
    *slash = '\0';
    slash = strrchr(folder, '/');
    if (slash)
        look_by(s, "%.*s/%s/lib", (int)(slash - folder), folder, s->of->package);
}

static void look_by_environment(search *s)
{
    static const char *const toolkits[] = {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"};
    static const char *const pythons[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    for (size_t i = 0; i < CHOIR_COUNT(toolkits); i++) {
        const char *root = getenv(toolkits[i]);
        if (root && *root) {
            look_by(s, "%s/lib64", root);
            look_by(s, "%s/lib", root);
        }
    }
    for (size_t i = 0; i < CHOIR_COUNT(pythons); i++) {
        const char *root = getenv(pythons[i]);
        if (root && *root)
            look_by(s, "%s/lib/python3*/site-packages/nvidia/%s/lib", root, s->of->package);
    }
}

static choir_status find_and_open(
    const choir__nvidia_library *library, const char *const *names, size_t count, void *table)
{
    search s = {.of = library};
    const char *named = getenv(library->variable);
    if (named && *named) {
        look_in(&s, named);
        look_by(&s, "%s/lib64", named);
        look_by(&s, "%s/lib", named);
    }
    if (!*s.found) {
        void *known = dlopen(library->file, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
        if (known)
            return choir__library_open(library->file, names, count, table);
        look_near(&s, library->runtime);
        look_by_environment(&s);
    }
    if (*s.found)
        return choir__library_open(s.found, names, count, table);
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s is missing: no %s where the dynamic linker looks%s; install it, or name its folder "
        "by %s",
        library->name, library->file, s.looked, library->variable);
}

choir_status choir__library_open_nvidia(
    choir__nvidia_library *l, const char *const *names, size_t count, void *table)
{
    CHOIR__DEFAULT_FLOATS;
    pthread_mutex_lock(&l->lock);
    if (!l->tried) {
        l->status = find_and_open(l, names, count, table);
        if (l->status != CHOIR_OK)
            snprintf(l->why, sizeof l->why, "%s", choir_error_message());
        l->tried = true;
    }
    pthread_mutex_unlock(&l->lock);
    return l->status == CHOIR_OK ? CHOIR_OK : choir__error(l->status, "%s", l->why);
}
