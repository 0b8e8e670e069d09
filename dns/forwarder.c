/* Carries the questions of clients to the resolvers. Before it: dns_query, which has asked policy,
 * and leases, which asks again for what was granted. After it: c-ares by channel, one row of
 * channels for each resolver, so that what a resolver does is known to be its doing. */
#include "dns/forwarder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/random.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "dns/channel.h"

/* Of each resolver; 75 KiB each, so they are made at the first use, and the second resolver costs
 * little while the first one works. Three: one falls idle while another is used (see channels.c).
 */
#define FORWARDER_CHANNELS 3
/* Answers in another letter case than asked, in a row, after which a resolver is no longer asked in
 * mixed case, and for how long. */
#define FORWARDER_CASE_FAULTS_MAX 3
#define FORWARDER_CASE_MS 600000
#define FORWARDER_RANDOM 256
/* While questions are open and no answer comes, a resolver is in doubt and gets a probe, which has
 * so long. Together less than a second. A name about which a resolver that lives is silent costs a
 * probe and no more. */
#define FORWARDER_DOUBT_MS 400
#define FORWARDER_LIMIT_MS 500
/* While none lives, they are probed so often. */
#define FORWARDER_SOON_MS 1000

/* How the current resolver is asked. */
enum forward_way {
	FORWARD_UDP,
	FORWARD_TCP,   /* an answer by UDP had the wrong letters: it may be forged */
	FORWARD_PLAIN, /* the resolver has no TCP: UDP, in lower case */
};

struct forwarder_upstream {
	struct forwarder *owner;
	struct upstreams one; /* the list that its channels get */
	char text[NETADDR_TEXT_MAX + 8];
	bool alive;
	bool no_edns;
	bool was_silent; /* for the log: told once until it answers */
	unsigned case_faults;
	uint64_t plain_until_ms;
	size_t current; /* the channel of the last question */
	struct channel udp[FORWARDER_CHANNELS];
	struct channel tcp;
	struct forward *probe;
	size_t n_open;       /* questions that it has, without probes */
	struct event *doubt; /* since its last answer, or since it was asked */
	struct event *limit; /* of the probe of one in doubt */
};

struct forward {
	LIST_ENTRY(forward) link;
	struct forwarder *owner;
	struct forwarder_upstream *upstream;
	struct channel *channel; /* with a question of this one open, or NULL */
	struct event *later;     /* done could not be run at once */
	struct dns_question question;
	struct dns_name sent; /* the name with the letters that were sent */
	enum forward_way way;
	bool mixed; /* sent in letters of random case */
	bool edns;
	bool starting;
	size_t tried;  /* resolvers, counted along the list */
	bool only_one; /* a probe */
	int err;
	forward_cb done; /* NULL: called off */
	void *arg;
};

LIST_HEAD(forward_list, forward);

struct forwarder {
	struct event_base *base;
	uint32_t timeout_ms;
	struct dns_question probe;
	uint32_t probe_interval_s;
	struct event *probe_timer;
	struct event *soon; /* the next probe while none lives */
	bool closing;
	size_t n;
	struct forwarder_upstream v[UPSTREAMS_MAX];
	size_t n_open;
	struct forward_list open;
	size_t n_random;
	uint8_t random[FORWARDER_RANDOM];
	struct dns_answer answer; /* the one being told; 25 KiB */
};

static void forward_ask(struct forward *w);
static void forwarder_doubt(struct forwarder_upstream *u);

/* --- letters, ids --- */

static uint8_t forwarder_random(struct forwarder *f)
{
	if (f->n_random == 0) {
		while (getrandom(f->random, sizeof(f->random), 0) != (ssize_t)sizeof(f->random))
			;
		f->n_random = sizeof(f->random);
	}
	return f->random[--f->n_random];
}

/* Letters in random case are bits that a forged answer has to guess (0x20, draft-vixie-dnsext). */
static void forward_mix_case(struct forward *w, bool mix)
{
	struct dns_name *to = &w->sent;
	uint8_t bits = 0;
	size_t i;

	w->mixed = mix;
	*to = w->question.name;
	for (i = 0; i < to->len; i++) {
		/* The lengths of labels are below 'A'. */
		to->b[i] = (uint8_t)ascii_lower((char)to->b[i]);
		if (!mix || to->b[i] < 'a' || to->b[i] > 'z')
			continue;
		if (bits <= 1)
			bits = forwarder_random(w->owner) | 0x80;
		if ((bits & 1) != 0)
			to->b[i] &= (uint8_t)~0x20;
		bits >>= 1;
	}
}

/* --- channels --- */

static void forwarder_channel_need(struct forwarder_upstream *u, struct channel *ch, int flags)
{
	struct errmsg msg = {""};

	if (ch->ares)
		return;
	/* It has worked at start; what fails now is memory. */
	if (channel_init(ch, u->owner->base, &u->one, u->owner->timeout_ms,
		    ARES_FLAG_NOCHECKRESP | flags, &msg) < 0)
		log_error("dns", "resolver %s: %s", u->text, msg.text);
}

/* As in channels.c: an idle channel first, since its next question leaves from a new port. */
static struct channel *forwarder_pick(struct forwarder_upstream *u)
{
	size_t i;

	for (i = 1; i < FORWARDER_CHANNELS; i++) {
		if (u->udp[(u->current + i) % FORWARDER_CHANNELS].n_open > 0)
			continue;
		u->current = (u->current + i) % FORWARDER_CHANNELS;
		break;
	}
	return &u->udp[u->current];
}

/* --- the end of a question --- */

static void forward_free(struct forward *w)
{
	LIST_REMOVE(w, link);
	w->owner->n_open--;
	if (w->later)
		event_free(w->later);
	free(w);
}

static void forward_tell(struct forward *w, struct dns_answer *answer)
{
	forward_cb done = w->done;
	void *arg = w->arg;
	int err = w->err;

	forward_free(w);
	if (done)
		done(err, answer, arg);
}

static void on_forward_later(evutil_socket_t fd, short what, void *arg)
{
	forward_tell(arg, NULL);
}

static void forward_fail(struct forward *w, int err)
{
	static const struct timeval at_once = {0, 0};

	w->err = err;
	if (!w->starting) {
		forward_tell(w, NULL);
		return;
	}
	w->later = evtimer_new(w->owner->base, on_forward_later, w);
	REQUIRE(w->later && evtimer_add(w->later, &at_once) == 0);
}

/* The next resolver that lives; all of them where none does (reference 5.3). */
static struct forwarder_upstream *forwarder_next(struct forwarder *f, size_t *tried)
{
	bool any = forwarder_n_alive(f) > 0;

	while (*tried < f->n) {
		struct forwarder_upstream *u = &f->v[(*tried)++];

		if (u->alive || !any)
			return u;
	}
	return NULL;
}

static void forward_next(struct forward *w, int err)
{
	struct forwarder_upstream *u =
		w->only_one || !w->done ? NULL : forwarder_next(w->owner, &w->tried);

	if (!u) {
		forward_fail(w, err);
		return;
	}
	w->upstream = u;
	w->way = FORWARD_UDP;
	forward_ask(w);
}

/* --- answers --- */

static void forwarder_complain(struct forwarder_upstream *u, const char *what)
{
	/* Once until it answers again: a dead resolver fails every question. */
	if (!u->was_silent)
		log_warn("dns", "[dns] upstream %s exchange error: %s", u->text, what);
	u->was_silent = true;
}

static void forward_broken(struct forward *w, int status)
{
	if (w->way == FORWARD_TCP) {
		w->way = FORWARD_PLAIN;
		w->upstream->plain_until_ms = clock_mono_ms() + FORWARDER_CASE_MS;
		forward_ask(w);
		return;
	}
	if (!w->only_one)
		forwarder_doubt(w->upstream);
	if (!w->only_one && w->done)
		forwarder_complain(w->upstream, ares_strerror(status));
	forward_next(w, status == ARES_ETIMEOUT ? -ETIMEDOUT : E_RESOLVE);
}

/* By UDP the letters must be the ones that were sent. Over TCP nobody can have forged the answer.
 */
static bool forward_case_ok(struct forward *w, const struct dns_answer *a)
{
	struct forwarder_upstream *u = w->upstream;

	if (memcmp(a->name.b, w->sent.b, w->sent.len) == 0) {
		if (w->way == FORWARD_UDP)
			u->case_faults = 0;
		return true;
	}
	if (w->way != FORWARD_UDP || !w->mixed)
		return true;
	if (++u->case_faults >= FORWARDER_CASE_FAULTS_MAX) {
		u->case_faults = 0;
		u->plain_until_ms = clock_mono_ms() + FORWARDER_CASE_MS;
		log_info("dns", "upstream %s does not keep letter case: asked without", u->text);
	}
	w->way = FORWARD_TCP;
	forward_ask(w);
	return false;
}

/* FORMERR without OPT to a question with it: it does not know OPT (RFC 6891 7). c-ares has tried by
 * itself the first time. */
static bool forward_without_edns(struct forward *w, const struct dns_answer *a)
{
	if (a->rcode != DNS_FORMERR || a->edns || !w->edns)
		return false;
	w->upstream->no_edns = true;
	forward_ask(w);
	return true;
}

static void forward_take(struct forward *w, struct slice msg)
{
	struct dns_answer *a = &w->owner->answer;
	int ret = dns_answer_decode(msg, a);

	if (ret < 0 || a->type != w->question.type || a->class != DNS_CLASS_IN ||
		!dns_name_eq(&a->name, &w->sent)) {
		forward_broken(w, ARES_EBADRESP);
		return;
	}
	if (forward_without_edns(w, a) || !forward_case_ok(w, a))
		return;
	if (!w->only_one && a->rcode != DNS_NOERROR && a->rcode != DNS_NXDOMAIN) {
		if (w->done)
			log_debug("dns", "[dns] upstream %s: rcode %u; trying next",
				w->upstream->text, a->rcode);
		forward_next(w, E_RESOLVE);
		return;
	}
	if ((a->flags & DNS_TC) != 0) {
		/* By TCP: there is no more of it. */
		forward_broken(w, ARES_EBADRESP);
		return;
	}
	w->upstream->was_silent = false;
	w->err = 0;
	forward_tell(w, a);
}

static void forwarder_timer(struct event *e, unsigned ms)
{
	const struct timeval tv = {ms / 1000, (suseconds_t)(ms % 1000) * 1000};

	(void)evtimer_add(e, &tv);
}

static void forwarder_asked(struct forwarder_upstream *u)
{
	u->n_open++;
	if (u->owner->probe_interval_s > 0 && !evtimer_pending(u->doubt, NULL))
		forwarder_timer(u->doubt, FORWARDER_DOUBT_MS);
}

static void forwarder_heard(struct forwarder_upstream *u, bool answer)
{
	u->n_open--;
	if (u->n_open == 0)
		(void)evtimer_del(u->doubt);
	else if (answer && u->owner->probe_interval_s > 0)
		forwarder_timer(u->doubt, FORWARDER_DOUBT_MS);
}

static void on_forward_answer(void *arg, int status, int timeouts, unsigned char *buf, int len)
{
	struct forward *w = arg;

	w->channel->n_open--;
	w->channel = NULL;
	if (w->owner->closing) {
		forward_free(w);
		return;
	}
	if (!w->only_one)
		forwarder_heard(w->upstream, buf != NULL);
	if (!buf)
		forward_broken(w, status);
	else
		forward_take(w, slice_make((const char *)buf, (size_t)len));
}

static void forward_ask(struct forward *w)
{
	struct forwarder_upstream *u = w->upstream;
	struct forwarder *f = w->owner;
	uint8_t buf[DNS_QUESTION_MAX];
	struct channel *ch;
	uint16_t id = (uint16_t)(forwarder_random(f) << 8 | forwarder_random(f));
	struct dns_question q;
	size_t len;

	forward_mix_case(w, w->way != FORWARD_PLAIN && clock_mono_ms() >= u->plain_until_ms);
	w->edns = !u->no_edns;
	q = w->question;
	q.name = w->sent;
	len = dns_question_encode(&q, id, w->edns, CHANNEL_EDNS_SIZE, buf);
	ch = w->way == FORWARD_TCP ? &u->tcp : forwarder_pick(u);
	forwarder_channel_need(u, ch, w->way == FORWARD_TCP ? ARES_FLAG_USEVC : 0);
	if (!ch->ares) {
		forward_fail(w, E_RESOLVE);
		return;
	}
	w->channel = ch;
	ch->n_open++;
	if (!w->only_one)
		forwarder_asked(u);
	/* w may be gone after this. */
	ares_send(ch->ares, buf, (int)len, on_forward_answer, w);
	channel_touch(ch);
}

static struct forward *forward_new(
	struct forwarder *f, const struct dns_question *q, forward_cb done, void *arg)
{
	struct forward *w = xcalloc(1, sizeof(*w));

	w->owner = f;
	w->question = *q;
	w->question.class = DNS_CLASS_IN;
	w->done = done;
	w->arg = arg;
	w->starting = true;
	LIST_INSERT_HEAD(&f->open, w, link);
	f->n_open++;
	return w;
}

struct forward *forward_start(
	struct forwarder *f, const struct dns_question *q, forward_cb done, void *arg)
{
	struct forward *w = forward_new(f, q, done, arg);

	if (f->n_open > FORWARDER_OPEN_MAX)
		forward_fail(w, E_FULL);
	else
		forward_next(w, E_RESOLVE);
	/* While it starts, nothing frees it: an end is told later (forward_fail). */
	w->starting = false; /* NOLINT(clang-analyzer-unix.Malloc) */
	return w;
}

void forward_cancel(struct forward *w)
{
	if (!w)
		return;
	w->done = NULL;
	/* A question that c-ares has cannot be taken back; it ends on its own. */
	if (!w->channel)
		forward_free(w);
}

/* --- probes --- */

size_t forwarder_n_alive(const struct forwarder *f)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < f->n; i++)
		n += f->v[i].alive;
	return n;
}

size_t forwarder_n(const struct forwarder *f)
{
	return f->n;
}

static void forwarder_set_alive(struct forwarder_upstream *u, bool alive)
{
	struct forwarder *f = u->owner;
	const bool was = u->alive;

	u->alive = alive;
	if (forwarder_n_alive(f) == 0 && !evtimer_pending(f->soon, NULL))
		forwarder_timer(f->soon, FORWARDER_SOON_MS);
	if (was == alive)
		return;
	if (alive)
		log_info("dns", "[dns] upstream probe %s: answers again", u->text);
	else if (forwarder_n_alive(f) == 0)
		log_warn("dns", "no resolver answers: all of them are tried");
}

static void on_forwarder_probed(int err, struct dns_answer *answer, void *arg)
{
	struct forwarder_upstream *u = arg;

	u->probe = NULL;
	(void)evtimer_del(u->limit);
	if (err != 0 && u->alive)
		log_warn("dns", "[dns] upstream probe %s failed: %s", u->text, err_text(err));
	forwarder_set_alive(u, err == 0);
}

static void forwarder_probe_one(struct forwarder_upstream *u)
{
	struct forward *w;

	if (u->probe)
		return;
	w = forward_new(u->owner, &u->owner->probe, on_forwarder_probed, u);
	w->only_one = true;
	w->upstream = u;
	u->probe = w;
	forward_ask(w);
	w->starting = false;
}

static void forwarder_doubt(struct forwarder_upstream *u)
{
	if (u->owner->probe_interval_s == 0 || !u->alive || evtimer_pending(u->limit, NULL))
		return;
	forwarder_timer(u->limit, FORWARDER_LIMIT_MS);
	forwarder_probe_one(u);
}

static void on_forwarder_doubt(evutil_socket_t fd, short what, void *arg)
{
	forwarder_doubt(arg);
}

/* Its answer may still come: then it lives again. */
static void on_forwarder_limit(evutil_socket_t fd, short what, void *arg)
{
	struct forwarder_upstream *u = arg;

	if (u->alive)
		log_warn("dns", "[dns] upstream probe %s failed: no answer within %d ms", u->text,
			FORWARDER_LIMIT_MS);
	forwarder_set_alive(u, false);
}

static void on_forwarder_soon(evutil_socket_t fd, short what, void *arg)
{
	struct forwarder *f = arg;

	if (forwarder_n_alive(f) > 0)
		return;
	for (size_t i = 0; i < f->n; i++)
		forwarder_probe_one(&f->v[i]);
	forwarder_timer(f->soon, FORWARDER_SOON_MS);
}

static void on_forwarder_probe(evutil_socket_t fd, short what, void *arg)
{
	struct forwarder *f = arg;
	struct timeval every = {.tv_sec = f->probe_interval_s};
	size_t i;

	for (i = 0; i < f->n; i++)
		forwarder_probe_one(&f->v[i]);
	evtimer_add(f->probe_timer, &every);
}

/* --- start and end --- */

static int forwarder_upstream_init(
	struct forwarder *f, size_t i, const struct forwarder_config *config, struct errmsg *msg)
{
	struct forwarder_upstream *u = &f->v[i];
	char addr[NETADDR_TEXT_MAX];

	u->owner = f;
	u->alive = true;
	u->doubt = evtimer_new(f->base, on_forwarder_doubt, u);
	u->limit = evtimer_new(f->base, on_forwarder_limit, u);
	REQUIRE(u->doubt && u->limit);
	u->one.n = 1;
	u->one.v[0] = config->upstreams->v[i];
	netaddr_text(&u->one.v[0].addr, addr);
	(void)snprintf(u->text, sizeof(u->text), "%s:%u", addr, u->one.v[0].port);
	/* The first one now, so that what c-ares does not like is a fault of the start. */
	return channel_init(
		&u->udp[0], f->base, &u->one, f->timeout_ms, ARES_FLAG_NOCHECKRESP, msg);
}

static int forwarder_probe_init(
	struct forwarder *f, const struct forwarder_config *config, struct errmsg *msg)
{
	static const struct timeval at_once = {0, 0};

	f->probe_interval_s = config->probe_interval_s;
	f->probe.flags = DNS_RD;
	if (!dns_name_from_text(config->probe_name, &f->probe.name))
		return errmsg_set(msg, E_VALUE, "probe name \"%.*s\": expected a host name",
			SLICE_FMT(config->probe_name));
	f->probe.type = f->probe.name.len == 1 ? DNS_NS : DNS_A;
	f->probe_timer = evtimer_new(f->base, on_forwarder_probe, f);
	f->soon = evtimer_new(f->base, on_forwarder_soon, f);
	REQUIRE(f->probe_timer && f->soon);
	if (f->probe_interval_s > 0)
		evtimer_add(f->probe_timer, &at_once);
	return 0;
}

int forwarder_new(struct event_base *base, const struct forwarder_config *config,
	struct forwarder **out, struct errmsg *msg)
{
	struct forwarder *f;
	int status = ares_library_init(ARES_LIB_INIT_ALL);
	int ret = 0;
	size_t i;

	if (status != ARES_SUCCESS)
		return errmsg_set(msg, E_RESOLVE, "c-ares: %s", ares_strerror(status));
	f = xcalloc(1, sizeof(*f));
	f->base = base;
	f->timeout_ms = config->timeout_ms;
	LIST_INIT(&f->open);
	f->n = config->upstreams->n;
	for (i = 0; i < f->n && ret == 0; i++)
		ret = forwarder_upstream_init(f, i, config, msg);
	if (ret == 0 && f->n == 0)
		ret = errmsg_set(msg, E_VALUE, "there must be 1 to %d resolvers", UPSTREAMS_MAX);
	if (ret == 0)
		ret = forwarder_probe_init(f, config, msg);
	if (ret < 0) {
		forwarder_free(f);
		return ret;
	}
	*out = f;
	return 0;
}

void forwarder_free(struct forwarder *f)
{
	struct forward *w;
	size_t i, k;

	if (!f)
		return;
	f->closing = true;
	for (i = 0; i < f->n; i++) {
		for (k = 0; k < FORWARDER_CHANNELS; k++)
			channel_fini(&f->v[i].udp[k]);
		channel_fini(&f->v[i].tcp);
	}
	/* What is left waits for its turn to be told. */
	/* The analyzer does not see that forward_free takes it off the list. */
	while ((w = LIST_FIRST(&f->open)))
		forward_free(w); /* NOLINT(clang-analyzer-unix.Malloc) */
	for (i = 0; i < f->n; i++) {
		if (f->v[i].doubt)
			event_free(f->v[i].doubt);
		if (f->v[i].limit)
			event_free(f->v[i].limit);
	}
	if (f->probe_timer)
		event_free(f->probe_timer);
	if (f->soon)
		event_free(f->soon);
	ares_library_cleanup();
	free(f);
}
