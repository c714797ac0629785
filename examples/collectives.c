/* Collectives by hand: six ranks as a grid of 2 x 3, sums along it, messages in a ring. */
#include <stdio.h>
#include <choir/choir.h>

static int work(int rank, int world, void *arg)
{
    choir_group *group;
    choir_mesh *mesh;
    choir_work rows, columns;
    int64_t row = rank, column = rank, left;
    (void)arg;
    choir_check(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_check(choir_mesh_new(
        group, 2, (const char *[]){"data", "tensor"}, (int[]){2, world / 2}, &mesh));
    choir_group *data = choir_mesh_group(mesh, "data"),
                *tensor = choir_mesh_group(mesh, "tensor");

    /* Both run concurrently: each group has its own queue. work tells when one is done. */
    choir_check(choir_group_all_reduce(tensor, &row, 1, CHOIR_I64, CHOIR_SUM, &rows));
    choir_check(choir_group_all_reduce(data, &column, 1, CHOIR_I64, CHOIR_SUM, &columns));
    choir_check(choir_work_wait(rows));
    choir_check(choir_work_wait(columns));

    choir_group_batch_begin(group); /* concurrently; else all would wait for a receiver */
    choir_check(
        choir_group_send(group, &(int64_t){rank}, 1, CHOIR_I64, (rank + 1) % world, NULL));
    choir_check(
        choir_group_receive(group, &left, 1, CHOIR_I64, (rank + world - 1) % world, NULL));
    choir_check(choir_group_batch_end(group, NULL));
    printf("rank %d: row %d, column %d, left %d\n", rank, (int)row, (int)column, (int)left);
    choir_mesh_free(mesh);
    choir_group_free(group);
    return 0;
}

int main(void)
{
    choir_check(choir_spawn(6, work, NULL));
}
