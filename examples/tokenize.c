/* Converts a text to a file of token ids, for choir train:  tokenize TOKENIZER TEXT DATA.bin */
#include <stdio.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    choir_tokenizer *tokenizer;
    choir_dataset *data;
    int64_t count, x[8], y[8];
    if (argc == 4)
        choir_check(choir_tokenizer_load(argv[1], &tokenizer));
    else
        choir_check(choir_tokenizer_bytes(&tokenizer)); /* the text is argv[0], this program */

    const char *text = argc == 4 ? argv[2] : argv[0];
    const char *path = argc == 4 ? argv[3] : "/tmp/choir-tokenize-example.bin";
    choir_check(choir_tokens_write(tokenizer, text, path, &count));
    printf("%s: %lld tokens of %lld\n", path, (long long)count,
        (long long)choir_tokenizer_size(tokenizer));

    /* A sample of a language model: x, and y, which is x shifted by one token. */
    choir_check(choir_dataset_tokens(path, 8, CHOIR_TRAIN, 0, &data));
    choir_check(choir_dataset_get(data, 0, x, y));
    printf("%lld windows to train on, the first:", (long long)choir_dataset_length(data));
    for (int i = 0; i < 8; i++)
        printf(" %lld", (long long)x[i]);
    printf(" | %lld\n", (long long)y[7]);

    choir_dataset_free(data);
    if (argc != 4)
        remove(path);
    choir_tokenizer_free(tokenizer);
    return 0;
}
