/* choir train with a recorder of one's own: ./job JOB.json [OPTION VALUE]... */
#include <stdio.h>
#include <choir/choir.h>

static const char small[] =
    "{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"strategy\": \"ddp\", "
    "\"nproc\": 2, \"steps\": 20, \"model\": \"gpt2:layers=1,heads=2,width=32,context=32\"}}";

static void step(void *arg, const choir_job_step *s)
{
    double *first = arg; /* the program's own memory, whichever process trains */
    *first = s->step == 1 ? s->loss : *first;
    printf("step %2lld  loss %.3f\n", (long long)s->step, s->loss);
}

int main(int argc, char **argv)
{
    choir_job *job;
    choir_job_result done;
    double first = 0;
    const choir_job_recorder mine = {.step = step, .arg = &first};
    choir_check(argc > 1 ? choir_job_open(argv[1], &job) : choir_job_parse(small, &job));
    for (int i = 2; i + 1 < argc; i += 2)
        choir_check(choir_job_set(job, argv[i], argv[i + 1]));
    choir_check(choir_job_train(job, &mine, &done));
    if (done.rank == 0)
        printf("from %.3f to %.3f\nweights %s\nbest %s\n", first, done.loss,
            done.weights_sha256, done.best ? done.best : "unknown");
    choir_job_free(job);
}
