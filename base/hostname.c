/* Host names in one normal form, so that policy, DNS, proxy and audit compare bytes.
 *
 * Names from the wire are only lower-cased. Names that people write into configuration may be
 * Unicode; those go through libidn2 and then the same check. */
#include "base/hostname.h"

#include <idn2.h>

#include "base/netaddr.h"

#define HOSTNAME_UTF8_MAX 1024 /* 253 letters of up to 4 bytes */

static bool hostname_is_byte(char c)
{
	return (c >= 'a' && c <= 'z') || ascii_digit(c) || c == '-' || c == '_';
}

static int hostname_copy(struct slice s, char *buf)
{
	size_t label = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = ascii_lower(s.p[i]);

		buf[i] = c;
		if (c == '.') {
			if (label == 0)
				return E_SYNTAX;
			label = 0;
			continue;
		}
		if (!hostname_is_byte(c))
			return E_SYNTAX;
		if (++label > LABEL_MAX)
			return E_LIMIT;
	}
	return label > 0 ? 0 : E_SYNTAX;
}

int hostname_normal(struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len)
{
	int ret;

	if (s.len > 0 && s.p[s.len - 1] == '.')
		s.len--;
	ret = s.len > HOSTNAME_MAX ? E_LIMIT : hostname_copy(s, buf);
	*len = ret == 0 ? s.len : 0;
	buf[*len] = '\0';
	return ret;
}

static int hostname_normal_explained(
	struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len, struct errmsg *msg)
{
	int ret = hostname_normal(s, buf, len);

	if (ret == E_LIMIT)
		return errmsg_set(msg, ret, "a name has at most %d bytes and a label %d",
			HOSTNAME_MAX, LABEL_MAX);
	if (ret < 0)
		return errmsg_set(msg, ret,
			"a name is made of labels of letters, digits, '-' and '_' with dots "
			"between them");
	return 0;
}

int hostname_from_person(
	struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len, struct errmsg *msg)
{
	char text[HOSTNAME_UTF8_MAX];
	struct netaddr addr;
	char *ascii = NULL;
	bool is_ascii = true;
	int ret;

	for (size_t i = 0; i < s.len && is_ascii; i++)
		is_ascii = (unsigned char)s.p[i] < 0x80;
	if (is_ascii)
		return hostname_normal_explained(s, buf, len, msg);

	*len = 0;
	buf[0] = '\0';
	if (s.len >= sizeof(text))
		return errmsg_set(msg, E_LIMIT, "the name is too long");
	if (!slice_to_cstr(s, text, sizeof(text)))
		return errmsg_set(msg, E_SYNTAX, "the name holds a NUL byte");
	ret = idn2_to_ascii_8z(text, &ascii, IDN2_NONTRANSITIONAL);
	if (ret != IDN2_OK)
		return errmsg_set(
			msg, E_SYNTAX, "not an internationalized name: %s", idn2_strerror(ret));
	ret = hostname_normal_explained(slice_str(ascii), buf, len, msg);
	/* Full-width digits become plain ones, and an address is not a name. */
	if (ret == 0 && netaddr_parse_host(slice_make(buf, *len), &addr) != HOST_NAME) {
		*len = 0;
		buf[0] = '\0';
		ret = errmsg_set(msg, E_SYNTAX, "the name reads as an IP address");
	}
	idn2_free(ascii);
	return ret;
}

bool hostname_below(struct slice name, struct slice suffix)
{
	if (suffix.len == 0 || name.len <= suffix.len)
		return false;
	return name.p[name.len - suffix.len - 1] == '.' && slice_ends(name, suffix);
}
