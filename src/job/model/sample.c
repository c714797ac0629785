/* A sample of a language model's text after its training. */
#include <stdlib.h>
#include <string.h>

#include <choir/generate.h>
#include "base/base.h"
#include "data/tokenizer/tokenizer.h"
#include "job/trainer/trainer.h"

static void put(void *arg, int64_t prompt, const char *text, size_t bytes)
{
    (void)prompt;
    fwrite(text, 1, bytes, arg);
    fflush(arg);
}

/* A text that fills the context is continued behind its later half. Ends of texts are a part of
 * the sample. */
choir_status choir__sample(choir_scope *run, choir_module *net, const choir_model_info *info,
    const choir_tokenizer *tokenizer, int64_t count, FILE *out)
{
    choir_generate_opts opts = choir_generate_defaults();
    int64_t *ids = choir__calloc(1, sizeof *ids), known = tokenizer->begin > 0;
    choir_status status = CHOIR_OK;
    ids[0] = known ? tokenizer->begin - 1 : 0;
    opts.temperature = 0.8;
    opts.top_k = 40;
    opts.no_end = true;
    opts.uncached = true; /* strategies have attention of their own */
    opts.text = put;
    opts.arg = out;
    opts.seed = choir_scope_seed(run);
    while (count > 0 && status == CHOIR_OK) {
        choir_generated g;
        opts.tokens = count;
        status =
            choir_generate(run, net, info, tokenizer, &(choir_prompt){ids, known}, 1, opts, &g);
        if (status == CHOIR_OK) {
            known = choir__min(g.count, info->input.dim[0] / 2);
            ids = choir__realloc(ids, (size_t)(known + 1) * sizeof *ids);
            memcpy(ids, g.tokens + g.count - known, (size_t)known * sizeof *ids);
            count -= g.count;
            opts.seed++;
        }
        choir_generated_free(&g, 1);
    }
    free(ids);
    return status;
}
