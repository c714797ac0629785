/* A model of queues that run each other: src/device/queue_run.h has the protocol in words.
 *
 * Two ranks, each with a device's queue, a group's queue, their two workers and a host. A step:
 *
 *     device   a kernel     waits for the group   the optimizer
 *     group    waits for the device   a collective, which ends when both ranks run it
 *
 * The hosts issue a step, and then wait for the device, wait for the group, wait for both, or
 * do not wait at all. Spin tries all orders of all accesses to shared words. The monitor at the
 * end fails if nothing can go on although a task is left: a lost wake-up, or a circle of
 * waiters.
 *
 *     spin -a queue.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m100000
 *
 * Left out: streams, devices of several cores, failures, workers that start and stop, and times.
 * A condition of several words is one step here; each of its words alone says that there is a
 * keeper, so reading them one after another changes nothing.
 *
 * -DRANKS=1 leaves the second rank out, -DSTEPS=n issues n steps. -DFAULT=n leaves one part of
 * the protocol out, and has to fail: tests/model/run.sh. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef STEPS
#define STEPS 1
#endif
#ifndef FAULT
#define FAULT 0
#endif
#define QUEUES 4 /* rank r has the device's queue 2r and the group's 2r + 1 */
#define NEVER 200

#define NO_KEEPER 0
#define WORKER 1
#define WATCH 2

byte issued[QUEUES], finished[QUEUES], running[QUEUES], waiters[QUEUES], promised[QUEUES];
byte sleepers[QUEUES], done[QUEUES], wake_at[QUEUES];
bool alarm[QUEUES];
byte watch_at[QUEUES]; /* the place of the other queue that queue q waits for; 0: no watch */
byte arrived;          /* ranks in the collective */

#define other(q) ((q) ^ 1)
#define is_device(q) (((q) & 1) == 0)
#define left(q) (finished[q] != issued[q])

/* The place for which the first task waits; 0: it does not wait. */
#define awaits(q) (is_device(q) -> (finished[q] % 3 == 1 -> finished[q] / 3 * 2 + 2 : 0) : \
                                  (finished[q] % 2 == 0 -> finished[q] / 2 * 3 + 1 : 0))
#define blocked(q) (left(q) && finished[other(q)] < awaits(q))

/* --- waking --- */

inline wake_sleepers(q)
{
    done[q]++;
}

inline set_wake_at(q, place)
{
    atomic { if :: wake_at[q] > place -> wake_at[q] = place :: else fi }
}

inline stop_running(q)
{
    running[q] = 0;
#if FAULT != 1
    if
    :: sleepers[q] && left(q) -> wake_sleepers(q)
    :: else
    fi
#endif
}

/* --- keepers --- */

#define lacks_keeper(q) (left(q) && promised[q] == NO_KEEPER && !running[q] && !waiters[q])

inline promise(q, who, made)
{
    atomic {
        if
        :: promised[q] == NO_KEEPER -> promised[q] = who; made = true
        :: else -> made = false
        fi
    }
}

/* As choir__queue_call_worker; `wait` and `made` are the caller's. */
inline call_worker(q, wait, made)
{
    do
    :: lacks_keeper(q) ->
        atomic { if :: !running[q] -> running[q] = 1 :: else -> break fi }
        wait = NEVER;
        if
        :: left(q) && blocked(q) -> wait = awaits(q)
        :: left(q) && !blocked(q) -> wait = 0
        :: else
        fi;
        stop_running(q);
        if
        :: wait == NEVER /* no task: look again */
        :: wait == 0 ->
            promise(q, WORKER, made);
            if :: made -> alarm[q] = true :: else fi;
            break
        :: else ->
            promise(q, WATCH, made);
            if
            :: made ->
                watch_at[q] = wait;
                set_wake_at(other(q), wait);
#if FAULT != 2
                atomic { /* perhaps it has been there for some time */
                    if
                    :: finished[other(q)] >= wait && watch_at[q] ->
                        watch_at[q] = 0;
                        promised[q] = NO_KEEPER
                    :: else -> break
                    fi
                }
#else
                break
#endif
            :: else -> break
            fi
        fi
    :: else -> break
    od
}

/* The runner of q has passed a place of the other queue's watch. */
inline call_watchers(q, wait, made)
{
    if
    :: atomic { watch_at[other(q)] && watch_at[other(q)] <= finished[q] ->
           watch_at[other(q)] = 0 };
       promised[other(q)] = NO_KEEPER;
       call_worker(other(q), wait, made)
    :: else ->
       if
       :: watch_at[other(q)] -> set_wake_at(q, watch_at[other(q)])
       :: else
       fi
    fi
}

/* --- running --- */

inline run_next(q, wait, made)
{
    if
    :: !is_device(q) && finished[q] % 2 == 1 -> /* the collective */
        arrived++;
        arrived >= (finished[q] / 2 + 1) * RANKS
    :: else
    fi;
    finished[q]++;
    if
    :: finished[q] >= wake_at[q] ->
        wake_at[q] = NEVER;
        wake_sleepers(q);
        call_watchers(q, wait, made)
    :: else
    fi
}

inline put_off(q)
{
    if
    :: promised[q] == WORKER ->
        if
        :: true ->
            alarm[q] = false;
            atomic { if :: promised[q] == WORKER -> promised[q] = NO_KEEPER :: else fi }
        :: skip /* it was put off a moment ago */
        fi
    :: else
    fi
}

inline run_tasks(q, until, wait, made)
{
    put_off(q);
    do
    :: finished[q] < until && !blocked(q) -> run_next(q, wait, made)
    :: else -> break
    od
}

inline sleep_until(q, place, seen)
{
    sleepers[q]++;
    seen = done[q];
    set_wake_at(q, place);
    if
    :: finished[q] < place && running[q] -> done[q] != seen
    :: else
    fi;
    sleepers[q]--
}

/* As choir__queue_wait_for_tasks. wait_for calls wait_deep for the other queue. */
inline wait_deep(q, place, wait, made, seen)
{
    if
    :: finished[q] < place ->
        waiters[q]++;
        do
        :: finished[q] >= place -> break
        :: else ->
            atomic { if :: !running[q] -> running[q] = 1; seen = NEVER :: else -> seen = 0 fi };
            if
            :: seen == NEVER ->
                run_tasks(q, place, wait, made);
                assert(finished[q] >= place); /* the chain ends here */
                stop_running(q)
            :: else -> sleep_until(q, place, seen)
            fi
        od;
        waiters[q]--;
        if :: lacks_keeper(q) -> call_worker(q, wait, made) :: else fi
    :: else
    fi
}

inline wait_for(q, place, wait, made, seen)
{
    if
    :: finished[q] < place ->
        waiters[q]++;
        do
        :: finished[q] >= place -> break
        :: else ->
            atomic { if :: !running[q] -> running[q] = 1; seen = NEVER :: else -> seen = 0 fi };
            if
            :: seen == NEVER ->
                run_tasks(q, place, wait, made);
                if
                :: finished[q] < place ->
                    before = awaits(q);
                    running[q] = 0;
                    wait_deep(other(q), before, wait, made, again)
                :: else -> stop_running(q)
                fi
            :: else -> sleep_until(q, place, seen)
            fi
        od;
        waiters[q]--;
#if FAULT != 3
        if :: lacks_keeper(q) -> call_worker(q, wait, made) :: else fi
#endif
    :: else
    fi
}

/* --- threads --- */

inline issue(q, wait, made)
{
    issued[q]++;
    if :: lacks_keeper(q) -> call_worker(q, wait, made) :: else fi
}

proctype host(byte rank)
{
    byte wait, seen, again, before, step;
    bool made;
    do
    :: step < STEPS ->
        step++;
        issue(2 * rank, wait, made);
        issue(2 * rank + 1, wait, made);
        issue(2 * rank + 1, wait, made);
        issue(2 * rank, wait, made);
        issue(2 * rank, wait, made);
        if
        :: true -> wait_for(2 * rank, 3 * step, wait, made, seen)
        :: true -> wait_for(2 * rank + 1, 2 * step, wait, made, seen)
        :: true -> wait_for(2 * rank, 3 * step - 2, wait, made, seen)
        :: skip
        fi
    :: else -> break
    od
}

proctype worker(byte q)
{
    byte wait, seen;
    bool made;
end:
    do
    :: alarm[q] ->
        alarm[q] = false;
        atomic { if :: promised[q] == WORKER -> promised[q] = NO_KEEPER :: else fi };
        if
        :: left(q) ->
            atomic { if :: !running[q] -> running[q] = 1; seen = NEVER :: else -> seen = 0 fi };
            if
            :: seen == NEVER ->
                run_tasks(q, issued[q], wait, made);
                stop_running(q);
                if :: lacks_keeper(q) -> call_worker(q, wait, made) :: else fi
            :: else
            fi
        :: else
        fi
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. QUEUES - 1) { wake_at[i] = NEVER }
        for (i : 0 .. RANKS - 1) {
            run host(i);
            run worker(2 * i);
            run worker(2 * i + 1)
        }
    }
    timeout;
    for (i : 0 .. 2 * RANKS - 1) {
        assert(finished[i] == STEPS * (is_device(i) -> 3 : 2));
        assert(!running[i] && !waiters[i] && !sleepers[i])
    }
}
