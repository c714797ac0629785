/* Files of token ids: a file written block by block equals one written at once; mapping; wrong
 * files. */
#include "folder_fixture.h"
#include <sys/stat.h>
#include "data/tokenizer/tokenizer.h"
#include "data/text/tokens.h"

static char text_path[64], bin_path[64], other_path[64];

static int make_paths(void **state)
{
    int bad = make_folder(state);
    strcpy(text_path, at("text"));
    strcpy(bin_path, at("data.bin"));
    strcpy(other_path, at("data"));
    return bad;
}

static int remove_paths(void **state)
{
    unlink(text_path);
    unlink(bin_path);
    unlink(other_path);
    return remove_folder(state);
}

/* A file of several blocks, with all the places where a cut could go wrong. */
static void as_if_at_once(void **state)
{
    static const char line[] = "We'll see,  don't   we?\r\n\r\n\t12345 na\xc3\xafve\n \n x.y\n";
    static const char *const kinds[] = {
        "gpt2", "llama3.json", "llama2.json", "spm_unigram.model", "bert.json"};
    enum { BYTES = 17 << 18 };
    char *text = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = i % 1009 == 1000 ? 'Q' : line[i % (sizeof line - 1)];
    for (size_t i = 1; i < BYTES; i++) /* the Qs broke characters: mend them */
        if (((unsigned char)text[i] == 0xAF) != ((unsigned char)text[i - 1] == 0xC3))
            text[i - ((unsigned char)text[i] != 0xAF)] = 'z';
    spit(text_path, text, BYTES);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[1024];
        choir_tokenizer *t;
        choir__ids ids = {0};
        int64_t count;
        char *data;
        size_t bytes;
        snprintf(path, sizeof path, "%s/tokenizers/%s", CHOIR_GOLDEN, kinds[k]);
        ok(choir_tokenizer_load(path, &t));
        ok(choir_tokens_write(t, text_path, bin_path, &count));
        ok(choir__tokenizer_encode(t, NULL, text, BYTES, CHOIR__BEGINNING, &ids));
        ok(choir__read_file(bin_path, 0, &data, &bytes));
        assert_int_equal(count, ids.count);
        assert_int_equal(bytes, sizeof(choir__tokens_header) + 2 * (size_t)count);
        const unsigned char *at = (unsigned char *)data + sizeof(choir__tokens_header);
        for (size_t i = 0; i < ids.count; i++)
            if ((at[2 * i] | at[2 * i + 1] << 8) != ids.id[i])
                fail_msg("%s: token %zu differs", kinds[k], i);
        free(data);
        free(ids.id);
        choir_tokenizer_free(t);
    }
    free(text);
}

static void windows(void **state)
{
    uint16_t ids[100];
    int64_t x[4], y[4];
    choir_dataset *d;
    for (int i = 0; i < 100; i++)
        ids[i] = (uint16_t)(1000 + i);
    spit(bin_path, ids, sizeof ids); /* no header: nanoGPT's */
    assert_true(choir__is_token_file(bin_path));
    ok(choir_dataset_tokens(bin_path, 4, CHOIR_TRAIN, 0, &d));
    assert_int_equal(d->classes, 1100);
    assert_int_equal(choir_dataset_length(d), 86);
    ok(choir_dataset_get(d, 85, x, y));
    assert_int_equal(x[0], 1085);
    assert_int_equal(y[3], 1089);
    choir_dataset_free(d);
    ok(choir_dataset_tokens(bin_path, 4, CHOIR_VALIDATION, 2000, &d));
    assert_int_equal(choir_dataset_length(d), 2);
    ok(choir_dataset_get(d, 1, x, y));
    assert_int_equal(x[0], 1094);
    choir_dataset_free(d);
    ok(choir_dataset_tokens(bin_path, 4, CHOIR_TRAIN, 1050, &d));
    ok(choir_dataset_get(d, 45, x, y));
    assert_fails(choir_dataset_get(d, 47, x, y), CHOIR_ERR_RANGE,
        "token 50 is 1050, outside the vocabulary of 1050");
    choir_dataset_free(d);
}

static void llm_c(void **state)
{
    uint32_t words[256 + 40] = {CHOIR__LLMC_LLAMA3, 7, 40};
    int64_t x[2], y[2];
    choir_dataset *d;
    for (uint32_t i = 0; i < 40; i++)
        words[256 + i] = 100000 + i;
    spit(other_path, words, sizeof words);
    assert_true(choir__is_token_file(other_path));
    ok(choir_dataset_tokens(other_path, 2, CHOIR_TRAIN, 0, &d));
    assert_int_equal(d->classes, 100040);
    ok(choir_dataset_get(d, 3, x, y));
    assert_int_equal(y[1], 100005);
    choir_dataset_free(d);
    words[0] = CHOIR__LLMC_GPT2;
    words[1] = 1;
    words[2] = 80;
    spit(other_path, words, sizeof words);
    ok(choir_dataset_tokens(other_path, 2, CHOIR_TRAIN, 0, &d));
    assert_int_equal(choir_dataset_length(d), 70);
    choir_dataset_free(d);
    words[1] = 9;
    spit(other_path, words, sizeof words);
    assert_fails(choir_dataset_tokens(other_path, 2, CHOIR_TRAIN, 0, &d), CHOIR_ERR_FORMAT,
        "unknown version");
}

static void wrong_files(void **state)
{
    choir_dataset *d;
    choir_tokenizer *t;
    struct {
        choir__tokens_header h;
        uint16_t ids[50];
    } file = {.h = {.version = 1, .width = 2, .vocabulary = 300, .count = 50}};
    memcpy(file.h.magic, CHOIR__TOKENS_MAGIC, 8);
#define opens(bytes, vocabulary)                                                               \
    (spit(other_path, &file, bytes),                                                           \
        choir_dataset_tokens(other_path, 4, CHOIR_TRAIN, vocabulary, &d))
    size_t whole = sizeof file.h + sizeof file.ids;
    ok(opens(whole, 300));
    choir_dataset_free(d);
    assert_fails(
        opens(whole, 299), CHOIR_ERR_RANGE, "a vocabulary of 300, the model's has 299");
    assert_fails(opens(whole - 1, 300), CHOIR_ERR_FORMAT, "truncated");
    assert_fails(opens(20, 300), CHOIR_ERR_FORMAT, "impossible sizes");
    assert_fails(opens(0, 300), CHOIR_ERR_FORMAT, "got an empty file");
    file.h.count = UINT64_MAX;
    assert_fails(opens(whole, 300), CHOIR_ERR_FORMAT, "impossible sizes");
    file.h.count = (uint64_t)INT64_MAX / 8;
    assert_fails(opens(whole, 300), CHOIR_ERR_FORMAT, "truncated");
    file.h.magic[0] = 'x';
    assert_fails(opens(whole, 300), CHOIR_ERR_FORMAT, "expected a file of token ids");
    spit(bin_path, "abc", 3);
    assert_fails(
        choir_dataset_tokens(bin_path, 4, CHOIR_TRAIN, 0, &d), CHOIR_ERR_FORMAT, "odd 3");
    spit(bin_path, "abcdefgh", 8);
    assert_fails(choir_dataset_tokens(bin_path, 4, CHOIR_TRAIN, 0, &d), CHOIR_ERR_ARGUMENT,
        "3 tokens in its training split");
    assert_fails(
        choir_dataset_tokens("/nowhere.bin", 4, CHOIR_TRAIN, 0, &d), CHOIR_ERR_IO, "nowhere");
    ok(choir_tokenizer_chars("ab\n", 3, &t));
    spit(text_path, "ab\nac", 5);
    assert_fails(choir_tokens_write(t, text_path, bin_path, NULL), CHOIR_ERR_RANGE, "line 2");
    assert_fails(choir_tokens_write(t, "/nowhere", bin_path, NULL), CHOIR_ERR_IO, "/nowhere");
    assert_fails(
        choir_tokens_write(t, text_path, "/nowhere/x", NULL), CHOIR_ERR_IO, "/nowhere/x");
    choir_tokenizer_free(t);
}

/* Opening a FIFO neither waits nor takes anything from it. */
static void no_files(void **state)
{
    choir_dataset *d;
    unlink(other_path);
    assert_int_equal(mkfifo(other_path, 0600), 0);
    alarm(20); /* it would hang for good */
    assert_false(choir__is_token_file(other_path));
    assert_fails(choir_dataset_tokens(other_path, 4, CHOIR_TRAIN, 0, &d), CHOIR_ERR_IO,
        "expected a regular file");
    assert_fails(choir_dataset_tokens(folder, 4, CHOIR_TRAIN, 0, &d), CHOIR_ERR_IO,
        "expected a file, got a folder");
    int fd = open(other_path, O_RDWR);
    assert_int_equal(write(fd, "choirtok", 8), 8);
    assert_false(choir__is_token_file(other_path));
    char left[8];
    assert_int_equal(read(fd, left, sizeof left), 8);
    close(fd);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_if_at_once),
        cmocka_unit_test(windows),
        cmocka_unit_test(llm_c),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(no_files),
    };
    return cmocka_run_group_tests_name("files of tokens", tests, make_paths, remove_paths);
}
