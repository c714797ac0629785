/* Texts and words with classes, from JSON lines and tables: the tokens, types, mask and classes
 * of a sample, the splits, and files with faults. */
#include "folder_fixture.h"
#include <sys/stat.h>

#include <choir/choir.h>

enum { PAD, UNK, CLS, SEP, A, B, CC, SUB, T = 8 };

static choir_tokenizer *tokenizer;

static int make(void **state)
{
    assert_int_equal(make_folder(state), 0);
    put("tokenizer.json",
        "{\"added_tokens\":[{\"id\":0,\"content\":\"[PAD]\",\"special\":true},"
        "{\"id\":2,\"content\":\"[CLS]\",\"special\":true},"
        "{\"id\":3,\"content\":\"[SEP]\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
        "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"
        "\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4,\"b\":5,\"c\":6,"
        "\"##b\":7}}}");
    return choir_tokenizer_load(at("tokenizer.json"), &tokenizer);
}

static int clear(void **state)
{
    choir_tokenizer_free(tokenizer);
    return remove_all(state);
}

static choir_dataset *open_split(const char *path, choir_split split, bool words)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    choir_dataset *d = NULL;
    opts.context = T;
    opts.words = words;
    ok(choir_dataset_labelled(path, split, opts, tokenizer, &d));
    return d;
}

typedef struct expected {
    int64_t ids[T], types[T];
    int length;
} expected;

static void is_sample(choir_dataset *d, int64_t index, expected e, int64_t class)
{
    int64_t x[3 * T], y, mask[T] = {0};
    for (int i = 0; i < e.length; i++)
        mask[i] = 1;
    ok(choir_dataset_get(d, index, x, &y));
    assert_memory_equal(x, e.ids, sizeof e.ids);
    assert_memory_equal(x + T, e.types, sizeof e.types);
    assert_memory_equal(x + 2 * T, mask, sizeof mask);
    assert_int_equal(y, class);
}

/* --- samples --- */

static void sequences(void **state)
{
    mkdir(at("one"), 0777);
    put("one/dev.jsonl", "{\"text\": \"a\", \"label\": \"no\"}\n");
    put("one/train.jsonl", "{\"text\": \"a ab\", \"label\": \"yes\"}\n"
                           "\n"
                           "{\"label\": \"no\", \"sentence\": \"\"}\n"
                           "{\"text\": \"a b c a b c a b\", "
                           "\"label\": \"yes\"}");
    choir_dataset *d = open_split(at("one"), CHOIR_TRAIN, false);
    assert_int_equal(choir_dataset_length(d), 3);
    assert_int_equal(d->classes, 2);
    assert_string_equal(choir_dataset_class_name(d, 0), "no");
    assert_string_equal(choir_dataset_class_name(d, 1), "yes");
    assert_null(choir_dataset_class_name(d, 2));
    is_sample(d, 0, (expected){{CLS, A, A, SUB, SEP}, {0}, 5}, 1);
    is_sample(d, 1, (expected){{CLS, SEP}, {0}, 2}, 0);
    is_sample(d, 2, (expected){{CLS, A, B, CC, A, B, CC, SEP}, {0}, 8}, 1);
    choir_dataset_free(d);
}

/* The longer of two texts is shortened first. If both are too long and of equal length, the
 * second keeps one token more. */
static void pairs(void **state)
{
    choir_dataset *d = open_split(put("two.csv", "sentence1,label,sentence2\r\n"
                                                 "a,3,\"b, \"\"c\"\"\"\r\n"
                                                 "a a a a a a,0,b\r\n"
                                                 "\"a a a\na\",1,b b b b\r\n"),
        CHOIR_TRAIN, false);
    assert_int_equal(d->classes, 4);
    assert_null(choir_dataset_class_name(d, 0)); /* numbers */
    is_sample(
        d, 0, (expected){{CLS, A, SEP, B, UNK, UNK, CC, SEP}, {0, 0, 0, 1, 1, 1, 1, 1}, 8}, 3);
    is_sample(d, 1, (expected){{CLS, A, A, A, A, SEP, B, SEP}, {0, 0, 0, 0, 0, 0, 1, 1}, 8}, 0);
    is_sample(d, 2, (expected){{CLS, A, A, SEP, B, B, B, SEP}, {0, 0, 0, 0, 1, 1, 1, 1}, 8}, 1);
    choir_dataset_free(d);
}

static void words(void **state)
{
    int64_t x[3 * T], y[T];
    const int64_t no = CHOIR_IGNORED, want[T] = {no, 1, 0, no, 1, no, no, no};
    choir_dataset *d =
        open_split(put("ner.jsonl", "{\"tokens\": [\"a\", \"ab\", \"c\"], \"ner_tags\": "
                                    "[\"O\", \"B-X\", \"O\"]}"),
            CHOIR_TRAIN, true);
    ok(choir_dataset_get(d, 0, x, y));
    assert_memory_equal(y, want, sizeof want);
    const int64_t ids[T] = {CLS, A, A, SUB, CC, SEP};
    assert_memory_equal(x, ids, sizeof ids);
    assert_int_equal(d->y_shape.dim[0], T);
    choir_dataset_free(d);
}

/* --- splits --- */

static void one_of_ten_is_held_out(void **state)
{
    char text[2000] = "label\ttext\n";
    for (int i = 0; i < 25; i++)
        snprintf(text + strlen(text), 40, "%d\t\"a\n", i); /* tabs quote nothing */
    const char *path = put("many.tsv", text);
    choir_dataset *train = open_split(path, CHOIR_TRAIN, false),
                  *held = open_split(path, CHOIR_VALIDATION, false);
    assert_int_equal(choir_dataset_length(train), 23);
    assert_int_equal(choir_dataset_length(held), 2);
    assert_int_equal(held->classes, 25);
    is_sample(held, 1, (expected){{CLS, UNK, A, SEP}, {0}, 4}, 10);
    is_sample(train, 9, (expected){{CLS, UNK, A, SEP}, {0}, 4}, 11);
    choir_dataset_free(train);
    choir_dataset_free(held);
}

/* Where labels take turns, the validation split has all of them. */
static void turns_are_held_out(void **state)
{
    char text[4000] = "label,text\n";
    int64_t x[3 * T], y, seen[2] = {0};
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), 20, "%d,a\n", i % 2);
    choir_dataset *held = open_split(put("turns.csv", text), CHOIR_VALIDATION, false);
    assert_int_equal(choir_dataset_length(held), 10);
    for (int64_t i = 0; i < 10; i++) {
        ok(choir_dataset_get(held, i, x, &y));
        seen[y]++;
    }
    assert_in_range(seen[0], 3, 7);
    choir_dataset_free(held);
}

/* A class of which no text comes up gives its second one: of 7 texts of x, 2 of y and 1 of z,
 * the one at 8, an x, and the second y. */
static void each_class_is_held_out(void **state)
{
    char text[1000] = "label,text\n";
    for (int i = 0; i < 10; i++)
        snprintf(text + strlen(text), 20, "%s,a\n",
            i == 0             ? "z"
            : i == 2 || i == 9 ? "y"
                               : "x");
    const char *path = put("few.csv", text);
    choir_dataset *train = open_split(path, CHOIR_TRAIN, false),
                  *held = open_split(path, CHOIR_VALIDATION, false);
    int64_t x[3 * T], y, of[3] = {0};
    assert_int_equal(choir_dataset_length(held), 2);
    assert_int_equal(choir_dataset_length(train), 8);
    for (int64_t i = 0; i < 2; i++, of[y]++)
        ok(choir_dataset_get(held, i, x, &y));
    assert_true(of[0] == 1 && of[1] == 1 && of[2] == 0);
    for (int64_t i = 0; i < 8; i++, of[y]++)
        ok(choir_dataset_get(train, i, x, &y));
    assert_true(of[0] == 7 && of[1] == 2 && of[2] == 1);
    choir_dataset_free(train);
    choir_dataset_free(held);
}

static void folders(void **state)
{
    mkdir(at("set"), 0777);
    put("set/train.jsonl",
        "{\"text\":\"a\",\"label\":\"x\"}\n{\"text\":\"b\",\"label\":\"y\"}\n");
    put("set/dev.csv", "text,label\nb,y\n");
    choir_dataset *held = open_split(at("set"), CHOIR_VALIDATION, false);
    assert_int_equal(choir_dataset_length(held), 1);
    assert_int_equal(held->classes, 2);
    is_sample(held, 0, (expected){{CLS, B, SEP}, {0}, 3}, 1);
    choir_dataset_free(held);
}

/* Special tokens may be in the vocabulary alone. */
static void specials_of_the_vocabulary(void **state)
{
    choir_tokenizer *plain;
    choir_dataset *d;
    choir_labelled_opts opts = choir_labelled_defaults();
    opts.context = T;
    put("plain.json", "{\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
                      "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
                      "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"
                      "\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4}}}");
    const char *path = put("a.csv", "text,label\na,1\na,0\n");
    ok(choir_tokenizer_load(at("plain.json"), &plain));
    ok(choir_dataset_labelled(path, CHOIR_TRAIN, opts, plain, &d));
    is_sample(d, 0, (expected){{CLS, A, SEP}, {0}, 3}, 1);
    choir_dataset_free(d);
    choir_tokenizer_free(plain);
}

/* Splits in numbered files, in the folder's folder data, as the Hugging Face Hub has them. */
static void numbered_files(void **state)
{
    choir_dataset *d;
    choir_labelled_opts opts = choir_labelled_defaults();
    mkdir(at("hub"), 0777);
    mkdir(at("hub/data"), 0777);
    put("hub/data/train-00001-of-00002.csv", "text,label\nb,y\n");
    assert_fails(choir_dataset_labelled(at("hub"), CHOIR_TRAIN, opts, tokenizer, &d),
        CHOIR_ERR_FORMAT,
        "expected the file train-00000-of-00002, got train-00001-of-00002.csv");
    put("hub/data/train-00000-of-00002.csv", "text,label\na,x\na,y\n");
    put("hub/data/validation-00000-of-00001-a09b74b3ef9c3b56.csv", "text,label\nb,y\n");
    d = open_split(at("hub"), CHOIR_TRAIN, false);
    assert_int_equal(choir_dataset_length(d), 3);
    is_sample(d, 0, (expected){{CLS, A, SEP}, {0}, 3}, 0);
    is_sample(d, 2, (expected){{CLS, B, SEP}, {0}, 3}, 1);
    choir_dataset_free(d);
    d = open_split(at("hub"), CHOIR_VALIDATION, false);
    assert_int_equal(choir_dataset_length(d), 1);
    is_sample(d, 0, (expected){{CLS, B, SEP}, {0}, 3}, 1);
    choir_dataset_free(d);
    put("hub/data/validation-00000-of-00003.csv", "text,label\nb,y\n");
    assert_int_equal(choir_dataset_labelled(at("hub"), CHOIR_VALIDATION, opts, tokenizer, &d),
        CHOIR_ERR_FORMAT);
    unlink(at("hub/data/validation-00000-of-00001-a09b74b3ef9c3b56.csv"));
    assert_fails(choir_dataset_labelled(at("hub"), CHOIR_VALIDATION, opts, tokenizer, &d),
        CHOIR_ERR_FORMAT, "expected the file validation-00001-of-00003, got the 1 before it");
}

/* The classes of a model: labels are mapped to them by name, or are numbers of classes. */
static void given_classes(void **state)
{
    char *names[] = {"y", "x", "y"};
    const choir_class_names classes = {names, 3};
    choir_labelled_opts opts = choir_labelled_defaults();
    choir_dataset *d;
    opts.context = T;
    opts.classes = &classes;
    const char *path = put("given.csv", "text,label\na,x\nb,y\na,x\n");
    ok(choir_dataset_labelled(path, CHOIR_TRAIN, opts, tokenizer, &d));
    assert_int_equal(d->classes, 3);
    is_sample(d, 0, (expected){{CLS, A, SEP}, {0}, 3}, 1);
    is_sample(d, 1, (expected){{CLS, B, SEP}, {0}, 3}, 0);
    choir_class_names kept;
    choir_dataset_class_names(d, 4, &kept);
    assert_int_equal(kept.count, 4);
    assert_string_equal(kept.name[1], "x");
    assert_string_equal(kept.name[3], "LABEL_3");
    choir_class_names_free(&kept);
    choir_dataset_free(d);

    path = put("given.csv", "text,label\na,2\nb,1\n");
    ok(choir_dataset_labelled(path, CHOIR_TRAIN, opts, tokenizer, &d));
    is_sample(d, 0, (expected){{CLS, A, SEP}, {0}, 3}, 2);
    choir_dataset_free(d);

    const struct {
        const char *text, *why;
    } wrong[] = {{"text,label\na,x\nb,z\n", "line 3: the label 'z' is not one of the model's"},
        {"text,label\na,3\n", "the label 3 is not one of the model's 3 classes"},
        {"text,label\na,x\nb,1\n", "line 3: the label '1' is not one of the model's classes"},
        {"text,label\na,1\nb,x\n", "the label 1 is not one of the model's 3 classes"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        path = put("given.csv", wrong[i].text);
        assert_int_not_equal(
            choir_dataset_labelled(path, CHOIR_TRAIN, opts, tokenizer, &d), CHOIR_OK);
        assert_says(wrong[i].why);
    }
}

/* --- texts without classes --- */

static void texts_without_classes(void **state)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    choir_texts texts = {0};
    choir_dataset *d;
    opts.context = T;
    choir_texts_add(&texts, "a b", NULL, false);
    choir_texts_add(&texts, "a", "c", false);
    ok(choir_texts_read(put("no.csv", "text,text_pair\nab,b\n"), opts, &texts));
    assert_int_equal(texts.count, 3);
    ok(choir_dataset_texts(&texts, opts, tokenizer, &d));
    assert_int_equal(choir_dataset_length(d), 3);
    is_sample(d, 0, (expected){{CLS, A, B, SEP}, {0}, 4}, 0);
    is_sample(d, 1, (expected){{CLS, A, SEP, CC, SEP}, {0, 0, 0, 1, 1}, 5}, 0);
    is_sample(d, 2, (expected){{CLS, A, SUB, SEP, B, SEP}, {0, 0, 0, 0, 1, 1}, 6}, 0);
    choir_dataset_free(d);
    assert_int_not_equal(choir_texts_read(put("no.csv", "mood\nup\n"), opts, &texts), CHOIR_OK);
    assert_says("line 2: missing the column 'text'");
    choir_texts_free(&texts);
    assert_int_equal(texts.count, 0);
    assert_int_not_equal(choir_dataset_texts(&texts, opts, tokenizer, &d), CHOIR_OK);
}

/* The target of a word's first token is its index; the last word does not fit. */
static void words_without_classes(void **state)
{
    const int64_t no = CHOIR_IGNORED;
    const int64_t want[2][T] = {{no, 0, 1, no, 2, no, 4, no}, {no, 0, 1, no, no, no, no, no}};
    int64_t x[3 * T], y[T];
    choir_labelled_opts opts = choir_labelled_defaults();
    choir_texts texts = {0};
    choir_dataset *d;
    opts.context = T;
    opts.words = true;
    ok(choir_texts_read(put("no.jsonl", "{\"tokens\":[\"a\",\"ab\",\"ab\","
                                        "\"\",\"b\",\"c\"]}\n"
                                        "{\"text\":\" a\\tb \"}\n"),
        opts, &texts));
    assert_int_equal(texts.text[1].word_count, 2);
    assert_string_equal(texts.text[1].words[1], "b");
    ok(choir_dataset_texts(&texts, opts, tokenizer, &d));
    for (int i = 0; i < 2; i++) {
        ok(choir_dataset_get(d, i, x, y));
        assert_memory_equal(y, want[i], sizeof y);
    }
    choir_dataset_free(d);
    choir_texts_free(&texts);
}

/* --- faults --- */

static void refused(const char *path, const char *why)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    choir_dataset *d = NULL;
    opts.context = T;
    assert_int_not_equal(
        choir_dataset_labelled(path, CHOIR_TRAIN, opts, tokenizer, &d), CHOIR_OK);
    assert_says(why);
}

static void faults(void **state)
{
    refused(put("f.jsonl", "{\"text\":\"a\",\"label\":1}\n[1]\n"),
        "f.jsonl, line 2: expected an object");
    refused(put("f.jsonl", "{\"text\":\"a\""),
        "line 1, column 12: expected a comma or the end of an object");
    refused(put("f.jsonl", "{\"text\":\"a\"}"), "line 1: missing the column 'label'");
    refused(put("f.jsonl", "{\"label\":\"a\"}"), "line 1: missing the column 'text'");
    refused(
        put("f.csv", "label,text\na,x\n,y\n"), "line 3: expected a label, got an empty text");
    refused(put("f.jsonl", "{\"text\":3,\"label\":1}"), "expected texts as strings");
    refused(put("f.jsonl", "{\"text\":\"a\",\"label\":1.5}"), "a text or a whole number");
    refused(put("f.jsonl", "{\"text\":\"a\",\"label\":123456789012}"), "too large");
    refused(put("f.csv", "text,label\na,1\n\n\"b\n"),
        "f.csv, line 4, column 1: a quoted field has no end");
    refused(put("f.csv", "text,label\n\"a\nb\",1\nc\n"), "line 4: expected 2 fields");
    refused(put("f.csv", "text,label\n\"a\"b,1\n"),
        "line 2, column 4: a quote ends within a field");
    refused(put("f.csv", "text,label\n\xff,1\n"), "line 2, column 1: expected UTF-8");
    refused(put("f.csv", "text,label\n"), "the training split has no samples");
    refused(put("f.csv", ""), "the training split has no samples");
    refused(at("none.csv"), "none.csv");
    put("set/dev.csv", "text,label\nb,z\n");
    choir_dataset *d;
    choir_labelled_opts opts = choir_labelled_defaults();
    assert_fails(choir_dataset_labelled(at("set"), CHOIR_VALIDATION, opts, tokenizer, &d),
        CHOIR_ERR_FORMAT, "'z' is not in the training");
    choir_tokenizer *bytes;
    ok(choir_tokenizer_bytes(&bytes));
    assert_fails(choir_dataset_labelled(at("one.jsonl"), CHOIR_TRAIN, opts, bytes, &d),
        CHOIR_ERR_ARGUMENT, "[CLS], [SEP] and [PAD]");
    choir_tokenizer_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences),
        cmocka_unit_test(pairs),
        cmocka_unit_test(words),
        cmocka_unit_test(one_of_ten_is_held_out),
        cmocka_unit_test(turns_are_held_out),
        cmocka_unit_test(each_class_is_held_out),
        cmocka_unit_test(folders),
        cmocka_unit_test(specials_of_the_vocabulary),
        cmocka_unit_test(numbered_files),
        cmocka_unit_test(given_classes),
        cmocka_unit_test(texts_without_classes),
        cmocka_unit_test(words_without_classes),
        cmocka_unit_test(faults),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
