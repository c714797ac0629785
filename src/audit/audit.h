/* Audits, as the trainer has them: a step may have a loss, and ranks may be lost in it. */
#ifndef CHOIR_AUDIT_INTERNAL_H
#define CHOIR_AUDIT_INTERNAL_H

#include <choir/audit.h>

/* Like choir_audit_step, for a step that may be repeated: a line that is there stays. loss: its
 * bits as text, or NULL; ran: this process has made the step, and has not received its result
 * from another rank. */
choir_status choir__audit_line(choir_audit *audit, int64_t step, const char *loss, bool ran);

#endif
