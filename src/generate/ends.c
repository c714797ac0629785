/* The tokens at which a model's users stop: the union of what the files of its folder say. A
 * chat model whose generation_config.json was left from its base names the end of a text there,
 * and the end of a turn as the tokenizer's. */
#include <choir/generate.h>

#include "base/base.h"
#include "data/beside.h"
#include "data/text/corpus.h"

typedef struct list {
    int64_t *ids, room, count;
    int64_t seen[64]; /* files name a few; more are not looked for */
} list;

static void add(list *l, const choir_tokenizer *t, int64_t id)
{
    if (id < 0 || id >= choir_tokenizer_size(t) || l->count == (int64_t)CHOIR_COUNT(l->seen))
        return;
    for (int64_t i = 0; i < l->count; i++)
        if (l->seen[i] == id)
            return;
    if (l->ids && l->count < l->room)
        l->ids[l->count] = id;
    l->seen[l->count++] = id;
}

static void add_of_file(list *l, const choir_tokenizer *t, const char *file)
{
    json_t *root = choir__beside_json(t->beside, file);
    const json_t *ids = json_object_get(root, "eos_token_id");
    if (json_is_integer(ids))
        add(l, t, json_integer_value(ids));
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_is_integer(json_array_get(ids, i)))
            add(l, t, json_integer_value(json_array_get(ids, i)));
    json_decref(root);
}

int64_t choir_generate_ends(const choir_tokenizer *tokenizer, int64_t *ids, int64_t room)
{
    list l = {.ids = ids, .room = room};
    if (choir__lacks(tokenizer, __func__, "tokenizer"))
        return 0;
    add_of_file(&l, tokenizer, CHOIR__BESIDE_WRITE);
    add_of_file(&l, tokenizer, CHOIR__BESIDE_MODEL);
    add(&l, tokenizer, choir__end_of_text(tokenizer));
    return l.count;
}
