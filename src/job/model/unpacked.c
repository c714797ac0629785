/* A GGUF file's small files as a folder, which is there while they are read. Weights are read
 * where they are. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf/import.h"
#include "job/model/unpacked.h"
#include "launch/launchers.h"

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
    return choir__gguf_import_small(path, u->folder);
}

choir_status choir__unpack_tokenizer(const char *path, choir_tokenizer **tokenizer)
{
    choir__unpacked u;
    choir_status status = choir__unpack(path, &u);
    if (status == CHOIR_OK && choir_tokenizer_exists(u.folder))
        status = choir_tokenizer_load(u.folder, tokenizer);
    choir__unpacked_remove(&u);
    return status;
}

choir_status choir__unpack_beside(const char *path, choir_beside **beside)
{
    choir__unpacked u;
    choir_status status = choir__unpack(path, &u);
    if (status == CHOIR_OK)
        status = choir_beside_read(u.folder, beside);
    choir__unpacked_remove(&u);
    return status;
}

void choir__unpacked_remove(choir__unpacked *u)
{
    if (u->folder)
        choir__folder_unmake(u->folder);
    if (u->room)
        rmdir(u->room);
    free(u->folder);
    free(u->room);
}
