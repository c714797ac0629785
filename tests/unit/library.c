/* Libraries that are opened when first needed: base/library.h, and oneDNN by it. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/library.h"
#include "device/cpu/context.h"

typedef double number_fn(double);

static void fills_in_the_table(void **state)
{
    (void)state;
    static const char *const names[] = {"cos", "sqrt"};
    number_fn *table[2] = {NULL};
    assert_int_equal(choir__library_open("libm.so.6", names, 2, table), CHOIR_OK);
    assert_true(table[0](0) == 1 && table[1](9) == 3);
}

static void says_what_is_missing(void **state)
{
    (void)state;
    static const char *const names[] = {"sqrt", "square_root"};
    number_fn *table[2];
    assert_int_equal(
        choir__library_open("libnowhere.so.1", names, 1, table), CHOIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(choir_error_message(), "libnowhere.so.1"));
    assert_int_equal(choir__library_open("libm.so.6", names, 2, table), CHOIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(choir_error_message(), "square_root"));
}

#ifdef CHOIR_HAVE_ONEDNN
static bool is_loaded(const char *file)
{
    void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library;
}

/* A process that multiplies nothing does without oneDNN and OpenMP, and opening them leaves its
 * environment as it was. */
static void opens_onednn_for_the_first_product(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
    float c[4];
    char **environment = environ;
    assert_false(is_loaded(CHOIR_ONEDNN_LIBRARY));
    choir__cpu_kernels("baseline")
        ->matmul(&(choir__k_matmul){.a = a,
            .b = b,
            .c = c,
            .batch0 = 1,
            .batch1 = 1,
            .m = 2,
            .n = 2,
            .k = 2,
            .a_row = 2,
            .a_col = 1,
            .b_row = 2,
            .b_col = 1,
            .c_row = 2,
            .dtype = CHOIR_F32});
    assert_true(c[0] == 19 && c[1] == 22 && c[2] == 43 && c[3] == 50);
    assert_true(is_loaded(CHOIR_ONEDNN_LIBRARY));
    assert_ptr_equal(environ, environment);
    assert_null(getenv("GOMP_SPINCOUNT"));
}
#else
static void opens_onednn_for_the_first_product(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    unsetenv("GOMP_SPINCOUNT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_the_table),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(opens_onednn_for_the_first_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
