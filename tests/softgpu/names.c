/* Asks addr2line, which is installed with the compiler. */
#include "names.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 400 };

/* Stores the function and the line of an address of a loaded object; "?" where they are not
 * known. Returns false if there is no such object. */
static bool ask(const void *address, char function[MOST], char line[MOST], char offset[MOST])
{
    char command[MOST + 100];
    Dl_info info;
    if (!dladdr(address, &info))
        return false;
    unsigned long at = (unsigned long)((uintptr_t)address - (uintptr_t)info.dli_fbase);
    snprintf(function, MOST, "?");
    snprintf(line, MOST, "?");
    snprintf(offset, MOST, "%.380s+0x%lx", info.dli_fname, at);
    snprintf(command, sizeof command, "addr2line -C -f -s -e '%.380s' 0x%lx 2>/dev/null",
        info.dli_fname, at);
    FILE *f = popen(command, "r");
    if (!f)
        return true;
    if (!fgets(function, MOST, f) || !fgets(line, MOST, f))
        snprintf(line, MOST, "?");
    pclose(f);
    return true;
}

const char *softgpu_line_of(const char *instruction)
{
    static char text[2][MOST];
    static int turn;
    char function[MOST], line[MOST], offset[MOST];
    char *out = text[turn++ % 2];
    if (!ask(instruction, function, line, offset))
        return "an unknown place";
    line[strcspn(line, " \n")] = 0;
    snprintf(out, MOST, "%s", line[0] == '?' ? offset : line);
    return out;
}

const char *softgpu_kernel_name(const softgpu_kernel *k)
{
    static char name[MOST];
    char line[MOST], offset[MOST];
    if (!ask((const void *)(uintptr_t)k->kernel, name, line, offset))
        return "a kernel";
    name[strcspn(name, "(\n")] = 0;
    return name;
}
