/* A GGUF file that a command runs: its model as a folder, which is there while it is loaded.
 * The weights are f32 in it, which holds the values of all types of blocks exactly. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf/import.h"
#include "job/model/saved.h"
#include "launch/launchers.h"

static void remove_one(const char *folder, const char *name, void *arg)
{
    char *path = choir__format("%s/%s", folder, name);
    (void)arg;
    unlink(path);
    free(path);
}

choir_status choir__unpack(const char *path, choir__unpacked *u)
{
    const char *place = choir__variable("TMPDIR");
    u->room = choir__format("%s/choir-gguf-XXXXXX", place ? place : "/tmp");
    u->folder = NULL;
    if (!mkdtemp(u->room)) {
        choir_status status =
            choir__error(CHOIR_ERR_IO, "cannot make %s: %s", u->room, choir__why(errno));
        free(u->room);
        u->room = NULL;
        return status;
    }
    u->folder = choir__format("%s/model", u->room);
    return choir__gguf_import(
        path, u->folder, CHOIR_F32, "TMPDIR=FOLDER names a folder of another disk");
}

void choir__unpacked_remove(choir__unpacked *u)
{
    if (u->folder && access(u->folder, F_OK) == 0) {
        choir__folder_walk(u->folder, remove_one, NULL);
        rmdir(u->folder);
    }
    if (u->room)
        rmdir(u->room);
    free(u->folder);
    free(u->room);
}
