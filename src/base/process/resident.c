/* Memory of processes from /proc. The peak counts each page of shared memory in all processes
 * that map it; the kernel divides the pages of now among them. */
#include "base/process/resident.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t choir__proc_number(const char *path, const char *word)
{
    char line[256];
    long long number = 0;
    size_t length = strlen(word);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, word, length)) {
            number = strtoll(line + length, NULL, 10);
            break;
        }
    if (file)
        fclose(file);
    return number;
}

int64_t choir__resident_peak(void)
{
    const char *status = "/proc/self/status";
    const int64_t kib = choir__proc_number(status, "VmHWM:") -
                        choir__proc_number(status, "RssShmem:") +
                        choir__proc_number("/proc/self/smaps_rollup", "Pss_Shmem:");
    return 1024 * kib;
}
