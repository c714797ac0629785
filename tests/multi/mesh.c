/* Sub-groups and meshes: their members, the order of these, and that they work side by side. */
#include <choir/choir.h>

#include "check.h"
#include "base/base.h"
#include "comm/group.h"
#include "multi/ranks.h"

/* The sum over a group of 2^rank names its members. */
static int members(choir_group *group, int job_rank, int64_t *set)
{
    *set = INT64_C(1) << job_rank;
    return choir_group_all_reduce(group, set, 1, CHOIR_I64, CHOIR_SUM, NULL) != CHOIR_OK;
}

static int halves(int rank, int world, void *arg)
{
    choir_group *all, *half, *none, *reversed;
    int64_t set;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &all));
    CHECK_OK(choir_group_split(all, rank % 2, 0, &half));
    CHECK(!members(half, rank, &set));
    for (int r = 0; r < world; r++)
        CHECK(((set >> r) & 1) == (r % 2 == rank % 2));
    CHECK(choir_group_rank(half) == rank / 2);
    CHECK(choir_group_local_rank(half, -1) == rank / 2);
    CHECK(choir_group_local_world(half) == choir_group_world(half));

    CHECK_OK(choir_group_split(all, rank == 0 ? -1 : 7, -rank, &reversed));
    CHECK((reversed == NULL) == (rank == 0));
    if (reversed)
        CHECK(choir_group_rank(reversed) == world - 1 - rank);
    CHECK_OK(choir_group_split(all, -1, 0, &none));
    CHECK(none == NULL);

    choir_group_free(all); /* children live on */
    choir_group *quarter;
    CHECK_OK(choir_group_split(half, choir_group_rank(half) / 2, 0, &quarter));
    CHECK(!members(quarter, rank, &set));
    CHECK(set & (INT64_C(1) << rank));
    choir_group_free(reversed);
    choir_group_free(half);
    CHECK_OK(choir_group_barrier(quarter, NULL));
    choir_group_free(quarter);
    return 0;
}

static int grid(int rank, int world, void *arg)
{
    static const char *const names[] = {"data", "pipe", "tensor"};
    const int sizes[] = {2, 1, -1}, width = world / 2;
    choir_group *all;
    choir_mesh *mesh;
    int64_t row, column, both;
    choir_work a, b;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &all));
    CHECK_OK(choir_mesh_new(all, 3, names, sizes, &mesh));
    CHECK(choir_mesh_size(mesh, "data") == 2 && choir_mesh_size(mesh, "tensor") == width);
    CHECK(choir_mesh_coordinate(mesh, "data") == rank / width);
    CHECK(choir_mesh_coordinate(mesh, "tensor") == rank % width);
    CHECK(choir_mesh_coordinate(mesh, "pipe") == 0);
    CHECK(choir_group_world(choir_mesh_group(mesh, "pipe")) == 1);
    CHECK(strstr(choir_mesh_group(mesh, "tensor")->name, " (tensor)")); /* for choir top */
    CHECK(choir_mesh_group(mesh, "Tensor") == NULL);
    CHECK(strstr(choir_error_message(), "it has data, pipe, tensor"));

    row = column = both = INT64_C(1) << rank; /* two at once, in crossing groups */
    CHECK_OK(choir_group_all_reduce(
        choir_mesh_group(mesh, "tensor"), &row, 1, CHOIR_I64, CHOIR_SUM, &a));
    CHECK_OK(choir_group_all_reduce(
        choir_mesh_group(mesh, "data"), &column, 1, CHOIR_I64, CHOIR_SUM, &b));
    CHECK_OK(choir_work_wait(b));
    CHECK_OK(choir_work_wait(a));
    for (int r = 0; r < world; r++) {
        CHECK(((row >> r) & 1) == (r / width == rank / width));
        CHECK(((column >> r) & 1) == (r % width == rank % width));
    }
    choir_group_free(all);
    CHECK_OK(choir_group_all_reduce(
        choir_mesh_group(mesh, "data"), &both, 1, CHOIR_I64, CHOIR_SUM, NULL));
    CHECK(both == column);
    choir_mesh_free(mesh);
    return 0;
}

static void test_split(void **state)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < CHOIR_COUNT(worlds); i++)
        ok(choir_spawn(worlds[i], halves, NULL));
}

static void test_mesh(void **state)
{
    for (int world = 2; world <= 8; world += 2)
        ok(choir_spawn(world, grid, NULL));
}

static void refuses(const char *const *names, const int *sizes, int dims, const char *why)
{
    choir_group *alone;
    choir_mesh *mesh = NULL;
    ok(choir_group_init(NULL, choir_group_defaults(), &alone));
    assert_int_equal(choir_mesh_new(alone, dims, names, sizes, &mesh), CHOIR_ERR_ARGUMENT);
    assert_null(mesh);
    assert_says(why);
    choir_group_free(alone);
}

static void test_wrong_meshes(void **state)
{
    refuses((const char *[]){"a", "b"}, (int[]){2, 4}, 2, "2x4 does not fit 1 ranks");
    refuses((const char *[]){"a", "a"}, (int[]){1, 1}, 2, "two dimensions are named 'a'");
    refuses((const char *[]){"a", ""}, (int[]){1, 1}, 2, "needs a name");
    refuses((const char *[]){"a", "b"}, (int[]){0, 1}, 2, "-1, got 0");
    refuses((const char *[]){"a", "b"}, (int[]){-1, -1}, 2, "-1, got -1");
    refuses(NULL, NULL, 0, "dimensions, got 0");
    refuses((const char *[]){"a", "b", "c"}, (int[]){1 << 30, 1 << 30, 1 << 30}, 3, "fit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_wrong_meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
