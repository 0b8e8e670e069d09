/* The vocabulary of decisions: every reason that an answer, a log or the audit trail can give.
 *
 * name (as written), HTTP status of our own answer, sentence for people. Docs print these rows. */
#pragma once

#include "base/attr.h"

#define REASON_TABLE(X)                                                                            \
	X(ALLOWED, 0, "allowed", "allowed by rule")                                                \
	X(ALLOWED_BY_DEFAULT, 0, "allowed_by_default", "allowed by the default action")            \
	X(WRITE_HOST, 0, "write_host", "a write to a write host")                                  \
	X(WRITE_PRIVATE, 0, "write_private", "a write to a private address that a rule allows")    \
	X(GIT_FETCH, 0, "git_fetch", "a git fetch, which read_only_git_fetch counts as a read")    \
	X(DENIED, 403, "denied", "a rule denies this host")                                        \
	X(HOST_NOT_LISTED, 403, "host_not_listed", "no rule allows this host")                     \
	X(ADDRESS_NOT_LISTED, 403, "address_not_listed", "no IP or CIDR rule allows this address") \
	X(ADDRESS_REFUSED, 403, "address_refused",                                                 \
		"every address of this name is denied, private or special, and no rule allows it") \
	X(PORT_NOT_ALLOWED, 403, "port_not_allowed",                                               \
		"the port is not 80, 443, an extra port or one that a rule names")                 \
	X(METHOD_NOT_READ, 403, "method_not_read", "only GET, HEAD and OPTIONS are reads")         \
	X(READ_WITH_CONTENT, 403, "read_with_content", "a read must not carry content")            \
	X(READ_WITH_UPGRADE, 403, "read_with_upgrade",                                             \
		"a read must not ask for a protocol upgrade")                                      \
	X(METHOD_OVERRIDE, 403, "method_override",                                                 \
		"a field or parameter overrides the method or the target")                         \
	X(REBINDING_WRITE, 403, "rebinding_write",                                                 \
		"a name that resolves to a private address may not be written to")                 \
	X(CANNOT_INSPECT, 403, "cannot_inspect",                                                   \
		"what cannot be inspected passes only to write hosts")                             \
	X(NAME_MISMATCH, 403, "name_mismatch", "SNI, authority and Host must be one name")         \
	X(METHOD_NOT_FORWARDED, 403, "method_not_forwarded",                                       \
		"TRACE and TRACK are never forwarded")                                             \
	X(BINDING_AMBIGUOUS, 403, "binding_ambiguous",                                             \
		"more than one credential binding matches this request")                           \
	X(PATH_AMBIGUOUS, 403, "path_ambiguous",                                                   \
		"the path of a bound host has segments that two readers see differently")          \
	X(WRITE_WITHOUT_BINDING, 403, "write_without_binding",                                     \
		"a write to a bound host that no binding covers, or with a credential of its own") \
	X(PLACEHOLDER_FOR_OTHER_HOST, 403, "placeholder_for_other_host",                           \
		"a placeholder in the target or a field, where nothing binds it")                  \
	X(KEY_TO_UNBOUND_HOST, 403, "key_to_unbound_host",                                         \
		"a key of the vault in the target or a field")                                     \
	X(IDENTITY_UNPROVEN, 403, "identity_unproven",                                             \
		"a key goes only to an origin whose identity is proven")                           \
	X(MALFORMED, 400, "malformed", "the request is malformed or ambiguous")                    \
	X(EXPECTATION, 417, "expectation_failed", "only Expect: 100-continue is known")            \
	X(HEAD_TOO_LARGE, 431, "head_too_large", "the request head is too large")                  \
	X(CLIENT_TIMEOUT, 408, "client_timeout", "the client was too slow")                        \
	X(CLIENT_CLOSED, 0, "client_closed", "the client went away")                               \
	X(CLIENT_TLS, 0, "client_tls", "the client did not accept our certificate or broke TLS")   \
	X(RESOLVE_FAILED, 502, "resolve_failed", "the name could not be looked up")                \
	X(RESOLVE_TIMEOUT, 504, "resolve_timeout", "the resolvers did not answer in time")         \
	X(CONNECT_FAILED, 502, "connect_failed", "the origin could not be reached")                \
	X(CONNECT_TIMEOUT, 504, "connect_timeout",                                                 \
		"the origin did not accept a connection in time")                                  \
	X(TLS_FAILED, 502, "tls_failed", "TLS with the origin failed")                             \
	X(CERTIFICATE, 502, "certificate", "the origin's certificate was not accepted")            \
	X(TLS_TIMEOUT, 504, "tls_timeout", "TLS with the origin was not finished in time")         \
	X(UPSTREAM_CLOSED, 502, "upstream_closed", "the origin closed before it answered")         \
	X(UPSTREAM_TIMEOUT, 504, "upstream_timeout", "the origin did not answer in time")          \
	X(UPSTREAM_MALFORMED, 502, "upstream_malformed", "the origin's answer is malformed")       \
	X(UPSTREAM_UPGRADE, 502, "upstream_upgrade", "the origin upgraded without being asked")    \
	X(ENCODED_ANSWER, 502, "encoded_answer",                                                   \
		"a bound host answered in a coding that cannot be searched for keys")              \
	X(KEY_IN_ANSWER, 0, "key_in_answer", "a key in an encoded answer ended it")                \
	X(UPSTREAM_ABORTED, 0, "upstream_aborted", "the origin broke off its answer")              \
	X(ABOVE_CEILING, 403, "above_ceiling", "the operator's ceiling does not allow this")       \
	X(SANDBOX_CLOSED, 403, "sandbox_closed",                                                   \
		"the sandbox is being paused, has ended or has expired, says OpenSandbox")         \
	X(WRONG_TOKEN, 0, "wrong_token", "a request to the API without its token")                 \
	X(OVERLOADED, 503, "overloaded", "the audit trail or a limit has no room")                 \
	X(INTERRUPTED, 0, "interrupted", "the worker ended while this was open")                   \
	X(POLICY_CHANGED, 0, "policy_changed", "the policy no longer allows it")                   \
	X(KEY_MEMORY, 0, "key_memory", "a change of the vault needed the memory of its keys")      \
	X(SHUTDOWN, 0, "shutdown", "the proxy was stopped")

enum reason {
#define X(id, status, name, text) REASON_##id,
	REASON_TABLE(X)
#undef X
		REASON_MAX
};

const char *reason_name(enum reason r);
const char *reason_text(enum reason r);
/* HTTP status of our own answer, 0 where this reason is never one. */
int reason_status(enum reason r);
