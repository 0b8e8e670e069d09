/* The bed of the loop tests. See bed.h. */
#include "tests/unit/proxy/bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <event2/event.h>

#include "audit/audit.h"
#include "base/clock.h"
#include "dns/resolver.h"
#include "dns/upstreams.h"
#include "proxy/tls.h"
#include "tests/unit/policy/fixture.h"
#include "tests/unit/proxy/pki.h"

/* two and bad have two addresses; no certificate names bad or other. */
#define BED_HOSTS                                                                           \
	"127.0.0.1 origin.test other.test p0.test p1.test p2.test p3.test p4.test p5.test " \
	"p6.test p7.test p8.test\n"                                                         \
	"127.0.0.1 two.test bad.test\n127.0.0.2 two.test bad.test\n10.9.9.9 private.test\n"
#define BED_RULES "allow 127.0.0.0/8; allow *.test"

static struct {
	struct ca *ca;
	struct tls *tls;
	struct pki_cert root, origin;
	SSL_CTX *origin_ctx, *client_ctx;
	char roots[32];
} pki;

static char *private_suffixes[] = {NULL};
static const struct private_names bed_private = {private_suffixes, 0};

int bed_setup_pki(void **state)
{
	int fd;

	(void)signal(
		SIGPIPE, SIG_IGN); /* a peer's TLS writes into a socket that the proxy closed */
	(void)snprintf(pki.roots, sizeof(pki.roots), "/tmp/loop-roots.XXXXXX");
	fd = mkstemp(pki.roots);
	assert_true(fd >= 0);
	close(fd);
	clock_fake(1, (uint64_t)time(NULL) * 1000000);
	pki.root = pki_ca("root", NULL);
	pki.origin = pki_make(
		&(struct pki_spec){.san = "DNS:origin.test,DNS:two.test,IP:127.0.0.1"}, &pki.root);
	pki_write(pki.roots, &pki.root, 1);
	assert_int_equal(ca_new(&pki.ca, NULL), 0);
	assert_int_equal(tls_new(pki.ca, pki.roots, false, &pki.tls, NULL), 0);
	pki.origin_ctx = SSL_CTX_new(TLS_server_method());
	assert_int_equal(SSL_CTX_use_certificate(pki.origin_ctx, pki.origin.cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(pki.origin_ctx, pki.origin.key), 1);
	pki.client_ctx = SSL_CTX_new(TLS_client_method());
	assert_int_equal(
		X509_STORE_add_cert(SSL_CTX_get_cert_store(pki.client_ctx), pki.ca->cert), 1);
	SSL_CTX_set_verify(pki.client_ctx, SSL_VERIFY_PEER, NULL);
	return 0;
}

int bed_teardown_pki(void **state)
{
	SSL_CTX_free(pki.origin_ctx);
	SSL_CTX_free(pki.client_ctx);
	tls_free(pki.tls);
	ca_free(pki.ca);
	pki_free(&pki.root);
	pki_free(&pki.origin);
	return unlink(pki.roots);
}

SSL_CTX *bed_origin_ctx(void)
{
	return pki.origin_ctx;
}

SSL_CTX *bed_client_ctx(void)
{
	return pki.client_ctx;
}

int bed_listen(unsigned int host, uint16_t *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
		.sin_port = htons(*port),
		.sin_addr.s_addr = htonl(0x7f000000 + host)};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(fd, 600), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	*port = ntohs(sa.sin_port);
	return fd;
}

static void bed_open_trail(struct bed *b)
{
	int fd = memfd_create("trail", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_APPEND), 0);
	b->trail_fd = dup(fd);
	assert_true(b->trail_fd >= 0);
	b->area = mmap(
		NULL, audit_area_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(b->area != MAP_FAILED);
	assert_int_equal(audit_open(b->area, SLICE("bed"), fd, false, &b->audit, NULL), 0);
}

static struct write_hosts *bed_hosts_list(const char *list)
{
	struct write_hosts *w = NULL;
	struct errmsg msg = {""};

	if (write_hosts_decode(slice_str(list), &w, &msg) < 0)
		fail_msg("%s", msg.text);
	return w;
}

static void free_const(const struct write_hosts *w)
{
	write_hosts_free((struct write_hosts *)(uintptr_t)w);
}

static struct policy *bed_policy(bool default_allow, const char *rules)
{
	char text[1024];

	(void)snprintf(text, sizeof(text), "%s%s%s", rules, *rules ? "; " : "", BED_RULES);
	return fixture_policy(default_allow, text);
}

struct bed *bed_new(const char *rules)
{
	struct bed *b = xcalloc(1, sizeof(*b));
	struct upstreams servers = {.n = 1};

	b->now_ms = 1000000;
	clock_fake(b->now_ms * 1000, (uint64_t)time(NULL) * 1000000);
	b->base = event_base_new();
	assert_non_null(b->base);
	servers.v[0].addr = fixture_addr("127.0.0.1");
	servers.v[0].port = 9;
	assert_int_equal(resolver_new(b->base, &servers, 1000, &b->resolver, NULL), 0);
	resolver_set_hosts(b->resolver, SLICE(BED_HOSTS));
	bed_open_trail(b);
	assert_int_equal(proxy_new(b->base, pki.tls, b->resolver, b->audit, NULL, &b->px), 0);
	b->listen_fd = bed_listen(1, &b->port);
	b->config = (struct proxy_config){
		.policy = bed_policy(false, rules),
		.write_hosts = bed_hosts_list(""),
		.pass_through = bed_hosts_list(""),
		.private_names = &bed_private,
		.intercept = PROXY_INTERCEPT_ALL,
		.head_timeout_ms = 10000,
		.handshake_timeout_ms = 11000,
		.client_idle_ms = 60000,
		.connect_timeout_ms = 10000,
		.first_byte_ms = 50000,
		.stream_idle_ms = 120000,
		.upstream_idle_ms = 30000,
		.max_connections = 1000,
	};
	bed_configure(b);
	return b;
}

void bed_configure(struct bed *b)
{
	proxy_configure(b->px, &b->config);
}

void bed_set_policy(struct bed *b, bool default_allow, const char *rules)
{
	policy_unref(b->config.policy);
	b->config.policy = bed_policy(default_allow, rules);
	bed_configure(b);
}

void bed_set_write_hosts(struct bed *b, const char *list)
{
	const struct write_hosts *before = b->config.write_hosts;

	b->config.write_hosts = bed_hosts_list(list);
	bed_configure(b);
	free_const(before);
}

void bed_set_pass_through(struct bed *b, const char *list)
{
	const struct write_hosts *before = b->config.pass_through;

	b->config.pass_through = bed_hosts_list(list);
	bed_configure(b);
	free_const(before);
}

void bed_turn(struct bed *b)
{
	for (int i = 0; i < 3; i++)
		(void)event_base_loop(b->base, EVLOOP_NONBLOCK);
}

void bed_settle(struct bed *b)
{
	for (int i = 0; i < 3; i++) {
		(void)poll(NULL, 0, 1);
		bed_turn(b);
	}
}

void bed_pass(struct bed *b, uint64_t ms)
{
	b->now_ms += ms;
	clock_fake(b->now_ms * 1000, clock_wall_us() + ms * 1000);
	deadlines_sweep(&b->px->deadlines, b->now_ms);
	bed_turn(b);
}

void bed_close(struct bed *b)
{
	ssize_t n;

	if (!b->px)
		return;
	proxy_free(b->px);
	b->px = NULL;
	audit_close(b->audit);
	n = pread(b->trail_fd, b->trail, sizeof(b->trail) - 1, 0);
	assert_true(n >= 0);
	b->trail[n] = '\0';
}

void bed_free(struct bed *b)
{
	bed_close(b);
	resolver_free(b->resolver);
	event_base_free(b->base);
	policy_unref(b->config.policy);
	free_const(b->config.write_hosts);
	free_const(b->config.pass_through);
	assert_int_equal(munmap(b->area, audit_area_size()), 0);
	close(b->listen_fd);
	close(b->trail_fd);
	free(b);
}

size_t bed_n_lines(const struct bed *b)
{
	size_t n = 0;

	for (const char *p = b->trail; *p; p++)
		n += *p == '\n';
	return n;
}

void bed_check_line(const struct bed *b, size_t n, const char *const texts[])
{
	struct slice rest = slice_str(b->trail), line = SLICE_EMPTY;

	for (size_t i = 0; i <= n; i++)
		line = slice_cut(&rest, '\n');
	for (; *texts; texts++)
		if (slice_find(line, slice_str(*texts)) == line.len)
			fail_msg("line %zu has no %s: %.*s", n, *texts, SLICE_FMT(line));
}
