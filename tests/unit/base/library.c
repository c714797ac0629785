/* Libraries that are opened when first needed: base/plugin/library.h, and oneDNN by it. */
#include <dlfcn.h>

#include "helpers.h"
#include "base/plugin/library_nvidia.h"
#include "conformance/dense_product.h"
#include "device/cpu/context.h"

typedef double number_fn(double);

static void fills_in_the_table(void **state)
{
    static const char *const names[] = {"cos", "sqrt"};
    number_fn *table[2] = {NULL};
    ok(choir__library_open("libm.so.6", names, 2, table));
    assert_true(table[0](0) == 1 && table[1](9) == 3);
}

static void says_what_is_missing(void **state)
{
    static const char *const names[] = {"sqrt", "square_root"};
    number_fn *table[2];
    assert_fails(choir__library_open("libnowhere.so.1", names, 1, table), CHOIR_ERR_UNSUPPORTED,
        "libnowhere.so.1");
    assert_fails(choir__library_open("libm.so.6", names, 2, table), CHOIR_ERR_UNSUPPORTED,
        "square_root");
}

/* --- NVIDIA's libraries, for which libm stands here --- */

static char work[] = "/tmp/choir-library-XXXXXX";
static char libm[512];

static int make_folder(void **state)
{
    Dl_info info;
    void *library = dlopen("libm.so.6", RTLD_LAZY);
    void *fn = library ? dlsym(library, "sqrt") : NULL;
    if (!fn || !dladdr(fn, &info) || !mkdtemp(work))
        return -1;
    snprintf(libm, sizeof libm, "%s", info.dli_fname);
    return 0;
}

static int remove_folder(void **state)
{
    assert_int_equal(shell("rm -r %s", work), 0);
    return 0;
}

static choir_status open_in(const char *file, const void *runtime)
{
    static const char *const names[] = {"sqrt"};
    number_fn *table[1] = {NULL};
    choir__nvidia_library library = {.name = "cuTest",
        .file = file,
        .package = "cutest",
        .variable = "CUTEST_PATH",
        .runtime = runtime,
        .lock = PTHREAD_MUTEX_INITIALIZER};
    choir_status status = choir__library_open_nvidia(&library, names, 1, table);
    assert_true(status != CHOIR_OK || table[0](9) == 3);
    return status;
}

/* Sets a variable to a folder of `work` for one call. */
static choir_status open_with(const char *variable, const char *folder, const char *file)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", work, folder);
    setenv(variable, path, 1);
    choir_status status = open_in(file, NULL);
    unsetenv(variable);
    return status;
}

static void nvidias_libraries_are_found(void **state)
{
    static const struct {
        const char *variable, *root, *folder;
    } at[] = {{"CUTEST_PATH", "one", "one"}, {"CUTEST_PATH", "two", "two/lib"},
        {"CUTEST_PATH", "three", "three/lib64"}, {"CUDA_HOME", "toolkit", "toolkit/lib64"},
        {"CUDA_PATH", "windows", "windows/lib"}, {"CONDA_PREFIX", "conda", "conda/lib"},
        {"CONDA_PREFIX", "pip", "pip/lib/python3.12/site-packages/nvidia/cutest/lib"},
        {"VIRTUAL_ENV", "venv", "venv/lib/python3.11/site-packages/nvidia/cutest/lib"}};
    unsetenv("CUDA_HOME"), unsetenv("CUDA_PATH");
    unsetenv("CONDA_PREFIX"), unsetenv("VIRTUAL_ENV");
    for (size_t i = 0; i < CHOIR_COUNT(at); i++) {
        char file[64];
        snprintf(file, sizeof file, "libcutest%zu.so.9", i);
        assert_int_equal(open_with(at[i].variable, at[i].root, file), CHOIR_ERR_UNSUPPORTED);
        assert_int_equal(shell("mkdir -p %s/%s && ln -s %s %s/%s/%s", work, at[i].folder, libm,
                             work, at[i].folder, file),
            0);
        ok(open_with(at[i].variable, at[i].root, file));
    }
    ok(open_in("libm.so.6", NULL)); /* by the dynamic linker */
}

/* A wheel of the CUDA runtime tells where the others are: nvidia/cu13/lib, nvidia/cutest/lib.
 */
static void nvidias_libraries_are_found_beside_the_runtime(void **state)
{
    char path[600];
    assert_int_equal(shell("mkdir -p %s/nvidia/cu13/lib %s/nvidia/cutest/lib", work, work), 0);
    assert_int_equal(shell("cp %s %s/nvidia/cu13/lib/libcudart.so.13", libm, work), 0);
    snprintf(path, sizeof path, "%s/nvidia/cu13/lib/libcudart.so.13", work);
    void *runtime = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    void *address = runtime ? dlsym(runtime, "sqrt") : NULL;
    assert_non_null(address);
    assert_int_equal(open_in("libcutestr.so.9", address), CHOIR_ERR_UNSUPPORTED);
    assert_int_equal(shell("ln -s %s %s/nvidia/cutest/lib/libcutestr.so.9", libm, work), 0);
    ok(open_in("libcutestr.so.9", address));
    assert_int_equal(shell("ln -s %s %s/nvidia/cu13/lib/libcutests.so.9", libm, work), 0);
    ok(open_in("libcutests.so.9", address));
    dlclose(runtime);
}

static void says_where_it_looked(void **state)
{
    char part[600];
    assert_int_equal(
        open_with("CUDA_HOME", "nothing", "libcutestn.so.9"), CHOIR_ERR_UNSUPPORTED);
    snprintf(part, sizeof part,
        "cuTest is missing: no libcutestn.so.9 where the dynamic linker looks, "
        "%s/nothing/lib64, %s/nothing/lib; install it, or name its folder by CUTEST_PATH",
        work, work);
    assert_string_equal(choir_error_message(), part);
}

#ifdef CHOIR_HAVE_ONEDNN
static bool is_loaded(const char *file)
{
    void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library;
}

enum { N = 64 };

/* c (n, n) = a b, where a has ones and b the numbers of its columns. */
static void multiply(int64_t n)
{
    static float a[N * N], b[N * N], c[N * N];
    for (int64_t i = 0; i < n * n; i++)
        a[i] = 1, b[i] = (float)(i % n);
    const choir__k_matmul product = dense_product(CHOIR_F32, a, b, c, n, n, n);
    choir__cpu_kernels("baseline")->matmul(&product);
    for (int64_t i = 0; i < n * n; i++)
        assert_true(c[i] == (float)(i % n * n));
}

/* A process that multiplies nothing, or only small matrices, does without oneDNN and OpenMP,
 * and opening them leaves its environment as it was. */
static void opens_onednn_for_the_first_product(void **state)
{
    char **environment = environ;
    multiply(16);
    assert_false(is_loaded(CHOIR_ONEDNN_LIBRARY));
    multiply(N);
    assert_true(is_loaded(CHOIR_ONEDNN_LIBRARY));
    assert_ptr_equal(environ, environment);
    assert_null(getenv("GOMP_SPINCOUNT"));
}
#else
static void opens_onednn_for_the_first_product(void **state)
{
    skip();
}
#endif

int main(void)
{
    unsetenv("GOMP_SPINCOUNT");
#ifdef CHOIR_HAVE_ONEDNN
    setenv("CHOIR_MATH", "onednn", 1);
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_the_table),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(nvidias_libraries_are_found),
        cmocka_unit_test(nvidias_libraries_are_found_beside_the_runtime),
        cmocka_unit_test(says_where_it_looked),
        cmocka_unit_test(opens_onednn_for_the_first_product),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
