/* Prints the order of each device's work in a pipeline, under every schedule, and draws all of
 * them in a picture at one scale.
 *
 *     ./pipeline_schedules [DEVICES [MICROBATCHES [PICTURE.svg]]]
 *
 * A device's forward takes 1, its backward 2: half for the input, half for the weights. The
 * picture leaves out the first schedule, sequential, which takes too long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/choir.h>

enum { MAX = 16 };

int main(int argc, char **argv)
{
    int devices = argc > 1 ? atoi(argv[1]) : 4, micros = argc > 2 ? atoi(argv[2]) : 8,
        count = 0;
    const char *path = argc > 3 ? argv[3] : "pipeline_schedules.svg", *name;
    choir_pipeline_plan *plans[MAX];

    for (; count < MAX && (name = choir_pipeline_schedule_name(count)); count++) {
        int chunks = strcmp(name, "interleaved") == 0 ? 2 : 1;
        choir_check(
            choir_pipeline_plan_new(name, devices, chunks, micros, NULL, &plans[count]));
        choir_check(choir_pipeline_plan_print(plans[count], NULL, stdout));
        putchar('\n');
    }
    choir_check(choir_pipeline_plan_svg(
        (const choir_pipeline_plan *const *)&plans[1], NULL, count - 1, NULL, path));

    double alone = 3.0 * micros * devices; /* all stages on one device, without a pipeline */
    for (int i = 0; i < count; i++) {
        double together = choir_pipeline_plan_makespan(plans[i], NULL);
        printf("%-12s %.2f times as fast as one device\n",
            choir_pipeline_plan_schedule(plans[i]), alone / together);
        choir_pipeline_plan_free(plans[i]);
    }
    return 0;
}
