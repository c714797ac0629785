/* The build id: a note among the program's headers, which stays when symbols are stripped. It
 * follows from the linked contents, so equal sources and compilers give equal ids. */
#include "base/plugin/build_id.h"

#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 12 };

static char id[DIGITS + 1];

/* Returns whether the object's loaded memory contains this file's code. */
static int is_own(const struct dl_phdr_info *object)
{
    const uintptr_t here = (uintptr_t)&choir__build_id;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        uintptr_t from = object->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && here >= from && here - from < p->p_memsz)
            return 1;
    }
    return 0;
}

static size_t padded(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

/* Looks for the linker's note in one header's notes. */
static void read_notes(const char *notes, size_t size)
{
    ElfW(Nhdr) n;
    for (size_t at = 0; size - at >= sizeof n;) {
        memcpy(&n, notes + at, sizeof n);
        const size_t name = padded(n.n_namesz), length = padded(n.n_descsz);
        at += sizeof n;
        if (name > size - at || length > size - at - name)
            return;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(notes + at, "GNU", 4))
            for (size_t i = 0; i < DIGITS / 2 && i < n.n_descsz; i++)
                snprintf(id + 2 * i, 3, "%02x", (unsigned char)notes[at + name + i]);
        at += name + length;
    }
}

static int look(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!is_own(object))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        if (p->p_type == PT_NOTE)
            read_notes((const char *)(object->dlpi_addr + p->p_vaddr), p->p_memsz);
    }
    return 1;
}

static void find(void)
{
    dl_iterate_phdr(look, NULL);
}

const char *choir__build_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return id;
}
