/* The beginning of each struct that a plug-in exports as choir_plugin. The loader (plugin.h)
 * reads it before it trusts the rest, so its layout is fixed for all versions. It is a
 * header of its own because C++ sources include it, too. */
#ifndef CHOIR_PLUGIN_HEAD_H
#define CHOIR_PLUGIN_HEAD_H

#include <stdint.h>

typedef struct choir__plugin_head {
    const char *version; /* CHOIR_VERSION */
    uint32_t layout;     /* a digest of the sizes of structs that both sides know */
} choir__plugin_head;

#endif
