/* Translates names, sizes and values of tensors between transformers and GGUF files, in both
 * directions, by the tables of families.c. Names match patterns with '#' for the layer's
 * number; values of a few tensors differ: rows in the order of llama.cpp's rotary positions,
 * transposed matrices, and norms with 1 added. */
#include "checkpoint/gguf/family.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const choir__gguf_family *choir__gguf_family_of(const char *type)
{
    const choir__gguf_family *f = choir__gguf_families;
    while (f->type && strcmp(f->type, type) != 0)
        f++;
    return f->type ? f : NULL;
}

const choir__gguf_family *choir__gguf_family_of_arch(const char *arch)
{
    const choir__gguf_family *f = choir__gguf_families;
    while (f->type && strcmp(f->arch, arch) != 0)
        f++;
    return f->type ? f : NULL;
}

/* Returns whether name is the pattern with a number in place of '#', and that number. */
static bool fits(const char *pattern, const char *name, int *layer)
{
    const char *mark = strchr(pattern, '#');
    const size_t before = mark ? (size_t)(mark - pattern) : strlen(pattern);
    *layer = -1;
    if (strncmp(pattern, name, before) != 0)
        return false;
    name += before;
    if (!mark)
        return !*name;
    const size_t digits = strspn(name, "0123456789");
    if (digits < 1 || digits > 6 || (digits > 1 && *name == '0')) /* one layer has one name */
        return false;
    *layer = atoi(name);
    return !strcmp(mark + 1, name + digits);
}

static char *filled(const char *pattern, int layer)
{
    const char *mark = strchr(pattern, '#');
    return mark ? choir__format("%.*s%d%s", (int)(mark - pattern), pattern, layer, mark + 1)
                : choir__strdup(pattern);
}

char *choir__gguf_rename(const choir__gguf_family *f, const char *name, bool to_gguf,
    choir__gguf_change *change, int *layer)
{
    for (const choir__gguf_name *n = f->names; n->published; n++)
        if (fits(to_gguf ? n->published : n->gguf, name, layer)) {
            *change = n->change;
            return filled(to_gguf ? n->gguf : n->published, *layer);
        }
    return NULL;
}

bool choir__gguf_config_number(const json_t *config, const char *names, double *value)
{
    const json_t *found = NULL;
    char *copy = choir__strdup(names), *rest = copy, *name;
    while (!json_is_number(found) && (name = strsep(&rest, "|")))
        found = json_object_get(config, name);
    free(copy);
    if (!json_is_number(found)) {
        const json_t *rope = json_object_get(config, "rope_parameters");
        if (strcmp(names, "rope_theta") != 0 ||
            !json_is_number(found = json_object_get(rope, names)))
            return false;
    }
    *value = json_number_value(found);
    return true;
}

/* --- values --- */

/* Rotary positions turn entries i and i + D/2 of a head in transformers, 2 i and 2 i + 1 in
 * llama.cpp's first families: the rows that compute a head's entries change places. */
void choir__gguf_pair_rows(
    bool to_gguf, int64_t rows, int64_t heads, size_t row_bytes, const void *from, void *to)
{
    const int64_t each = rows / heads, half = each / 2;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t head = r / each, i = r % each;
        const int64_t paired = head * each + (i < half ? 2 * i : 2 * (i - half) + 1);
        memcpy((char *)to + (size_t)(to_gguf ? paired : r) * row_bytes,
            (const char *)from + (size_t)(to_gguf ? r : paired) * row_bytes, row_bytes);
    }
}

int64_t choir__gguf_paired_heads(choir__gguf_change change, choir__gguf_heads heads)
{
    return change == CHOIR__GGUF_PAIRED      ? heads.heads
           : change == CHOIR__GGUF_PAIRED_KV ? heads.kv_heads
                                             : 0;
}

void choir__gguf_change_values(choir__gguf_change change, bool to_gguf, choir_shape shape,
    choir__gguf_heads heads, const float *from, float *to)
{
    const int64_t rows = shape.dim[0], cols = shape.ndim > 1 ? shape.dim[1] : 1;
    switch (change) {
    case CHOIR__GGUF_PAIRED:
    case CHOIR__GGUF_PAIRED_KV:
        choir__gguf_pair_rows(to_gguf, rows, choir__gguf_paired_heads(change, heads),
            (size_t)cols * sizeof *to, from, to);
        break;
    case CHOIR__GGUF_TRANSPOSED:
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                to[c * rows + r] = from[r * cols + c];
        break;
    case CHOIR__GGUF_PLUS_ONE:
        for (int64_t i = 0; i < rows * cols; i++)
            to[i] = to_gguf ? from[i] + 1 : from[i] - 1;
        break;
    default: memcpy(to, from, (size_t)(rows * cols) * sizeof *to);
    }
}
