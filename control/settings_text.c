/* Texts of settings to values. Pure: knows no environment, no file and no key. Before it:
 * settings.c, which says where the text came from. */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hostname.h"
#include "control/settings_int.h"

#define DURATION_MAX_MS (24u * 3600 * 1000)
#define NOT_READ "\"%.*s\": expected "

/* Messages quote what was written, but not a novel. */
static struct slice settings_text_shown(struct slice s)
{
	return slice_first(s, 100);
}

static int settings_text_fail(struct slice s, const char *expected, struct errmsg *msg)
{
	s = settings_text_shown(s);
	return errmsg_set(msg, E_VALUE, NOT_READ "%s", SLICE_FMT(s), expected);
}

static bool settings_text_among(struct slice s, const char *const *names, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (slice_ieq(s, slice_str(names[i])))
			return true;
	}
	return false;
}

int settings_text_bool(struct slice s, bool *out, struct errmsg *msg)
{
	static const char *const on[] = {"1", "true", "yes", "y", "on"};
	static const char *const off[] = {"0", "false", "no", "n", "off"};

	s = slice_strip(s);
	*out = settings_text_among(s, on, ARRAY_LEN(on));
	if (*out || settings_text_among(s, off, ARRAY_LEN(off)))
		return 0;
	return settings_text_fail(s, "on or off (1 true yes y on, 0 false no n off)", msg);
}

int settings_text_number(
	struct slice s, uint64_t min, uint64_t max, uint64_t *out, struct errmsg *msg)
{
	s = slice_strip(s);
	if (slice_to_u64(s, out) && *out >= min && *out <= max)
		return 0;
	s = settings_text_shown(s);
	return errmsg_set(msg, E_VALUE, NOT_READ "a number from %llu to %llu", SLICE_FMT(s),
		(unsigned long long)min, (unsigned long long)max);
}

/* Splits "10s" into 10 and the factor of "s". */
static bool settings_text_unit(struct slice s, const char *const *units, const uint64_t *factors,
	uint64_t *number, uint64_t *factor)
{
	size_t digits = 0;
	size_t i;

	while (digits < s.len && ascii_digit(s.p[digits]))
		digits++;
	if (!slice_to_u64(slice_first(s, digits), number))
		return false;
	for (i = 0; units[i]; i++) {
		if (slice_eq(slice_from(s, digits), slice_str(units[i]))) {
			*factor = factors[i];
			return true;
		}
	}
	return false;
}

int settings_text_duration(struct slice s, uint32_t *ms, struct errmsg *msg)
{
	static const char *const units[] = {"ms", "s", "m", "h", NULL};
	static const uint64_t factors[] = {1, 1000, 60000, 3600000};
	uint64_t number;
	uint64_t factor;

	s = slice_strip(s);
	if (!settings_text_unit(s, units, factors, &number, &factor) || number == 0 ||
		number > DURATION_MAX_MS / factor)
		return settings_text_fail(
			s, "a duration like 300ms, 10s, 5m or 1h, 24h at most", msg);
	*ms = (uint32_t)(number * factor);
	return 0;
}

int settings_text_size(
	struct slice s, uint64_t min, uint64_t max, uint64_t *out, struct errmsg *msg)
{
	static const char *const units[] = {"", "KiB", "MiB", "GiB", NULL};
	static const uint64_t factors[] = {1, 1u << 10, 1u << 20, 1u << 30};
	uint64_t number;
	uint64_t factor;

	s = slice_strip(s);
	if (settings_text_unit(s, units, factors, &number, &factor) && number <= max / factor &&
		number * factor >= min) {
		*out = number * factor;
		return 0;
	}
	s = settings_text_shown(s);
	return errmsg_set(msg, E_VALUE, NOT_READ "a size like 512KiB or 64MiB, %llu to %llu bytes",
		SLICE_FMT(s), (unsigned long long)min, (unsigned long long)max);
}

int settings_text_addr(struct slice s, struct netaddr *addr, uint16_t *port, struct errmsg *msg)
{
	struct slice host;
	uint64_t number;
	size_t colon;
	bool v6;

	s = slice_strip(s);
	colon = slice_rfind_char(s, ':');
	host = slice_first(s, colon);
	v6 = host.len > 2 && host.p[0] == '[' && host.p[host.len - 1] == ']';
	if (v6)
		host = slice_make(host.p + 1, host.len - 2);
	if (colon == s.len || !slice_to_u64(slice_from(s, colon + 1), &number) || number == 0 ||
		number > UINT16_MAX || !netaddr_parse(host, addr) || netaddr_is_v4(addr) == v6)
		return settings_text_fail(
			s, "an address and a port, like 127.0.0.1:18081 or [::1]:18081", msg);
	*port = (uint16_t)number;
	return 0;
}

int settings_text_listen(
	struct slice s, struct netaddr *addr, bool *any, uint16_t *port, struct errmsg *msg)
{
	static const struct slice local = {"localhost:", 10};
	struct errmsg why = {""};
	char text[32];
	uint64_t number;

	s = slice_strip(s);
	*any = s.len > 0 && s.p[0] == ':';
	if (*any || slice_starts(s, local)) {
		s = slice_from(s, *any ? 1 : local.len);
		if (slice_to_u64(s, &number) && number > 0 && number <= UINT16_MAX) {
			(void)snprintf(text, sizeof(text), "127.0.0.1:%u", (unsigned)number);
			return settings_text_addr(slice_str(text), addr, port, msg);
		}
	} else if (settings_text_addr(s, addr, port, &why) == 0) {
		/* Go's "[::]" is every address, too. */
		*any = netaddr_class(addr) == ADDR_UNSPECIFIED && !netaddr_is_v4(addr);
		return 0;
	}
	return settings_text_fail(
		s, "a place to listen, like :18080, 127.0.0.1:18080 or [::1]:18080", msg);
}

int settings_text_mode(struct slice s, enum egress_mode *out, struct errmsg *msg)
{
	struct slice rest = slice_strip(s);
	bool dns = false;
	bool nft = false;
	struct slice token;

	if (slice_ieq(rest, SLICE("proxy"))) {
		*out = MODE_PROXY;
		return 0;
	}
	while (rest.p) {
		token = slice_strip(slice_cut(&rest, '+'));
		if (slice_ieq(token, SLICE("dns")))
			dns = true;
		else if (slice_ieq(token, SLICE("nft")))
			nft = true;
		else if (token.len > 0)
			return settings_text_fail(s, "proxy, dns or dns+nft", msg);
	}
	if (!dns)
		return settings_text_fail(s, "proxy, dns or dns+nft", msg);
	*out = nft ? MODE_DNS_NFT : MODE_DNS;
	return 0;
}

int settings_text_intercept(struct slice s, enum intercept *out, struct errmsg *msg)
{
	static const enum intercept all[] = {INTERCEPT_ALL, INTERCEPT_BOUND, INTERCEPT_OFF};
	size_t i;

	s = slice_strip(s);
	/* YAML 1.1 habits: `off` may also come as the boolean. */
	if (slice_ieq(s, SLICE("false")))
		s = SLICE("off");
	for (i = 0; i < ARRAY_LEN(all); i++) {
		if (slice_ieq(s, slice_str(settings_intercept_text(all[i])))) {
			*out = all[i];
			return 0;
		}
	}
	return settings_text_fail(s, "all, bound or off", msg);
}

int settings_text_allow(struct slice s, bool *allow, struct errmsg *msg)
{
	s = slice_strip(s);
	*allow = slice_ieq(s, SLICE("allow"));
	if (*allow || slice_ieq(s, SLICE("deny")))
		return 0;
	return settings_text_fail(s, "deny or allow", msg);
}

int settings_text_placeholders(struct slice s, enum placeholders *out, struct errmsg *msg)
{
	static const enum placeholders all[] = {
		PLACEHOLDERS_DENY, PLACEHOLDERS_STRIP, PLACEHOLDERS_PASS};
	size_t i;

	s = slice_strip(s);
	for (i = 0; i < ARRAY_LEN(all); i++) {
		if (slice_ieq(s, slice_str(settings_placeholders_text(all[i])))) {
			*out = all[i];
			return 0;
		}
	}
	return settings_text_fail(s, "deny, strip or pass", msg);
}

int settings_text_log_level(struct slice s, enum log_level *out, struct errmsg *msg)
{
	static const struct {
		const char *name;
		enum log_level level;
	} names[] = {
		{"debug", LOG_LEVEL_DEBUG},
		{"info", LOG_LEVEL_INFO},
		{"warn", LOG_LEVEL_WARN},
		{"warning", LOG_LEVEL_WARN},
		{"error", LOG_LEVEL_ERROR},
		{"fatal", LOG_LEVEL_ERROR},
	};
	size_t i;

	s = slice_strip(s);
	for (i = 0; i < ARRAY_LEN(names); i++) {
		if (slice_ieq(s, slice_str(names[i].name))) {
			*out = names[i].level;
			return 0;
		}
	}
	return settings_text_fail(s, "debug, info, warn or error", msg);
}

char *settings_text_dup(struct slice s)
{
	char *copy = xcalloc(1, s.len + 1);

	if (s.len > 0)
		memcpy(copy, s.p, s.len);
	return copy;
}

bool settings_text_item(struct slice *rest, struct slice *item)
{
	static const char separators[] = ", \t\r\n\v\f";
	size_t len = 0;

	while (rest->len > 0 && memchr(separators, rest->p[0], sizeof(separators) - 1))
		*rest = slice_from(*rest, 1);
	while (len < rest->len && !memchr(separators, rest->p[len], sizeof(separators) - 1))
		len++;
	*item = slice_first(*rest, len);
	*rest = slice_from(*rest, len);
	return len > 0;
}

int settings_text_private_names(struct slice s, struct private_names *out, struct errmsg *msg)
{
	char name[HOSTNAME_MAX + 1];
	struct slice item;
	size_t len;
	int ret;

	while (settings_text_item(&s, &item)) {
		ret = hostname_from_person(item, name, &len, msg);
		if (ret < 0)
			return settings_text_fail(
				item, "a name like cluster.local, without * and port", msg);
		out->suffix = xrealloc(out->suffix, (out->n + 1) * sizeof(*out->suffix));
		out->suffix[out->n++] = xstrdup(name);
	}
	return 0;
}

int settings_text_ports(struct slice s, uint16_t *ports, size_t max, size_t *n, struct errmsg *msg)
{
	struct slice rest = slice_strip(s);
	struct slice item;
	uint64_t port;
	size_t i;

	*n = 0;
	if (rest.len == 0)
		return 0;
	while (rest.p) {
		item = slice_strip(slice_cut(&rest, ','));
		if (!slice_to_u64(item, &port) || port == 0 || port > UINT16_MAX)
			return settings_text_fail(item, "a port from 1 to 65535", msg);
		if (port == 80 || port == 443)
			return settings_text_fail(
				item, "ports beside 80 and 443, which are inspected anyway", msg);
		for (i = 0; i < *n; i++) {
			if (ports[i] == port)
				return settings_text_fail(item, "each port once", msg);
		}
		if (*n == max)
			return errmsg_set(
				msg, E_VALUE, "too many ports: expected %zu at most", max);
		ports[(*n)++] = (uint16_t)port;
	}
	return 0;
}

int settings_text_audit(struct slice s, bool *to_stdout, char **file, struct errmsg *msg)
{
	struct slice rest = slice_strip(s);
	struct slice item;

	*to_stdout = false;
	while (rest.p) {
		item = slice_strip(slice_cut(&rest, ','));
		if (slice_eq(item, SLICE("stdout")) && !*to_stdout) {
			*to_stdout = true;
		} else if (slice_find_char(item, '/') < item.len && !*file &&
			item.p[item.len - 1] != '/') {
			*file = settings_text_dup(item);
		} else {
			return settings_text_fail(item,
				"stdout, the path of a file (with a /), or both with a comma", msg);
		}
	}
	return 0;
}

const char *settings_mode_text(enum egress_mode mode)
{
	switch (mode) {
	case MODE_PROXY:
		return "proxy";
	case MODE_DNS:
		return "dns";
	case MODE_DNS_NFT:
		return "dns+nft";
	}
	return "unknown";
}

const char *settings_intercept_text(enum intercept i)
{
	switch (i) {
	case INTERCEPT_ALL:
		return "all";
	case INTERCEPT_BOUND:
		return "bound";
	case INTERCEPT_OFF:
		return "off";
	}
	return "unknown";
}

const char *settings_placeholders_text(enum placeholders p)
{
	switch (p) {
	case PLACEHOLDERS_DENY:
		return "deny";
	case PLACEHOLDERS_STRIP:
		return "strip";
	case PLACEHOLDERS_PASS:
		return "pass";
	}
	return "unknown";
}

const char *settings_log_level_text(enum log_level level)
{
	switch (level) {
	case LOG_LEVEL_ERROR:
		return "error";
	case LOG_LEVEL_WARN:
		return "warn";
	case LOG_LEVEL_INFO:
		return "info";
	case LOG_LEVEL_DEBUG:
		return "debug";
	}
	return "unknown";
}
