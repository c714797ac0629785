/* A stream for several ranks is read when they have been forked: they come from a process
 * without another thread at work. A chat's markers are tokens as in files. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <choir/stream.h>
#include "check.h"
#include "data/text/corpus.h"

static void *first_rank(void *arg)
{
    bool whole = false;
    return choir_stream_wait(arg, 0, 0, &whole) == CHOIR_OK && whole ? arg : NULL;
}

static void test_waits_for_all(void **state)
{
    enum { LINES = 200 };
    const char line[] = "to be, or not to be\n";
    choir_tokenizer *tokenizer;
    choir_stream *stream;
    choir_stream_opts opts = {.context = 8, .batch_size = 2, .validation = 1};
    pthread_t rank;
    void *good;
    bool whole = false;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < LINES; i++)
        assert_int_equal(write(ends[1], line, strlen(line)), strlen(line));
    close(ends[1]);
    ok(choir_tokenizer_bytes(&tokenizer));
    ok(choir_stream_open(ends[0], "a pipe", tokenizer, opts, &stream));
    assert_int_equal(choir_stream_read(stream), CHOIR_ERR_STATE);
    ok(choir_stream_start(stream, 2));
    assert_int_equal(pthread_create(&rank, NULL, first_rank, stream), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_int_equal(choir_stream_tokens(stream), 0);
    ok(choir_stream_read(stream));
    assert_int_equal(choir_stream_read(stream), CHOIR_ERR_STATE);
    ok(choir_stream_wait(stream, 1, 0, &whole));
    assert_true(whole);
    pthread_join(rank, &good);
    assert_ptr_equal(good, stream);
    assert_true(choir_stream_tokens(stream) > 2 * 8);
    /* it reads all, since the ring has room for it, and is freed with its memory */
    while (choir_stream_wait(stream, 1, 1000, &whole) == CHOIR_OK && whole)
        ;
    assert_false(whole);
    choir_stream_free(stream);
    choir_tokenizer_free(tokenizer);
    close(ends[0]);
}

static choir_status open_chat(bool fixed, choir_tokenizer **tokenizer)
{
    static const char chat[] =
        "{\"text\": \"a\"}\n{\"messages\": [{\"role\": \"r\", \"content\": \"c\"}]}\n";
    choir_stream_opts opts = {.context = 2, .batch_size = 1, .validation = 2};
    choir_stream *stream = NULL;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], chat, strlen(chat)), strlen(chat));
    close(ends[1]);
    ok(choir_tokenizer_bytes(tokenizer));
    ok(choir__settle_end_of_text("", false, tokenizer));
    choir_status status =
        choir__gpu_stream_open(ends[0], "a pipe", tokenizer, fixed, &opts, &stream);
    choir_stream_free(stream);
    close(ends[0]);
    return status;
}

static void test_chats_need_their_markers(void **state)
{
    choir_tokenizer *tokenizer;
    assert_fails(open_chat(true, &tokenizer), CHOIR_ERR_FORMAT, "line 2: column 'messages'");
    assert_int_equal(choir_tokenizer_size(tokenizer), 257);
    choir_tokenizer_free(tokenizer);
    ok(open_chat(false, &tokenizer));
    assert_int_equal(choir_tokenizer_id(tokenizer, "<|im_end|>"), 258);
    choir_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_all), cmocka_unit_test(test_chats_need_their_markers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
