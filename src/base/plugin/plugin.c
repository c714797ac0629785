/* Finding, checking and loading plug-ins.
 *
 * The search is relative to the file that contains this code (libchoir.so, the command or a
 * test), so that a build tree and an installation that was moved both find their own:
 *
 *     build/libchoir.so, build/choir        build/plugins/
 *     build/tests/test_x                    build/plugins/
 *     PREFIX/lib/libchoir.so                PREFIX/lib/choir/
 *     PREFIX/bin/choir                      PREFIX/lib/choir/
 *
 * A plug-in is never unloaded: its libraries have threads and exit handlers. */
#include "base/plugin/plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/floats.h"

static const char here; /* an address in the file that contains this code */

/* --- finding --- */

/* Returns the folder of the file that contains this code, on the heap, or NULL if it is
 * unknown. */
static char *home(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return NULL;
    /* The program itself has no name in the loader's list. */
    char *path = realpath(*map->l_name ? map->l_name : "/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        *slash = '\0';
    return path;
}

static char *in_folder(const char *folder, int length, const char *below, const char *name)
{
    char *path = choir__format("%.*s%s/choir_%s.so", length, folder, below, name);
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

char *choir__plugin_find(const char *name, char **looked)
{
    static const char *const below[] = {
        "/plugins", "/../plugins", "/choir", "/../" CHOIR_LIBDIR "/choir"};
    const char *named = secure_getenv("CHOIR_PLUGIN_PATH");
    char *found = NULL, *folder = home();
    for (const char *at = named; !found && at && *at;) {
        const char *end = strchrnul(at, ':');
        if (end > at)
            found = in_folder(at, (int)(end - at), "", name);
        at = *end ? end + 1 : end;
    }
    for (size_t i = 0; !found && folder && i < CHOIR_COUNT(below); i++)
        found = in_folder(folder, (int)strlen(folder), below[i], name);
    if (!found && looked)
        *looked = choir__format("%s%s%s/plugins and %s/choir", named ? named : "",
            named ? ", " : "", folder ? folder : "", folder ? folder : "");
    free(folder);
    return found;
}

/* --- loading --- */

/* Restores the program's signal handlers after loading: libraries such as UCX install their
 * own, and print a backtrace. */
static void *load(const char *path)
{
    CHOIR__DEFAULT_FLOATS;
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    struct sigaction before[CHOIR_COUNT(signals)];
    for (size_t i = 0; i < CHOIR_COUNT(signals); i++)
        sigaction(signals[i], NULL, &before[i]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (size_t i = 0; i < CHOIR_COUNT(signals); i++)
        sigaction(signals[i], &before[i], NULL);
    return library;
}

static choir_status check(const choir__plugin_head *plugin, uint32_t layout, const char *path)
{
    if (!plugin || !plugin->version)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s is not a plug-in of Choir: it shows no choir_plugin; see CHOIR_PLUGIN_PATH",
            path);
    if (strcmp(plugin->version, CHOIR_VERSION) != 0)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s is a plug-in of Choir %s, and this is %s: install the one that belongs to it",
            path, plugin->version, CHOIR_VERSION);
    if (plugin->layout != layout)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s belongs to another build of Choir %s: build and install both together", path,
            CHOIR_VERSION);
    return CHOIR_OK;
}

choir_status choir__plugin_load(const char *name, const char *what, const char *needs,
    uint32_t layout, const choir__plugin_head **plugin)
{
    choir_status status = CHOIR_OK;
    char *looked = NULL, *path = choir__plugin_find(name, &looked);
    void *library = path ? load(path) : NULL;
    if (!path) {
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s a plug-in, and choir_%s.so is missing in %s: install %s and build Choir with "
            "it, or set CHOIR_PLUGIN_PATH",
            what, name, looked, needs);
    } else if (!library) {
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "the plug-in choir_%s.so can't be loaded: %s: is %s installed?", name, dlerror(),
            needs);
    } else {
        *plugin = dlsym(library, "choir_plugin");
        status = check(*plugin, layout, path);
    }
    free(looked);
    free(path);
    return status;
}
