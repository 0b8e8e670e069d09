/* The configuration file, in mode proxy and in the mode that it asks for: whatever is accepted is
 * printed, read again, and printed as the same. A refusal has a message, the mode is known whatever
 * else is wrong, and closed settings allow nothing. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "control/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

/* The least that a start in mode proxy needs; a key of the file may not replace it. */
static char *const env_proxy[] = {
	(char[]){"OPENSANDBOX_EGRESS_MODE=proxy"}, (char[]){"HOME=/h"}, NULL};
static char *const env_file[] = {(char[]){"HOME=/h"}, NULL};

static int text_fd(struct slice text)
{
	int fd = memfd_create("text", MFD_CLOEXEC);

	REQUIRE(fd >= 0 && write(fd, text.p, text.len) == (ssize_t)text.len);
	return fd;
}

static int load(
	struct slice text, char *const *env, struct settings **out, bool *proxy, struct errmsg *msg)
{
	struct settings_source src = {.config_path = "f",
		.config_fd = text_fd(text),
		.policy_fd = -1,
		.resolv_conf_fd = text_fd(SLICE("nameserver 192.0.2.53\n")),
		.deny_fd = -1,
		.allow_fd = -1,
		.log_skip_fd = -1,
		.ceiling_fd = -1,
		.environ = env,
		.quiet = true};
	struct settings *closed;
	int ret = settings_load(&src, out, msg);

	*proxy = settings_mode_is_proxy(&src);
	closed = settings_closed(&src);
	REQUIRE(closed->enforce && closed->api && !policy_default_allow(closed->policy));
	settings_free(closed);
	(void)close(src.config_fd);
	(void)close(src.resolv_conf_fd);
	return ret;
}

static void load_and_print(struct slice text, char *const *env)
{
	struct settings *s = NULL;
	struct settings *again = NULL;
	struct errmsg msg = {""};
	struct strbuf first;
	struct strbuf second;
	bool proxy;

	if (load(text, env, &s, &proxy, &msg) < 0) {
		REQUIRE(!s && msg.text[0]);
		REQUIRE(env != env_proxy || proxy);
		return;
	}
	REQUIRE(proxy == (s->mode == MODE_PROXY));
	strbuf_init(&first, 16u << 20);
	strbuf_init(&second, 16u << 20);
	settings_print(s, &first);
	REQUIRE(load(strbuf_slice(&first), env, &again, &proxy, &msg) == 0);
	REQUIRE(again->mode == s->mode && again->proxy == s->proxy &&
		again->enforce == s->enforce && again->inbound_all == s->inbound_all &&
		again->transparent == s->transparent && again->intercept == s->intercept);
	settings_print(again, &second);
	REQUIRE(slice_eq(strbuf_slice(&first), strbuf_slice(&second)));
	strbuf_fini(&first);
	strbuf_fini(&second);
	settings_free(s);
	settings_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice text = slice_make((const char *)p, len);

	load_and_print(text, env_proxy);
	load_and_print(text, env_file);
	return 0;
}
