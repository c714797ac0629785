/* Characters without a token: tokens of their bytes, one token for all of them, or an error. */
#include "data/tokenizer/models.h"

bool choir__unknown_bytes(choir__unknown *u, const choir__vocab *keys)
{
    static const char digit[] = "0123456789ABCDEF";
    for (int i = 0; i < 256; i++) {
        char key[] = {'<', '0', 'x', digit[i >> 4], digit[i & 15], '>'};
        u->byte[i] = (int32_t)choir__vocab_find(keys, key, sizeof key);
        if (u->byte[i] < 0) {
            u->byte[0] = -1;
            return false;
        }
    }
    return true;
}

bool choir__unknown_add(
    const choir__unknown *u, const char *at, size_t bytes, bool again, choir__ids *ids)
{
    if (u->byte[0] >= 0) {
        for (size_t i = 0; i < bytes; i++)
            choir__ids_add(ids, u->byte[(unsigned char)at[i]]);
        return true;
    }
    if (u->id < 0)
        return false;
    if (!again || !u->fuse)
        choir__ids_add(ids, u->id);
    return true;
}
