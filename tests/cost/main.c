/* The cost of every reader by the size of its input: twice as large an input may cost 2.5 times
 * as much, in steps (count.h), and memory is bounded by the input. No clock is asked, so the
 * test gives the same answer on every machine, however busy.
 *
 *     test_cost [PART...]    only cases whose names have one of the parts; prints all figures
 *
 * Every harness of tests/fuzz must have a case: worst inputs of a new reader are to be thought
 * of when it is written. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cases.h"
#include "count.h"

static const double MOST_GROWTH = 2.5;

static const cost_table *const tables[] = {&cost_records, &cost_weights, &cost_tokenizers,
    &cost_studies, &cost_images, &cost_words, &cost_messages, &cost_chats, &cost_gguf,
    &cost_forecasts};

static const struct {
    const char *name;
    cost_read *read;
} readers[] = {
#define READER(name) {#name, read_##name},
#include "readers.inc"
#undef READER
};

static blob input_of(const cost_case *c, size_t n)
{
    blob input = {0};
    append_text(&input, "");
    if (c->make)
        c->make(&input, c, n);
    else
        append_usual(&input, c, n);
    return input;
}

static cost measure(const cost_case *c, const blob *input)
{
    choir__set_message("");
    cost_begin();
    c->read((const uint8_t *)input->data, input->bytes);
    return cost_end();
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i]))
            return true;
    return argc < 2;
}

/* Returns whether the case costs no more than it may. */
static bool check(const cost_case *c, bool talks)
{
    blob small = input_of(c, c->n), large = input_of(c, 2 * c->n);
    measure(c, &small); /* for all that later calls find made */
    cost first = measure(c, &small), second = measure(c, &large);
    double growth = (double)second.steps / (double)first.steps;
    size_t most = COST_FREE + (size_t)(c->memory ? c->memory : COST_MEMORY) * large.bytes;
    bool good = growth <= MOST_GROWTH && second.memory <= most;
    if (talks || !good)
        printf("%-44s %9zu bytes, %9.1f steps a byte, twice the units: %5.2f times the steps, "
               "%zu bytes of memory (at most %zu)%s\n",
            c->name, large.bytes, (double)second.steps / (double)large.bytes, growth,
            second.memory, most, good ? "" : ": too much");
    if (talks)
        printf("    %s\n", *choir__message() ? choir__message() : "read");
    free(small.data);
    free(large.data);
    return good;
}

static bool has_case(cost_read *read)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t]->count; i++)
            if (tables[t]->cases[i].read == read)
                return true;
    return false;
}

int main(int argc, char **argv)
{
    int bad = 0, count = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const cost_case *c = &tables[t]->cases[i];
            if (is_wanted(c->name, argc, argv))
                count++, bad += !check(c, argc > 1);
        }
    for (size_t r = 0; r < sizeof readers / sizeof *readers; r++)
        if (!has_case(readers[r].read)) {
            printf("fuzz.%s has no worst case in tests/cost\n", readers[r].name);
            bad++;
        }
    printf("%d cases, %d too much\n", count, bad);
    return bad > 0;
}
