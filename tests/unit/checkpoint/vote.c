/* Which rank is wrong, by what ranks say: every verdict, in any order of the testimonies. */
#include <stdlib.h>

#include "audit/vote.h"
#include "base/base.h"
#include "check.h"

enum { MOST = 16 };

/* Judges texts of three figures per testimony, "QRV": question, rank, value; "...": none. */
static choir__judgement vote(const char *text)
{
    choir__testimony list[MOST] = {{0}};
    choir__judgement forward, backward;
    int64_t count = 0;
    for (; text[3 * count]; count++)
        list[count] = (choir__testimony){.question = (uint64_t)(text[3 * count] - '0'),
            .rank = text[3 * count + 1] - '0',
            .value = (uint64_t)text[3 * count + 2],
            .nothing = text[3 * count] == '.'};
    choir__vote(list, count, &forward);
    for (int64_t i = 0; i < count / 2; i++) {
        choir__testimony other = list[i];
        list[i] = list[count - 1 - i];
        list[count - 1 - i] = other;
    }
    choir__vote(list, count, &backward);
    assert_memory_equal(&forward, &backward, sizeof forward);
    return forward;
}

static void assert_verdict(
    const char *text, choir__agreement how, uint64_t question, const char *ranks)
{
    choir__judgement v = vote(text);
    assert_int_equal(v.how, how);
    assert_int_equal(v.question, question);
    assert_int_equal(v.count, strlen(ranks));
    for (int i = 0; i < v.count; i++)
        assert_int_equal(v.ranks[i], ranks[i] - '0');
}

static void equal_answers(void **state)
{
    assert_verdict("", CHOIR__VOTE_AGREED, 0, "");
    assert_verdict("00a01a02a", CHOIR__VOTE_AGREED, 0, "");
    assert_verdict("00a00a10b11b...", CHOIR__VOTE_AGREED, 0, "");
}

static void the_most_ranks_are_right(void **state)
{
    assert_verdict("10a11b12a", CHOIR__VOTE_DECIDED, 1, "1");
    assert_verdict("10a11b12a13c14a", CHOIR__VOTE_DECIDED, 1, "13");
    /* a rank that says it again and again has one voice */
    assert_verdict("20x21y22y20x", CHOIR__VOTE_DECIDED, 2, "0");
}

static void a_rank_that_changes_its_answer_is_wrong(void **state)
{
    assert_verdict("10a10b11b", CHOIR__VOTE_DECIDED, 1, "0");
    assert_verdict("10a10b", CHOIR__VOTE_DECIDED, 1, "0"); /* though no other has the number */
    assert_verdict("10a10b11b12c", CHOIR__VOTE_DECIDED, 1, "0");
    assert_verdict("10a11b10a11a12a", CHOIR__VOTE_DECIDED, 1, "1");
}

static void what_all_share(void **state)
{
    assert_verdict("10a11a10b11b", CHOIR__VOTE_SHARED, 1, "");
    /* sums of a wrong gradient: the rank that computed it explains them */
    assert_verdict("10a11a10b11b20x21y21x", CHOIR__VOTE_DECIDED, 2, "1");
}

static void two_that_differ(void **state)
{
    assert_verdict("10a11b", CHOIR__VOTE_TIED, 1, "01");
    assert_verdict("10a11b10a11b", CHOIR__VOTE_TIED, 1, "01");
    assert_verdict("10a11b12a13b", CHOIR__VOTE_TIED, 1, "0123");
    /* another question decides */
    assert_verdict("10a11b20c20d21c", CHOIR__VOTE_DECIDED, 2, "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_answers),
        cmocka_unit_test(the_most_ranks_are_right),
        cmocka_unit_test(a_rank_that_changes_its_answer_is_wrong),
        cmocka_unit_test(what_all_share),
        cmocka_unit_test(two_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
