/* Studies in journals, and the records of a run. */
#include "cases.h"

#define LONG           "an_unusually_long_beginning_that_all_of_these_names_have_in_common_"
#define OP(code, more) "{\"op_code\":" #code ",\"worker_id\":\"w\"," more "}\n"
#define STUDY          OP(0, "\"study_name\":\"s\",\"directions\":[1]")
#define TWO            OP(0, "\"study_name\":\"s\",\"directions\":[1,2]")
#define TRIAL          OP(4, "\"study_id\":0")
#define FLOAT                                                                                  \
    "\"{\\\"name\\\":\\\"FloatDistribution\\\",\\\"attributes\\\":{\\\"low\\\":0.0,"           \
    "\\\"high\\\":1.0,\\\"step\\\":null,\\\"log\\\":false}}\""
#define REPORT(step) OP(7, "\"trial_id\":0,\"step\":" step ",\"intermediate_value\":1.5")

static const cost_case cases[] = {
    {"journal: studies", read_journal, STUDY,
        OP(0, "\"study_name\":\"s%zu\",\"directions\":[1]"), "", 1000},
    {"journal: studies with a beginning in common", read_journal, STUDY,
        OP(0, "\"study_name\":\"" LONG "%zu\",\"directions\":[1]"), "", 500},
    {"journal: one study again and again", read_journal, STUDY,
        OP(0, "\"study_name\":\"s\",\"directions\":[1]"), "", 1000},
    {"journal: deleted studies", read_journal, STUDY,
        OP(0, "\"study_name\":\"t\",\"directions\":[1]") "{\"op_code\":1,\"study_id\":%zu}\n",
        OP(0, "\"study_name\":\"s\",\"directions\":[1]"), 500},
    {"journal: attributes of a study", read_journal, STUDY,
        OP(3, "\"study_id\":0,\"system_attr\":{\"k%zu\":1}"), "", 2000},
    {"journal: attributes in one line", read_journal,
        STUDY "{\"op_code\":2,\"study_id\":0,\"user_attr\":{", "\"k%zu\":1,", "\"k\":1}}\n",
        2000, .memory = 256},
    {"journal: attributes of a trial", read_journal, STUDY TRIAL,
        OP(8, "\"trial_id\":0,\"user_attr\":{\"k%zu\":1}"), "", 2000},
    {"journal: one attribute again and again", read_journal, STUDY TRIAL,
        OP(9, "\"trial_id\":0,\"system_attr\":{\"k\":%zu}"), "", 1000},
    {"journal: trials", read_journal, STUDY, TRIAL, "", 500, .memory = 256},
    {"journal: complete trials", read_journal, STUDY,
        TRIAL "{\"op_code\":6,\"trial_id\":%zu,\"state\":1,\"values\":[%zu]}\n", "", 500},
    {"journal: trials of two objectives", read_journal, TWO,
        TRIAL "{\"op_code\":6,\"trial_id\":%zu,\"state\":1,\"values\":[%zu,%zu]}\n", "", 500},
    {"journal: trials with a parameter", read_journal, STUDY,
        TRIAL
        "{\"op_code\":5,\"trial_id\":%zu,\"param_name\":\"x\",\"param_value_internal\":0.5,"
        "\"distribution\":" FLOAT "}\n",
        "", 300},
    {"journal: parameters of a trial", read_journal, STUDY TRIAL,
        "{\"op_code\":5,\"trial_id\":0,\"param_name\":\"x\",\"param_value_internal\":0.5,"
        "\"distribution\":" FLOAT "}\n",
        "", 500},
    {"journal: different parameters of a trial", read_journal, STUDY TRIAL,
        "{\"op_code\":5,\"trial_id\":0,\"param_name\":\"x%zu\",\"param_value_internal\":0.5,"
        "\"distribution\":" FLOAT "}\n",
        "", 500},
    {"journal: reports", read_journal, STUDY TRIAL, REPORT("%zu"), "", 1000},
    {"journal: reports, falling", read_journal, STUDY TRIAL, REPORT("%zu"), "", 4000,
        .falling = true},
    {"journal: reports of one step", read_journal, STUDY TRIAL, REPORT("7"), "", 1000},
    {"journal: reports in one line", read_journal,
        STUDY "{\"op_code\":4,\"study_id\":0,\"intermediate_values\":{", "\"%zu\":1,",
        "\"0\":1}}\n", 2000, .falling = true},
    {"journal: whole numbers beside NaN", read_journal,
        STUDY "{\"op_code\":2,\"study_id\":0,\"user_attr\":{\"a\":[NaN", ",1", "]}}\n", 4000},
    {"journal: no numbers", read_journal, STUDY "{\"op_code\":2,\"study_id\":0,\"a\":", "eeee",
        "}\n", 4000},
    {"journal: minus signs", read_journal, STUDY "{\"op_code\":2,\"study_id\":0,\"a\":", "----",
        "}\n", 4000},
    {"journal: a long number", read_journal,
        STUDY "{\"op_code\":2,\"study_id\":0,\"a\":", "1234", "}\n", 4000},
    {"journal: a line without end", read_journal, STUDY "{\"op_code\":0,\"study_name\":\"", "a",
        "", 10000},
    {"journal: nested lists", read_journal, STUDY "{\"op_code\":0,\"study_name\":", "[", "\n",
        5000},
};

const cost_table cost_studies = COST_TABLE(cases);
