/* The variables that launchers set in the environment. */
#include <stdlib.h>

#include <choir/choir.h>
#include "check.h"
#include "launch/launchers.h"

static void clear(void)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        "GROUP_RANK", "CHOIR_JOB", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE",
        "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports", "PMI_RANK",
        "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS",
        "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NODELIST",
        "SLURM_JOB_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_STEP_ID",
        "MASTER_ADDR", "MASTER_PORT", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE", "LSB_JOBID", "PMIX_RANK",
        "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_NNODES",
        "FLUX_JOB_ID", "TORCHELASTIC_USE_AGENT_STORE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* "NAME=VALUE" ... */
static choir__launcher find(const char *const *settings)
{
    choir__launcher l;
    clear();
    for (; *settings; settings++) {
        char copy[200], *value;
        strcpy(copy, *settings);
        value = strchr(copy, '=');
        *value = '\0';
        setenv(copy, value + 1, 1);
    }
    ok(choir__launcher_find(false, &l));
    return l;
}
#define FIND(...) find((const char *const[]){__VA_ARGS__, NULL})

static void nobody(void **state)
{
    choir__launcher l;
    clear();
    ok(choir__launcher_find(false, &l));
    assert_null(l.name);
    l = FIND("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=5"); /* a batch script */
    assert_null(l.name);
    l = FIND("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_JOB_ID=5",
        "SLURM_STEP_ID=4294967290"); /* salloc's shell */
    assert_null(l.name);
    l = FIND("PMI_RANK=1"); /* no launcher's, which says how many there are */
    assert_null(l.name);
}

static void by_hand(void **state)
{
    choir__launcher l = FIND("RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
        "GROUP_RANK=1", "CHOIR_JOB=x", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=9");
    assert_string_equal(l.name, "RANK");
    assert_int_equal(l.rank, 3);
    assert_int_equal(l.world, 4);
    assert_int_equal(l.local_rank, 1);
    assert_int_equal(l.local_world, 2);
    assert_int_equal(l.node, 1);
    assert_string_equal(l.job, "x");
    assert_false(l.mpi);
    ok(choir__launcher_find(true, &l)); /* clusters only */
    assert_int_equal(l.world, 9);
}

static void open_mpi(void **state)
{
    choir__launcher l = FIND("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
        "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=77",
        "OMPI_MCA_orte_precondition_transports=12-34", "SLURM_PROCID=0",
        "SLURM_STEP_NUM_TASKS=2");
    assert_string_equal(l.name, "mpirun");
    assert_true(l.mpi);
    assert_int_equal(l.rank, 1);
    assert_int_equal(l.world, 4);
    assert_int_equal(l.local_world, 2);
    assert_string_equal(l.job, "openmpi 77 12-34");
    assert_string_equal(choir__launcher_plugin(), "mpi_openmpi");
}

static void mpich(void **state)
{
    choir__launcher l =
        FIND("PMI_RANK=2", "PMI_SIZE=3", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=3");
    assert_true(l.mpi);
    assert_int_equal(l.rank, 2);
    assert_int_equal(l.local_world, 3);
    assert_string_equal(choir__launcher_plugin(), "mpi_mpich");
    l = FIND("PMI_RANK=1", "PMI_SIZE=2"); /* they would train alone otherwise */
    assert_true(l.mpi);
    assert_int_equal(l.rank, 1);
    assert_int_equal(l.world, 2);
    assert_int_equal(l.local_rank, -1);
}

static void slurm(void **state)
{
    choir__launcher l = FIND("SLURM_PROCID=6", "SLURM_STEP_NUM_TASKS=7", "SLURM_LOCALID=1",
        "SLURM_NODEID=2", "SLURM_STEP_NODELIST=gpu[07-09],x1",
        "SLURM_STEP_TASKS_PER_NODE=3,2(x2)", "SLURM_JOB_ID=12345", "SLURM_STEP_ID=3");
    assert_string_equal(l.name, "srun");
    assert_false(l.mpi);
    assert_int_equal(l.rank, 6);
    assert_int_equal(l.world, 7);
    assert_int_equal(l.local_rank, 1);
    assert_int_equal(l.local_world, 2);
    assert_int_equal(l.node, 2);
    assert_string_equal(l.job, "slurm 12345 3");
    assert_string_equal(l.method, "tcp://gpu07:23763");
    l = FIND("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=a,b",
        "SLURM_JOB_ID=4026531840", "SLURM_STEP_ID=0", "MASTER_ADDR=fd00::1", "MASTER_PORT=5");
    assert_string_equal(l.method, "tcp://[fd00::1]:5");
    assert_string_equal(l.job, "slurm 4026531840 0");
    l = FIND("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=a,b",
        "SLURM_JOB_ID=1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=5");
    assert_string_equal(l.method, "tcp://10.0.0.1:5");
}

static void jsrun(void **state)
{
    choir__launcher l = FIND("JSM_NAMESPACE_RANK=5", "JSM_NAMESPACE_SIZE=12",
        "JSM_NAMESPACE_LOCAL_RANK=5", "JSM_NAMESPACE_LOCAL_SIZE=6", "LSB_JOBID=77",
        "MASTER_ADDR=h36n10", "MASTER_PORT=23456", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2");
    assert_string_equal(l.name, "jsrun");
    assert_int_equal(l.rank, 5);
    assert_int_equal(l.world, 12);
    assert_int_equal(l.local_rank, 5);
    assert_int_equal(l.local_world, 6);
    assert_string_equal(l.job, "jsrun 77");
    assert_string_equal(l.method, "tcp://h36n10:23456");
    l = FIND("JSM_NAMESPACE_RANK=0", "JSM_NAMESPACE_SIZE=2", "OMPI_COMM_WORLD_RANK=0",
        "OMPI_COMM_WORLD_SIZE=2"); /* Spectrum MPI's own variables say as much */
    assert_string_equal(l.name, "mpirun");
    assert_true(l.mpi);
}

static void flux(void **state)
{
    choir__launcher l =
        FIND("FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=2", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=1",
            "FLUX_JOB_ID=f58fQCKb", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1");
    assert_string_equal(l.name, "flux run");
    assert_int_equal(l.rank, 1);
    assert_int_equal(l.world, 2);
    assert_int_equal(l.local_rank, 1);
    assert_int_equal(l.local_world, 2); /* one node */
    assert_string_equal(l.job, "flux run f58fQCKb");
    l = FIND("FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=2", "FLUX_TASK_LOCAL_ID=0", "FLUX_JOB_NNODES=2",
        "FLUX_JOB_ID=x", "MASTER_ADDR=node3", "PMI_RANK=1", "PMI_SIZE=2");
    assert_int_equal(l.local_world, -1);
    assert_string_equal(l.method, "tcp://node3:29500");
    assert_false(l.mpi);
}

/* Intel's mpirun speaks MPICH's PMI; its ranks also have variables of their own. */
static void intel(void **state)
{
    choir__launcher l = FIND("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=0",
        "MPI_LOCALNRANKS=1", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2");
    assert_string_equal(l.name, "mpirun");
    assert_true(l.mpi);
    assert_int_equal(l.local_world, 1);
    assert_string_equal(choir__launcher_plugin(), "mpi_mpich");
}

/* Kubernetes' PyTorchJob sets torchrun's variables without torchrun; torchrun itself says
 * whether its agent serves a store. */
static void kubernetes(void **state)
{
    choir__launcher l = FIND("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=job-master-0",
        "MASTER_PORT=23456", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2");
    assert_string_equal(l.name, "RANK");
    assert_int_equal(l.local_world, -1);
    assert_false(l.agent_store);
    l = FIND("RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_USE_AGENT_STORE=True");
    assert_true(l.agent_store);
    l = FIND("RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_USE_AGENT_STORE=False");
    assert_false(l.agent_store);
}

static void hosts(void **state)
{
    static const char *const cases[][2] = {{"login1", "login1"}, {"a,b", "a"}, {"n[3-4]", "n3"},
        {"n[03,07-9]-x", "n03-x"}, {"r[1-2]n[08-9],z", "r1n08"}, {"n[3", "n3"}, {"", ""},
        {"[", ""}};
    char host[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        choir__first_host(cases[i][0], host, sizeof host);
        assert_string_equal(host, cases[i][1]);
    }
    choir__first_host("abcdefgh", host, 5);
    assert_string_equal(host, "abcd");
}

static void nonsense(void **state)
{
    choir__launcher l;
    clear();
    setenv("OMPI_COMM_WORLD_RANK", "x", 1);
    assert_fails(choir__launcher_find(false, &l), CHOIR_ERR_ARGUMENT,
        "OMPI_COMM_WORLD_RANK: expected a whole number, got 'x'");
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    assert_fails(
        choir__launcher_find(false, &l), CHOIR_ERR_ARGUMENT, "OMPI_COMM_WORLD_SIZE is not");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_fails(choir__launcher_find(false, &l), CHOIR_ERR_ARGUMENT, "ranks count from 0");
    clear();
    setenv("RANK", "0", 1);
    assert_fails(choir__launcher_find(false, &l), CHOIR_ERR_ARGUMENT, "WORLD_SIZE is not");
    clear();
    setenv("RANK", "-1", 1);
    assert_int_equal(choir__launcher_find(false, &l), CHOIR_ERR_ARGUMENT);
    clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody), cmocka_unit_test(by_hand),
        cmocka_unit_test(open_mpi), cmocka_unit_test(mpich), cmocka_unit_test(slurm),
        cmocka_unit_test(jsrun), cmocka_unit_test(flux), cmocka_unit_test(intel),
        cmocka_unit_test(kubernetes), cmocka_unit_test(hosts), cmocka_unit_test(nonsense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
