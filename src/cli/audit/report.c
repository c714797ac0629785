/* The result of an audit: one object, or sentences. */
#include "cli/audit/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "line/printed.h"

static void add_number(choir__text_buffer *t, const char *key, int64_t number)
{
    if (number >= 0)
        choir__text_value(t, key, "%lld", (long long)number);
    else
        choir__text_value(t, key, "null");
}

static void add_values(choir__text_buffer *t, const choir__parting *p)
{
    static const char *const keys[] = {"values", "bits"};
    for (int k = 0; k < 2; k++) {
        if (!p->bytes) {
            choir__text_value(t, keys[k], "null");
            continue;
        }
        choir__text_open(t, keys[k], '[');
        for (int i = 0; i < 2; i++)
            if (k)
                choir__text_value(t, NULL, "\"0x%0*" PRIx64 "\"", 2 * p->bytes, p->bits[i]);
            else
                choir__text_buffer_number(t, NULL, p->value[i]);
        choir__text_close(t, ']');
    }
}

static void report_json(const char *note, int64_t from, const choir__parting *p)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "event", "audit");
    choir__text_value(&t, "equal", "%s", p->found ? "false" : "true");
    add_number(&t, "step", p->step);
    choir__text_string(&t, "module", p->module);
    choir__text_string(&t, "kind", p->kind);
    choir__text_value(&t, "read", "%s", !p->found ? "null" : p->read ? "true" : "false");
    add_number(&t, "exact_step", p->exact_step);
    choir__text_string(&t, "exact_kind", p->exact_kind);
    add_number(&t, "microbatch", p->microbatch);
    choir__text_string(&t, "op", p->op);
    choir__text_string(&t, "op_module", p->op_module);
    choir__text_string(&t, "pass", p->pass);
    add_number(&t, "operand", p->operand);
    choir__text_string(&t, "tensor", p->tensor);
    add_number(&t, "index", p->index);
    add_values(&t, p);
    add_number(&t, "from", from);
    char *both = choir__note_add(
        note ? choir__strdup(note) : NULL, p->note ? choir__strdup(p->note) : NULL);
    choir__text_string(&t, "note", both);
    free(both);
    choir__text_finish(&t, stdout);
}

/* "the weights of fc1 that step 17 read" */
static void print_place(const choir__parting *p)
{
    if (p->module)
        printf(" of %s", *p->module ? "module " : "the model");
    if (p->module)
        choir__print_word(stdout, p->module, 0);
    if (p->microbatch >= 0 && p->exact_step < 0 && !p->op && !p->op_module)
        printf(" of micro-batch %lld", (long long)p->microbatch);
    if (p->more)
        printf(" and %d other%s", p->more, p->more > 1 ? "s" : "");
}

/* "  first op: linear of module fc1, backward, the gradient of operand 1, micro-batch 2" */
static void print_op(const choir__parting *p)
{
    if (!p->op && !p->op_module)
        return;
    printf("  first %s: ", p->op ? "op" : "output");
    choir__print_word(stdout, p->op ? p->op : p->op_module, 0);
    if (p->op && p->op_module && *p->op_module) {
        printf(" of module ");
        choir__print_word(stdout, p->op_module, 0);
    }
    if (p->pass)
        printf(", %s", p->pass);
    if (p->operand >= 0)
        printf(", the gradient of operand %lld", (long long)p->operand);
    if (p->microbatch >= 0)
        printf(", micro-batch %lld", (long long)p->microbatch);
    printf("\n");
}

static void print_values(const char *what, const char *other, const choir__parting *p)
{
    if (p->exact_step >= 0)
        printf("  both sides, run again, part at step %lld: %s\n", (long long)p->exact_step,
            p->exact_kind);
    if (p->exact_step >= 0 && p->microbatch >= 0 && !p->op && !p->op_module)
        printf("  first micro-batch: %lld\n", (long long)p->microbatch);
    print_op(p);
    if (!p->tensor)
        return;
    printf("  first element: ");
    choir__print_word(stdout, p->tensor, 0);
    printf("[%lld]\n", (long long)p->index);
    for (int i = 0; i < 2; i++)
        printf("  %-12s %.9g  0x%0*" PRIx64 "\n", i ? other : what, p->value[i], 2 * p->bytes,
            p->bits[i]);
}

char *choir__note_add(char *note, char *line)
{
    char *both = note && line ? choir__format("%s\n%s", note, line) : NULL;
    if (!both)
        return note ? note : line;
    free(note);
    free(line);
    return both;
}

/* ", run again from the beginning" */
static void print_from(int64_t from)
{
    if (from == 0)
        printf(", run again from the beginning");
    else if (from > 0)
        printf(", run again from step %lld", (long long)from);
}

void choir__audit_report(bool json, const char *what, const char *note, const char *other,
    int64_t from, const choir__parting *p)
{
    if (json) {
        report_json(note, from, p);
        return;
    }
    if (note)
        printf("%s\n", note);
    printf("%s: %s", p->found ? "different" : "equal", what);
    print_from(from);
    printf("\n");
    if (!p->found)
        return;
    printf("  step %lld is the first %s that differs: %s%s", (long long)p->step,
        p->checkpoint ? "checkpoint" : "audited one", p->kind,
        p->read ? ", as the step read it," : "");
    print_place(p);
    printf("\n");
    print_values("here", other, p);
    if (p->note)
        printf("  %s\n", p->note);
}
