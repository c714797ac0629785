/* ./answer FOLDER PROMPT: a published model's answer, which appears as it is written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/choir.h>

static void show(void *arg, int64_t prompt, const char *text, size_t bytes)
{
    (void)arg, (void)prompt;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 2 ? argv[1] : "model", *prompt = argc > 2 ? argv[2] : "";
    char *config, *notes;
    choir_model_info info;
    choir_tokenizer *words;
    choir_generated answer;
    int64_t ids[4096], count;
    choir_scope *run = choir_scope_open(NULL, 42); /* NULL: the default device */

    choir_check(choir_model_read_config(folder, &config, &notes));
    choir_check(choir_model_describe(config, &info));
    choir_module *net = choir_model_build(run, &info);
    choir_check(choir_model_load_weights(net, &info, folder, CHOIR_HEAD_KEPT, &notes));
    choir_check(choir_tokenizer_load(folder, &words));
    choir_check(choir_tokenizer_encode_whole(words, prompt, strlen(prompt), ids, 4096, &count));

    choir_generate_opts opts = choir_generate_defaults();
    opts.temperature = 0; /* the likeliest token each time */
    opts.text = show;
    choir_check(
        choir_generate(run, net, &info, words, &(choir_prompt){ids, count}, 1, opts, &answer));
    printf("\n%lld tokens: %s\n", (long long)answer.count, choir_stopped_name(answer.stopped));
    choir_generated_free(&answer, 1);
    choir_tokenizer_free(words);
    return choir_scope_close(run) != CHOIR_OK;
}
