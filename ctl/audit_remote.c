/* Pages of GET /audit as lines. */
#include "ctl/audit_remote.h"

#include <errno.h>
#include <stdio.h>

#include "ctl/environment.h"

#define REMOTE_PAGE_LINES 1000 /* as many as egress gives at a time */

static int remote_get(struct audit_remote *r, const char *path, struct errmsg *msg)
{
	int ret;

	api_client_answer_fini(&r->page);
	ret = api_client_call(r->client, "GET", path, SLICE_EMPTY, &r->page, msg);
	if (ret == 0 && r->page.status != 200)
		ret = errmsg_set(msg, E_VALUE, "%s: refused (%d): %s", r->name, r->page.status,
			api_client_message(&r->page));
	return ret;
}

int audit_remote_open(
	struct audit_remote *r, const struct api_client *client, uint64_t n, struct errmsg *msg)
{
	const char *env = environment_get(client->environ, "OPENSANDBOX_EGRESS_HTTP_ADDR");
	uint64_t last, oldest;
	int ret;

	*r = (struct audit_remote){.client = client};
	r->name = client->address ? client->address : env && env[0] ? env : API_CLIENT_ADDRESS;
	if (n == AUDIT_REMOTE_ALL)
		return 0;
	ret = remote_get(r, "/audit?limit=1", msg);
	if (ret < 0)
		return ret;
	last = api_client_number(&r->page, "X-Egress-Audit-Last");
	oldest = api_client_number(&r->page, "X-Egress-Audit-Oldest");
	if (oldest == 0)
		return errmsg_set(msg, E_VALUE, "%s: this egress gives no audit trail", r->name);
	r->started = true;
	r->after = last - oldest + 1 > n ? last - n : oldest - 1;
	return 0;
}

void audit_remote_close(struct audit_remote *r)
{
	api_client_answer_fini(&r->page);
}

static int remote_page(struct audit_remote *r, struct errmsg *msg)
{
	char path[80];
	int ret;

	if (r->started)
		(void)snprintf(path, sizeof(path), "/audit?after=%llu&limit=%d",
			(unsigned long long)r->after, REMOTE_PAGE_LINES);
	else
		(void)snprintf(path, sizeof(path), "/audit?limit=%d", REMOTE_PAGE_LINES);
	ret = remote_get(r, path, msg);
	r->rest = ret == 0 ? strbuf_slice(&r->page.text) : SLICE_EMPTY;
	return ret;
}

int audit_remote_next(struct audit_remote *r, struct audit_line *line, struct errmsg *msg)
{
	int ret;

	if (r->rest.len == 0) {
		ret = remote_page(r, msg);
		if (ret < 0 || r->rest.len == 0)
			return ret;
	}
	*line = (struct audit_line){.path = r->name, .number = ++r->number};
	line->text = slice_cut(&r->rest, '\n');
	if (!ring_line_parse(line->text, &line->seq, &line->prev) ||
		(r->started && line->seq != r->after + 1))
		return errmsg_set(msg, E_SYNTAX, "%s: the answer is no audit trail", r->name);
	r->started = true;
	r->after = line->seq;
	return 1;
}
