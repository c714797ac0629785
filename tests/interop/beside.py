"""Runs programs of this folder, one after another: beside.py NAME...

Each is a process of its own, forked from this one, which has imported PyTorch and has read Choir's headers:
that takes longer than most of them run. What they print comes under their names. The exit status is 77,
skipped, where all of them skip.
"""
import os
import runpy
import sys
import traceback

import check  # first: it skips without PyTorch; the programs find it imported

here = os.path.dirname(os.path.abspath(__file__))


def status_of(name):
    """Runs a program to its end, and returns its exit status."""
    sys.argv = [os.path.join(here, name + ".py")]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        return 1


def run(name):
    print("--- %s" % name, flush=True)
    pid = os.fork()
    if pid == 0:
        status = status_of(name)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (0, 77):
        print("FAILED %s: status %d" % (name, status), flush=True)
    return status


statuses = [run(name) for name in sys.argv[1:]]
failed = sum(status not in (0, 77) for status in statuses)
print("%d of %d programs failed" % (failed, len(statuses)))
sys.exit(1 if failed else 77 if all(status == 77 for status in statuses) else 0)
