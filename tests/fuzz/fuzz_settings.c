/* The configuration file: whatever is accepted is printed, read again, and printed as the same. A
 * refusal has a message. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "control/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static int load(struct slice text, struct settings **out, struct errmsg *msg)
{
	/* The least that a start in mode proxy needs; a key of the file may not replace it. */
	char *env[] = {(char[]){"OPENSANDBOX_EGRESS_MODE=proxy"}, (char[]){"HOME=/h"}, NULL};
	static const char resolv[] = "nameserver 192.0.2.53\n";
	struct settings_source src = {.config_path = "f",
		.policy_fd = -1,
		.deny_fd = -1,
		.allow_fd = -1,
		.log_skip_fd = -1,
		.environ = env,
		.quiet = true};
	int ret;

	src.config_fd = memfd_create("config", MFD_CLOEXEC);
	src.resolv_conf_fd = memfd_create("resolv", MFD_CLOEXEC);
	REQUIRE(src.config_fd >= 0 && src.resolv_conf_fd >= 0);
	REQUIRE(write(src.config_fd, text.p, text.len) == (ssize_t)text.len);
	REQUIRE(write(src.resolv_conf_fd, resolv, sizeof(resolv) - 1) == sizeof(resolv) - 1);
	ret = settings_load(&src, out, msg);
	(void)close(src.config_fd);
	(void)close(src.resolv_conf_fd);
	return ret;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct settings *s = NULL;
	struct settings *again = NULL;
	struct errmsg msg = {""};
	struct strbuf first;
	struct strbuf second;

	if (load(slice_make((const char *)p, len), &s, &msg) < 0) {
		REQUIRE(!s && msg.text[0]);
		return 0;
	}
	strbuf_init(&first, 16u << 20);
	strbuf_init(&second, 16u << 20);
	settings_print(s, &first);
	REQUIRE(load(strbuf_slice(&first), &again, &msg) == 0);
	settings_print(again, &second);
	REQUIRE(slice_eq(strbuf_slice(&first), strbuf_slice(&second)));
	strbuf_fini(&first);
	strbuf_fini(&second);
	settings_free(s);
	settings_free(again);
	return 0;
}
