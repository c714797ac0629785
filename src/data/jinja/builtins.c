/* The registry: the families of filters, tests, functions and methods. */
#include "data/jinja/eval.h"

const choir__jinja_known choir__jinja_builtins = {
    .filters = {choir__jinja_filters_of_texts, choir__jinja_filters_of_lists,
        choir__jinja_filters_of_values},
    .tests = choir__jinja_tests,
    .functions = choir__jinja_functions,
    .methods = {[CHOIR__JINJA_TEXT] = choir__jinja_methods_of_texts,
        [CHOIR__JINJA_DICT] = choir__jinja_methods_of_dicts,
        [CHOIR__JINJA_LIST] = choir__jinja_methods_of_lists,
        [CHOIR__JINJA_TUPLE] = choir__jinja_methods_of_lists,
        [CHOIR__JINJA_LOOP] = choir__jinja_methods_of_loops,
        [CHOIR__JINJA_CYCLER] = choir__jinja_methods_of_cyclers},
};
