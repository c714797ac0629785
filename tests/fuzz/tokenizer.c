/* Files of tokenizers, tokenizer.json and SentencePiece's. Each is loaded and then applied to
 * the file itself. An input "VOCAB\0MERGES" is GPT-2's pair. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include "data/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_tokenizer *tokenizer = NULL;
    choir__ids ids = {0};
    const char *text = (const char *)data, *cut = size ? memchr(text, 0, size) : NULL;
    choir_status status;
    if (size && text[0] == '{' && cut) {
        size_t vocab = (size_t)(cut - text);
        status = choir__gpt2_parse(
            "vocab.json", text, vocab, "merges.txt", cut + 1, size - vocab - 1, &tokenizer);
    } else
        status = choir__tokenizer_parse("tokenizer.json", text, size, &tokenizer);
    if (status == CHOIR_OK) {
        status = choir__tokenizer_encode(tokenizer, NULL, text, size, CHOIR__BEGINNING, &ids);
        if (ids.count > choir_tokenizer_room(tokenizer, size))
            abort();
    }
    choir_tokenizer_free(tokenizer);
    free(ids.id);
    return 0;
}
