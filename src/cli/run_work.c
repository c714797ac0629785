/* The work of the ranks of choir run, where that is `choir train`: its options. Agents compare
 * it, so a machine that joins with another training, or by mistake joins another job at the
 * endpoint, is refused before any rank starts. Of other programs nothing is known or compared.
 * Machines may have other processors: the ranks settle a class of bits that all of them have.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/torchrun.h"
#include "base/text.h"
#include "job/job.h"
#include "line/values.h"

/* Returns the number of words of an option that may differ between nodes; 0: it is not such an
 * option. */
static int words_of_own(const char *word)
{
    if (strncmp(word, "--", 2))
        return 0;
    size_t length = strcspn(word + 2, "=");
    char *name = choir__format("%.*s", (int)length, word + 2);
    const choir__line_option *o = choir__line_named(choir__job_options, name);
    free(name);
    if (!o || !o->of_a_rank)
        return 0;
    return o->argument && !word[2 + length] ? 2 : 1;
}

static bool is_training(char **command)
{
    const char *name = strrchr(command[0], '/');
    return !strcmp(name ? name + 1 : command[0], "choir") && command[1] &&
           !strcmp(command[1], "train");
}

char *choir__run_work(char **command)
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    char hex[17];
    if (!command || !command[0] || !is_training(command))
        return choir__strdup("");
    choir__text_buffer all = {0};
    choir__text_buffer_put(&all, "choir train");
    for (char **word = command + 2; *word; word++) {
        int skipped = words_of_own(*word);
        if (skipped) {
            word += skipped == 2 && word[1] ? 1 : 0;
            continue;
        }
        choir__text_format(&all, " %s", *word);
    }
    char *text = choir__strdup(all.bytes);
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text, strlen(text), NULL, 0);
    sodium_bin2hex(hex, sizeof hex, hash, 8);
    choir__text_buffer_clear(&all);
    choir__text_format(&all, "%.300s [%s]", text, hex);
    free(text);
    return all.bytes;
}
