/* Alarms: one thread sleeps until another thread's call, which can be delayed and put off.
 *
 * Setting an alarm wakes no thread: the sleeper wakes when the time has come, or not at all if
 * the alarm was put off before then. */
#ifndef CHOIR_ALARM_H
#define CHOIR_ALARM_H

#include <stdbool.h>

typedef struct choir__alarm {
    int fd; /* -1: not open */
} choir__alarm;

/* Returns false, with errno, if the process has no descriptor left for it. */
bool choir__alarm_open(choir__alarm *alarm);
void choir__alarm_close(choir__alarm *alarm);

/* Wakes the sleeper after `microseconds`, 0: at once. An earlier setting no longer counts. */
void choir__alarm_set(const choir__alarm *alarm, long microseconds);
void choir__alarm_put_off(const choir__alarm *alarm);

/* Sleeps until the alarm goes off, or returns at once if it has gone off since the last
 * sleep. */
void choir__alarm_sleep(const choir__alarm *alarm);

#endif
