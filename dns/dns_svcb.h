/* RDATA of SVCB and HTTPS records (RFC 9460): what a client may be told about a service. Pure.
 *
 * Kept: `mandatory`, `alpn` without HTTP/3, `no-default-alpn`, `port`. Left out: `ech` (it hides
 * the name from us), the address hints (nobody judged them), `dohpath` and whatever comes later. */
#pragma once

#include "base/slice.h"

/* A priority, a name without pointers, parameters in order and inside their lengths. */
bool dns_svcb_is_valid(struct slice rdata);

/* Writes what is kept of a valid one into buf, which has rdata.len bytes, and returns the length;
 * 0 if the record must be left out whole: it demands what we take away, or no protocol is left.
 * *altered is set to true if something was left out. */
size_t dns_svcb_filter(struct slice rdata, uint8_t *buf, bool *altered);
