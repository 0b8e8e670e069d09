/* OpenSandbox's lifecycle API and the sidecars whose addresses it tells, as the options of a
 * command name them. A sidecar's token goes to that sidecar alone. Used by watch and sandboxes. */
#pragma once

#include "base/strbuf.h"
#include "control/lifecycle_api.h"
#include "proxy/caller.h"

#define PLATFORM_LIST_MAX 32          /* --endpoint-host, --state, --metadata: of each */
#define SIDECAR_MS 5000               /* of a sidecar, but for a change */
#define SIDECAR_CHANGE_MS 40000       /* which may wait for the kernel for 30 s */
#define SIDECAR_ANSWER_MAX (1u << 20) /* of a sidecar: a page of its trail has 256 KiB */

/* Options that all commands share; NULL: as the environment says. Lists end with NULL. */
struct platform_options {
	const char *url, *key_file, *ca_file;
	const char *states[PLATFORM_LIST_MAX + 1];
	const char *metadata[PLATFORM_LIST_MAX + 1]; /* "name=value" */
	const char *hosts[PLATFORM_LIST_MAX + 1];
};

/* Rows for getopt_long, and what takes them: 1; 0: it is another option; negative, after a
 * complaint: it is wrong. */
enum {
	PLATFORM_URL = 2000, /* above every option of a command's own */
	PLATFORM_KEY,
	PLATFORM_CA,
	PLATFORM_STATE,
	PLATFORM_METADATA,
	PLATFORM_HOST,
};
#define PLATFORM_LONGS                                                    \
	{"url", required_argument, NULL, PLATFORM_URL},                   \
		{"key-file", required_argument, NULL, PLATFORM_KEY},      \
		{"ca", required_argument, NULL, PLATFORM_CA},             \
		{"state", required_argument, NULL, PLATFORM_STATE},       \
		{"metadata", required_argument, NULL, PLATFORM_METADATA}, \
	{                                                                 \
		"endpoint-host", required_argument, NULL, PLATFORM_HOST   \
	}
int platform_option(struct platform_options *o, int c, const char *text);
#define PLATFORM_HELP                                                                        \
	"          --url URL             of the server; default: OPENSANDBOX_URL\n"          \
	"          --key-file FILE       its API key; default: OPENSANDBOX_API_KEY_FILE\n"   \
	"          --ca FILE             the only roots that count for TLS; default:\n"      \
	"                                OPENSANDBOX_CA_FILE, else those of the system\n"    \
	"          --state STATE         sandboxes in this state alone; may be repeated\n"   \
	"          --metadata NAME=VALUE sandboxes with it alone; all of them if repeated\n" \
	"          --endpoint-host HOST  name, address or block where sidecars may be\n"     \
	"                                reached, beside the server's own host and loopback\n"

struct platform {
	struct caller caller;
	const struct platform_options *o;
	struct lifecycle_api api;
	struct strbuf filter; /* "&state=..." */
};

/* E_VALUE: neither --url nor OPENSANDBOX_URL, or one that is no URL. o is borrowed.
 * platform_close also after a failure. */
CHECKED int platform_open(struct platform *a, const struct platform_options *o, struct errmsg *msg);
void platform_close(struct platform *a);
/* Reads the file with the key (again): as lifecycle_api_read_key. */
CHECKED int platform_read_key(struct platform *a, struct errmsg *msg);

/* The list, page by page from 1, with the filters. */
struct fetch *platform_list(struct platform *a, unsigned page, fetch_cb done, void *arg);

/* Where a sidecar is reached, with its token in locked memory. Of the API's answer about an
 * endpoint: E_VALUE for a host that is neither the API's own, loopback, nor one of --endpoint-host,
 * since what is sent there may be keys. */
struct sidecar;
CHECKED int sidecar_new(
	struct platform *a, struct slice answer, struct sidecar **out, struct errmsg *msg);
void sidecar_free(struct platform *a, struct sidecar *p);
struct sidecar_question {
	const char *method, *path;
	struct slice content; /* JSON; p NULL: there is none */
};
/* s must stay until done or fetch_cancel. */
struct fetch *sidecar_ask(struct platform *a, const struct sidecar *s,
	const struct sidecar_question *q, fetch_cb done, void *arg);
