/* Which ledger a job has. */
#include "launch/agent/ledger.h"

choir_status choir__ledger_open(
    const choir__agent_opts *opts, bool first, double deadline, choir__ledger **ledger)
{
    return choir__ledger_store(opts, first, deadline, ledger);
}
