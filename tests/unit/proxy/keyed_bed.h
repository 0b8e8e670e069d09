/* What the tests of keyed*.c share: a vault in locked memory, one exchange of a request written as
 * text, and a connection whose other end shows what went out. There is no loop and no origin. */
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "proxy/conn.h"
#include "proxy/exchange.h"
#include "proxy/h1.h"
#include "proxy/rewrite.h"
#include "tests/unit/vault/fixture.h"

#define KEYED_BED_OUT_MAX (4u << 20)

/* The keys of every test here. */
#define KEY "sk-real-0001-AAAABBBBCCCC"
#define OTHER "sk-othr-0002-DDDDEEEEFFFF"
#define STARS "*************************"

struct keyed_bed {
	struct fixture f;
	struct proxy px;
	struct exchange ex;
	struct request_target target;
	const char *detail;
	struct event_base *base;
	struct conn conn;
	int peer;
	char *text; /* the request's head */
	size_t len; /* of out */
	char out[KEYED_BED_OUT_MAX];
};

/* One binding of each type, and hosts that nothing binds. */
static const char keyed_bed_vault[] =
	"{'credentials':["
	"{'name':'k','source':{'value':'" KEY "'}},"
	"{'name':'other','source':{'value':'" OTHER "'}},"
	"{'name':'twin','source':{'value':'" OTHER "'}},"
	"{'name':'long','source':{'value':'" KEY "-and-more'}},"
	"{'name':'unused','source':{'value':'sk-free-0004-GGGGHHHH'}},"
	"{'name':'pair','source':{'value':'dXNlcjpwYXNzd29yZA=='}}],"
	"'bindings':["
	"{'name':'bearer','match':{'hosts':['api.test'],'methods':['GET','POST'],"
	"'paths':['/v1/*']},'auth':{'type':'bearer','credential':'k'}},"
	"{'name':'slots','match':{'hosts':['api.test'],'methods':['GET','POST'],"
	"'paths':['/s/*']},'auth':{'type':'passthrough','substitutions':["
	"{'credential':'k','placeholder':'ph-model-0001','in':['query:k','header:X-Key',"
	"'header:Authorization','json:/auth/key','form:key']}]}},"
	"{'name':'wide','match':{'hosts':['wide.test']},'auth':{'type':'apiKey',"
	"'name':'x-api-key','credential':'k','substitutions':["
	"{'credential':'other','placeholder':'ph-wide-0002','in':['path','query','header','body']},"
	"{'credential':'k','placeholder':'ph-query-0005','in':['query']}]}},"
	"{'name':'else','match':{'hosts':['else.test']},'auth':{'type':'passthrough',"
	"'substitutions':[{'credential':'twin','placeholder':'ph-else-0003','in':['header']}]}},"
	"{'name':'custom','match':{'hosts':['custom.test']},'auth':{'type':'customHeaders',"
	"'headers':[{'name':'x_tenant','credential':'k'},{'name':'X-Two','credential':'other'}]}},"
	"{'name':'git','match':{'hosts':['git.test']},'auth':{'type':'basic','credential':'pair'}},"
	"{'name':'clear','match':{'hosts':['clear.test'],'schemes':['http']},"
	"'auth':{'type':'bearer','credential':'k'}},"
	"{'name':'longer','match':{'hosts':['long.test']},"
	"'auth':{'type':'bearer','credential':'long'}}]}";

static inline void keyed_bed_on_nothing(void *arg)
{
}

static inline int keyed_bed_open(void **state)
{
	static const struct conn_ops ops = {keyed_bed_on_nothing, keyed_bed_on_nothing};
	struct keyed_bed *b = xcalloc(1, sizeof(*b));
	int fds[2];

	fixture_open_sized(&b->f, FIXTURE_MEM_LARGE);
	b->f.rules.allow_http = true;
	fixture_load(&b->f, keyed_bed_vault);
	b->px.config.vault = b->f.vault;
	b->px.secmem = b->f.mem;
	b->base = event_base_new();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) < 0 ||
		io_new(b->f.mem, &b->px.io) < 0)
		return -1;
	conn_init(&b->conn, fds[0], b->px.io, b->base, &ops, NULL);
	b->conn.keyed = true;
	b->peer = fds[1];
	*state = b;
	return 0;
}

/* No view and no locked memory is left over: fixture_close asks. */
static inline int keyed_bed_close(void **state)
{
	struct keyed_bed *b = *state;

	keyed_fini(&b->ex);
	conn_fini(&b->conn);
	close(b->peer);
	io_free(b->px.io);
	event_base_free(b->base);
	fixture_close(&b->f);
	free(b->text);
	free(b);
	return 0;
}

/* A request "GET /path" to that host over TLS, which admit has allowed; host may begin with
 * "http://". */
static inline void keyed_bed_request(
	struct keyed_bed *b, const char *host, const char *line, const char *fields)
{
	bool clear = strncmp(host, "http://", 7) == 0;
	size_t size = strlen(line) + strlen(host) + strlen(fields) + 64;
	struct exchange *ex = &b->ex;
	struct h1_head *h = &b->px.request;

	host += clear ? 7 : 0;
	keyed_fini(ex);
	free(b->text);
	b->text = xmalloc(size);
	(void)snprintf(b->text, size, "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", line, host, fields);
	if (h1_request_decode(slice_str(b->text), h) != H1_OK ||
		request_target_decode(h->method, h->target, &b->target) < 0)
		fail_msg("not accepted: %s", b->text);
	memset(ex, 0, sizeof(*ex));
	ex->px = &b->px;
	ex->https = !clear;
	assert_int_equal(authority_decode(slice_str(host), &ex->target), 0);
	if (!ex->target.has_port)
		ex->target.port = clear ? 80 : 443;
	ex->target.has_port = true;
	ex->method = h->method;
	ex->url = ex->user_agent = SLICE_EMPTY;
	ex->path_query = b->target.path_query;
	ex->has_content = h->framing == H1_CHUNKED || (h->framing == H1_LENGTH && h->length > 0);
	ex->admission = (struct admission){.reason = REASON_ALLOWED, .allow = true};
}

static inline enum reason keyed_bed_admit(struct keyed_bed *b)
{
	b->detail = NULL;
	keyed_begin(&b->ex);
	return keyed_admit(&b->ex, &b->px.request, &b->target, &b->detail);
}

/* What was written since the last time. */
static inline const char *keyed_bed_written(struct keyed_bed *b)
{
	ssize_t n;

	b->len = 0;
	do {
		(void)conn_flush(&b->conn);
		n = recv(b->peer, b->out + b->len, sizeof(b->out) - 1 - b->len, MSG_DONTWAIT);
		b->len += n > 0 ? (size_t)n : 0;
		(void)event_base_loop(b->base, EVLOOP_NONBLOCK);
	} while (n > 0 || conn_backlogged(&b->conn));
	b->out[b->len] = '\0';
	return b->out;
}

/* The head of an admitted request as the origin sees it. */
static inline const char *keyed_bed_head(struct keyed_bed *b)
{
	bool chunked;
	size_t len = rewrite_request_head(&b->ex, &b->px.request, &b->conn, &chunked);

	(void)keyed_bed_written(b);
	assert_int_equal(b->len, len);
	return b->out;
}

/* Request, verdict and head in one. */
static inline const char *keyed_bed_send(
	struct keyed_bed *b, const char *host, const char *line, const char *fields)
{
	enum reason r;

	keyed_bed_request(b, host, line, fields);
	r = keyed_bed_admit(b);
	if (r != REASON_ALLOWED)
		fail_msg("%s %s: %s", host, line, reason_name(r));
	return keyed_bed_head(b);
}
