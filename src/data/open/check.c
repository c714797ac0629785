/* A check that readers of texts and readers of documents share, in a file of its own because
 * neither includes the other. */
#include "base/base.h"
#include "data/open/reader.h"

choir_status choir__data_check_tokenizer(
    const choir__data_request *r, const choir_tokenizer *tokenizer)
{
    return tokenizer || !r->opts->needs_tokenizer
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "%s: missing the tokenizer that the model's weights belong to: name it by "
                     "--tokenizer FILE, or ask for characters by --tokenizer chars",
                     r->path);
}
