/* The place where ranks meet at a port: the address that rank 0 serves, as MASTER_ADDR and
 * MASTER_PORT or a method name it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>

#include "base/base.h"
#include "launch/launchers.h"
#include "launch/meet/meet.h"

/* A machine's name may resolve to its loopback, and an address may belong to a gateway in front
 * of it: with a key, rank 0 then listens at all addresses. Kubernetes' PyTorchJob may tell rank
 * 0 that it is "localhost", and the others its name. */
choir_status choir__meet_host_at(
    choir__joining *j, const char *name, int port, const choir__store_key *key)
{
    struct in6_addr any;
    choir_store_opts opts = choir_store_defaults();
    bool number = inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1;
    opts.port = port;
    opts.bind = name;
    bool pod = choir__variable("KUBERNETES_SERVICE_HOST");
    if (key && !number && (pod || strcmp(name, "localhost") != 0))
        return choir__meet_host_everywhere(j, opts, key);
    choir_status status = choir__meet_host(j, opts, key);
    if (status == CHOIR_ERR_IO && key && number && errno == EADDRNOTAVAIL)
        status = choir__meet_host_everywhere(j, opts, key);
    return status;
}

void choir__meet_set_where(choir__joining *j, const char *host, int port)
{
    snprintf(j->where, sizeof j->where, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

choir_status choir__meet_master(char host[CHOIR__HOST_TEXT], int *port)
{
    const char *master = choir__variable("MASTER_ADDR"), *text = choir__variable("MASTER_PORT");
    *port = 0;
    snprintf(host, CHOIR__HOST_TEXT, "%s", master ? master : "");
    if (choir__variable_number("MASTER_PORT", port) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (!text)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "missing MASTER_PORT, a port of 1 to 65535, beside MASTER_ADDR '%s'", host);
    if (*port < 1 || *port > 65535)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "MASTER_PORT: expected a port of 1 to 65535, got '%s'", text);
    return CHOIR_OK;
}
