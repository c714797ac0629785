/* Launchers and the variables that inform a process of its place.
 *
 *   RANK             WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK   choir run, torchrun
 *   OMPI_COMM_WORLD_ RANK SIZE LOCAL_RANK LOCAL_SIZE                     Open MPI
 *   PMI_             RANK SIZE, MPI_LOCALRANKID MPI_LOCALNRANKS          MPICH and its kin;
 * some lack the last two JSM_NAMESPACE_   RANK SIZE LOCAL_RANK LOCAL_SIZE jsrun FLUX_ TASK_RANK
 * JOB_SIZE TASK_LOCAL_ID, JOB_NNODES        flux run SLURM_           PROCID STEP_NUM_TASKS
 * LOCALID NODEID                srun
 *
 * An mpirun inside a Slurm job sets both kinds. Slurm's then describe mpirun's own helpers, so
 * MPI's have priority. Slurm's variables count only in a step that srun started: the batch
 * script and the shell of salloc also have SLURM_PROCID, but are no ranks.
 *
 * Ranks that are all on one machine meet there under the job's name. Open MPI gives a job a
 * random key. The other launchers' names could be guessed; there the check of user ids
 * (comm/shm/socket.c) keeps strangers out. */
#include "launch/launchers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/options.h"
#include "base/plugin/plugin.h"
#include "launch/crew/crew.h"

const char *choir__variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static choir_status read_number(const char *name, int64_t most, int64_t *value)
{
    const char *text = choir__variable(name);
    if (text && !choir__parse_int(text, 0, most, value))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s: expected a whole number, got '%s'", name, text);
    return CHOIR_OK;
}

choir_status choir__variable_number(const char *name, int *value)
{
    int64_t n = *value;
    choir_status status = read_number(name, INT32_MAX, &n);
    if (status == CHOIR_OK)
        *value = (int)n;
    return status;
}

typedef struct names {
    const char *launcher, *rank, *world, *local_rank, *local_world, *node;
} names;

/* Each table's rank variable is set if its launcher is present. */
static const names by_hand = {
    "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"};
static const names open_mpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ""};
static const names mpich = {
    "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""};
static const names jsrun = {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
    "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE", ""};
static const names flux = {
    "flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", ""};
static const names slurm = {
    "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID"};

static choir_status read_numbers(const names *of, choir__launcher *l)
{
    l->name = of->launcher;
    choir_status status = choir__variable_number(of->rank, &l->rank);
    if (status == CHOIR_OK)
        status = choir__variable_number(of->world, &l->world);
    if (status == CHOIR_OK)
        status = choir__variable_number(of->local_rank, &l->local_rank);
    if (status == CHOIR_OK)
        status = choir__variable_number(of->local_world, &l->local_world);
    if (status == CHOIR_OK)
        status = choir__variable_number(of->node, &l->node);
    return status;
}

/* --- jobs' names --- */

static void name_open_mpi_job(choir__launcher *l)
{
    const char *space = choir__variable("PMIX_NAMESPACE"), *key;
    if (!space)
        space = choir__variable("OMPI_MCA_ess_base_jobid");
    key = choir__variable("OMPI_MCA_orte_precondition_transports");
    if (space)
        snprintf(l->job, sizeof l->job, "openmpi %.50s %.60s", space, key ? key : "");
}

/* Looks up a process's parent, start time and name; returns false if it has ended. */
static bool look_up(int pid, int *parent, unsigned long long *began, char comm[32])
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close)
        return false;
    snprintf(comm, 32, "%.*s", (int)(close - open - 1), open + 1);
    return sscanf(close + 1,
               " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
               "%*d %llu",
               parent, began) == 2;
}

/* MPICH's ranks on a machine descend from one hydra_pmi_proxy. */
static void name_mpich_job(choir__launcher *l)
{
    int pid = getppid(), parent;
    unsigned long long began;
    char comm[32];
    while (pid > 1 && look_up(pid, &parent, &began, comm)) {
        if (strcmp(comm, "hydra_pmi_proxy") == 0) {
            snprintf(l->job, sizeof l->job, "mpich %d %llu", pid, began);
            return;
        }
        pid = parent;
    }
}

/* Names the job by its number at the launcher. */
static void name_numbered_job(choir__launcher *l, const char *number)
{
    const char *space = choir__variable("PMIX_NAMESPACE");
    number = space ? space : number;
    if (number)
        snprintf(l->job, sizeof l->job, "%s %.100s", l->name, number);
}

/* Ranks on several machines meet at MASTER_ADDR if that is set. */
/* An IPv6 address is put into brackets, as PyTorch and others expect it without. */
static void set_meeting_point(choir__launcher *l, const char *address, int port)
{
    bool bare = strchr(address, ':') && *address != '[';
    snprintf(l->method, sizeof l->method, bare ? "tcp://[%.253s]:%d" : "tcp://%.255s:%d",
        address, port);
}

static choir_status describe_address(choir__launcher *l)
{
    const char *address = choir__variable("MASTER_ADDR");
    int port = 29500;
    if (choir__variable_number("MASTER_PORT", &port) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (address)
        set_meeting_point(l, address, port);
    return CHOIR_OK;
}

/* --- MPI --- */

static bool is_there(const char *plugin)
{
    char *found = choir__plugin_find(plugin, NULL);
    free(found);
    return found != NULL;
}

const char *choir__launcher_plugin(void)
{
    const char *own = choir__variable("OMPI_COMM_WORLD_RANK") ? "mpi_openmpi"
                      : choir__variable("PMI_RANK")           ? "mpi_mpich"
                                                              : NULL;
    if (own)
        return is_there(own) || !is_there("mpi") ? own : "mpi";
    return is_there("mpi_openmpi") ? "mpi_openmpi"
           : is_there("mpi_mpich") ? "mpi_mpich"
                                   : "mpi";
}

/* --- Slurm --- */

void choir__first_host(const char *list, char *host, size_t room)
{
    size_t n = 0;
    for (const char *c = list; *c && *c != ',' && n + 1 < room; c++) {
        if (*c != '[') {
            host[n++] = *c;
            continue;
        }
        for (c++; *c && !strchr("-,]", *c) && n + 1 < room; c++)
            host[n++] = *c;
        c += strcspn(c, "]");
        if (!*c)
            break;
    }
    host[n] = '\0';
}

/* Returns the number of tasks on node number `node` from "2(x3),1", which lists tasks per node;
 * -1: unspecified. */
static int tasks_on(const char *list, int node)
{
    for (const char *c = list; c && *c;) {
        char *end;
        long tasks = strtol(c, &end, 10), nodes = 1;
        if (end == c)
            return -1;
        if (strncmp(end, "(x", 2) == 0)
            nodes = strtol(end + 2, &end, 10);
        if (node < nodes)
            return (int)tasks;
        node -= (int)nodes;
        c = strchr(end, ',');
        c = c ? c + 1 : NULL;
    }
    return -1;
}

/* Steps of one job may run side by side, so each gets its own port and name. */
static choir_status describe_step(choir__launcher *l)
{
    const char *list = choir__variable("SLURM_STEP_NODELIST"),
               *address = choir__variable("MASTER_ADDR");
    char host[256] = "";
    int64_t job = 0, step = 0;
    if (read_number("SLURM_JOB_ID", INT64_MAX / 16, &job) != CHOIR_OK ||
        read_number("SLURM_STEP_ID", UINT32_MAX, &step) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    int port = 15000 + (int)((job * 8 + step) % 10000);
    if (choir__variable_number("MASTER_PORT", &port) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (l->node >= 0)
        l->local_world = tasks_on(choir__variable("SLURM_STEP_TASKS_PER_NODE"), l->node);
    if (!list)
        list = choir__variable("SLURM_JOB_NODELIST");
    if (list)
        choir__first_host(list, host, sizeof host);
    if (address || *host)
        set_meeting_point(l, address ? address : host, port);
    snprintf(l->job, sizeof l->job, "slurm %lld %lld", (long long)job, (long long)step);
    /* srun --mpi=pmix, --mpi=pmi2: MPI could start here. A set address has priority. */
    bool pmi = choir__variable("PMIX_RANK") || choir__variable("PMI_RANK");
    l->mpi = pmi && !address && is_there(choir__launcher_plugin());
    return CHOIR_OK;
}

/* Returns KillWait, Slurm's seconds from asking a job to end to its kill, which its
 * configuration has: the file that SLURM_CONF names, or the usual one. */
static double kill_wait(void)
{
    static const double usual_s = 30;
    static const char key[] = "KillWait=";
    const char *path = choir__variable("SLURM_CONF");
    FILE *file = choir__file_try_stream(path ? path : "/etc/slurm/slurm.conf");
    double wait = usual_s;
    char line[1024]; /* Slurm's own limit */
    while (file && fgets(line, sizeof line, file)) {
        const char *at = line + strspn(line, " \t");
        int seconds;
        if (strncasecmp(at, key, sizeof key - 1) == 0 &&
            sscanf(at + sizeof key - 1, "%5d", &seconds) == 1 && seconds >= 0)
            wait = seconds;
    }
    if (file)
        fclose(file);
    return wait;
}

/* Slurm asks a job to end ahead of its time limit (--signal), at the limit, or for another
 * reason long before it. It kills the job at the limit in the first case, and else KillWait
 * later. now: seconds since 1970. */
double choir__launcher_grace(double now)
{
    static const double lead_s = 3600;
    const char *end = choir__variable("SLURM_JOB_END_TIME");
    double left = end ? strtod(end, NULL) - now : -1;
    if (!choir__variable("SLURM_JOB_ID"))
        return -1;
    return left > 0 && left <= lead_s ? left : kill_wait();
}

/* --- jsrun, flux run --- */

static choir_status describe_jsrun(choir__launcher *l)
{
    name_numbered_job(l, choir__variable("LSB_JOBID"));
    choir_status status = describe_address(l);
    l->mpi = choir__variable("PMIX_RANK") && is_there(choir__launcher_plugin());
    return status;
}

/* Flux does not say how many ranks a node has; with a single node, all ranks are here. */
static choir_status describe_flux(choir__launcher *l)
{
    int nodes = 0;
    if (choir__variable_number("FLUX_JOB_NNODES", &nodes) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    l->local_world = nodes == 1 ? l->world : -1;
    name_numbered_job(l, choir__variable("FLUX_JOB_ID"));
    choir_status status = describe_address(l);
    l->mpi = choir__variable("PMI_RANK") && !*l->method && is_there(choir__launcher_plugin());
    return status;
}

/* --- all of them --- */

/* Returns whether srun has started this process in a step of its own. The numbers of other
 * steps, such as the shell of salloc, are the last ones. */
static bool is_in_step(void)
{
    static const int64_t first_special = 0xfffffff0;
    const char *text = choir__variable("SLURM_STEP_ID");
    int64_t step = 0;
    bool special = text && choir__parse_int(text, first_special, UINT32_MAX, &step);
    return choir__variable("SLURM_PROCID") && choir__variable("SLURM_STEP_NUM_TASKS") &&
           !special;
}

static choir_status check(const choir__launcher *l, const names *of)
{
    if (l->world < 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is set and %s is not: set both, or neither",
            of->rank, of->world);
    if (l->rank >= l->world)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is %d and %s is %d: ranks count from 0",
            of->rank, l->rank, of->world, l->world);
    return CHOIR_OK;
}

choir_status choir__launcher_find(bool clusters_only, choir__launcher *l)
{
    const names *of = choir__variable("RANK") && !clusters_only ? &by_hand
                      : choir__variable("OMPI_COMM_WORLD_RANK") ? &open_mpi
                      : choir__variable("PMI_RANK") && choir__variable("MPI_LOCALRANKID")
                          ? &mpich
                      : choir__variable("JSM_NAMESPACE_RANK")                      ? &jsrun
                      : choir__variable("FLUX_TASK_RANK")                          ? &flux
                      : is_in_step()                                               ? &slurm
                      : choir__variable("PMI_RANK") && choir__variable("PMI_SIZE") ? &mpich
                                                                                   : NULL;
    *l = (choir__launcher){
        .rank = -1, .world = -1, .local_rank = -1, .local_world = -1, .node = -1};
    if (!of)
        return CHOIR_OK;
    if (read_numbers(of, l) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (of == &by_hand) {
        const char *job = choir__variable("CHOIR_JOB");
        if (job && strlen(job) >= sizeof l->job)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "CHOIR_JOB: expected up to %zu bytes, got %zu", sizeof l->job - 1, strlen(job));
        snprintf(l->job, sizeof l->job, "%s", job ? job : "");
        const char *agent = choir__variable("TORCHELASTIC_USE_AGENT_STORE");
        l->agent_store = agent && !strcmp(agent, "True");
    } else if (of == &open_mpi) {
        name_open_mpi_job(l);
    } else if (of == &mpich) {
        name_mpich_job(l);
    } else if (of == &jsrun) {
        if (describe_jsrun(l) != CHOIR_OK)
            return CHOIR_ERR_ARGUMENT;
    } else if (of == &flux) {
        if (describe_flux(l) != CHOIR_OK)
            return CHOIR_ERR_ARGUMENT;
    } else if (describe_step(l) != CHOIR_OK) {
        return CHOIR_ERR_ARGUMENT;
    }
    l->mpi = l->mpi || of == &open_mpi || of == &mpich;
    return check(l, of);
}

int choir__launcher_generation(void)
{
    const choir__crew *crew = choir__crew_mine();
    int number = 0;
    if (crew)
        return (int)atomic_load(&crew->generation);
    return choir__variable_number("CHOIR_GENERATION", &number) == CHOIR_OK ? number : 0;
}
