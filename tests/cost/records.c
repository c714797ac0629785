/* Files of records and of words beside images. Of the harness of records, the first byte is 0:
 * .jsonl, 1: .csv, 2: .tsv, 3: .json. */
#include "cases.h"

#define LONG "an_unusually_long_beginning_that_all_of_these_names_have_in_common_"
#define CHAT "{\"messages\":["
#define DOC  "{\"file_name\":\"a.png\",\"ground_truth\":\"{\\\"gt_parse\\\":"

static void make_lines(blob *input, const cost_case *c, size_t n)
{
    append(input, "", 1);
    append_usual(input, c, n);
}

#ifdef COST_PARQUET
/* 1,024 rows of one text of 2 MB, in 319 bytes. Arrow's own allocators are not counted, so it
 * has to use the system's. */
static void make_equal_texts(blob *input, const cost_case *c, size_t n)
{
    char file[1024];
    (void)n;
    setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1);
    FILE *f = fopen(c->begin, "rb");
    append(input, file, f ? fread(file, 1, sizeof file, f) : 0);
    if (f)
        fclose(f);
}
#endif

static const cost_case cases[] = {
#ifdef COST_PARQUET
    {"parquet: equal texts", read_parquet, COST_PARQUET "/equal_texts.parquet",
        .memory = 1 << 18, /* 64 MiB are free */
        .make = make_equal_texts},
#endif
    {"csv: quotes in one row", read_records, "\1text\n", "\"a\"\"", "", 20000},
    {"csv: quoted fields in one row", read_records, "\1text\n", "\"a\",", "", 20000},
    {"csv: lines in one field", read_records, "\1text\n\"", "a\n", "\"\n", 20000},
    {"csv: quotes within fields", read_records, "\1text\n", "a\"b,", "", 20000},
    {"csv: an open quote in each row", read_records, "\1text\n", "a\"b\n", "", 5000},
    {"csv: quoted rows", read_records, "\1text\n", "\"a \"\"line\"\" %zu\"\n", "", 3000},
    {"csv: columns", read_records, "\1", "c%zu,", "text\n", 4000},
    {"csv: columns with a beginning in common", read_records, "\1", LONG "%zu,", "text\n",
        1000},
    {"csv: columns without names", read_records, "\1text", ",", "\n", 10000, .memory = 256},
    {"csv: rows", read_records, "\1text\n", "line %zu\n", "", 3000},
    {"csv: empty rows", read_records, "\1text\n", "\n", "", 10000},
    {"tsv: columns", read_records, "\2", "c%zu\t", "text\n", 4000},
    {"tsv: rows", read_records, "\2text\n", "line %zu\n", "", 3000},
    {"jsonl: lines", read_records, "", "{\"text\":\"line %zu\"}\n", "", 2000,
        .make = make_lines},
    {"jsonl: empty lines", read_records, "", " \n", "", 10000, .make = make_lines},
    {"jsonl: members", read_records, "{", "\"k%zu\":1,", "\"text\":\"a\"}\n", 5000,
        .make = make_lines},
    {"jsonl: members of one name", read_records, "{", "\"text\":\"%zu\",", "\"text\":\"a\"}\n",
        5000, .make = make_lines},
    {"jsonl: nested lists", read_records, "{\"text\":", "[", "", 10000, .make = make_lines},
    {"jsonl: a list", read_records, "{\"text\":[", "1,", "1]}\n", 10000, .memory = 256,
        .make = make_lines},
    {"jsonl: escapes", read_records, "{\"text\":\"", "\\n\\u00e9", "\"}\n", 3000,
        .make = make_lines},
    {"jsonl: a long word", read_records, "{\"text\":\"", "aaaaaaaa", "\"}\n", 3000,
        .make = make_lines},
    {"jsonl: many characters", read_records, "{\"text\":\"", "\\u4%03zx", "\"}\n", 2000,
        .make = make_lines},
    {"jsonl: a long number", read_records, "{\"text\":", "1", "}\n", 10000, .make = make_lines},
    {"jsonl: messages", read_records, CHAT "{\"role\":\"user\",\"content\":\"a\"}",
        ",{\"role\":\"assistant\",\"content\":\"%zu\"}", "]}\n", 1000, .make = make_lines},
    {"json: objects", read_records, "\3[{\"text\":\"a\"}", ",\n{\"text\":\"line %zu\"}", "]",
        2000},
    {"json: blanks between objects", read_records, "\3[{\"text\":\"a\"}", "\n ", "]", 10000},
    {"json: an object without an end", read_records, "\3[{\"text\":\"a\",\"k\":", "[\"]\",", "",
        5000},
    {"json: quotes in one object", read_records, "\3[{\"text\":\"", "\\\"", "\"}]", 10000},
    {"documents: lines", read_documents, "", DOC "\\\"line %zu\\\"}\"}\n", "", 300},
    {"documents: fields", read_documents, DOC "{", "\\\"k%zu\\\":1,", "\\\"k\\\":1}}\"}\n",
        1000, .memory = 512},
    {"documents: fields of one name", read_documents, DOC "{", "\\\"k\\\":1,",
        "\\\"k\\\":1}}\"}\n", 2000},
    {"documents: fields of many lines", read_documents, "", DOC "{\\\"k%zu\\\":1}}\"}\n", "",
        500, .memory = 256},
    {"documents: a list", read_documents, DOC "[", "1,", "1]}\"}\n", 2000, .memory = 256},
    {"documents: nested lists", read_documents, DOC, "[", "", 5000},
    {"documents: names of files", read_documents,
        "{\"ground_truth\":\"{\\\"gt_parse\\\":1}\",\"file_name\":\"", "a/", "\"}\n", 5000},
};

const cost_table cost_records = COST_TABLE(cases);
