/* The program `egress`: reads the command line and becomes supervisor or worker. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/proc.h"
#include "control/sources.h"
#include "control/supervisor.h"
#include "control/vault_report.h"
#include "control/worker.h"

#define PRINT_MAX (64u << 20) /* more than any configuration prints */

static const char main_usage[] =
	"NAME\n"
	"      egress - egress proxy for the sandbox of an AI agent\n"
	"\n"
	"USAGE\n"
	"      egress [--config FILE]\n"
	"      egress --check [--config FILE]\n"
	"      egress --help | --version\n"
	"\n"
	"DESCRIPTION\n"
	"      Decides by policy where the sandbox may connect and by the read-only rule\n"
	"      what it may do there, and writes each decision to an audit trail.\n"
	"      Mode proxy is an explicit HTTP proxy and needs no privileges. In modes dns\n"
	"      and dns+nft it shares the sandbox's network namespace: DNS is redirected\n"
	"      to its gate, and with dns+nft the kernel lets out only what policy allows\n"
	"      (needs CAP_NET_ADMIN; CAP_NET_RAW and root make it tighter).\n"
	"      HTTPS is decrypted with a CA that is made at start; its certificate is\n"
	"      written to ca_cert_out. A supervisor holds the listeners, the CA and the\n"
	"      files, and restarts the worker and the guard.\n"
	"\n"
	"OPTIONS\n"
	"      -c, --config FILE   read settings from this YAML file; a variable of the\n"
	"                          environment wins over its key\n"
	"          --check         check the settings, print the effective ones as YAML\n"
	"                          (no secrets), and exit with 0 or 2\n"
	"      -h, --help          print this text\n"
	"      -V, --version       print the version\n"
	"\n"
	"ENVIRONMENT\n"
	"      Each setting with its YAML key, if it has one, and its variable. An\n"
	"      unknown AGENTIC_* or EGRESS_* variable and an unknown key are errors.\n"
	"\n";

static const char main_usage_end[] =
	"\n"
	"FILES\n"
	"      /etc/resolv.conf    read once at start, unless dns_upstream is set\n"
	"      /etc/hosts          mode proxy: read at start and on SIGHUP\n"
	"\n"
	"SIGNALS\n"
	"      SIGHUP              read configuration, policy, ceiling, rule files, vault\n"
	"                          file, API key and hosts again, open the audit file\n"
	"                          again and write the CA certificate again; if\n"
	"                          anything is wrong, nothing changes\n"
	"      SIGTERM, SIGINT     stop: no new connections, at most 8 s for open ones\n"
	"\n"
	"EXIT CODES\n"
	"      0   stopped by a signal; --check: the settings are right\n"
	"      1   the system failed\n"
	"      2   a wrong option, a wrong setting, or a start that cannot succeed;\n"
	"          stderr says why. But for the option, modes dns and dns+nft go on\n"
	"          instead, closed: nothing gets out, and /healthz says why\n"
	"      3   modes dns and dns+nft: the API cannot listen\n"
	"\n"
	"EXAMPLE\n"
	"      egress --config egress.yaml &\n"
	"      export https_proxy=http://127.0.0.1:18081\n"
	"      curl --cacert ~/.local/state/egress/ca-cert.pem https://pypi.org/simple/\n";

static int main_print(struct strbuf *text)
{
	size_t n = fwrite(text->p, 1, text->len, stdout);
	bool good = n == text->len && !text->full && fflush(stdout) == 0;

	strbuf_fini(text);
	return good ? SUPERVISOR_EXIT_OK : SUPERVISOR_EXIT_FAILED;
}

static int main_help(void)
{
	struct strbuf text;

	strbuf_init(&text, PRINT_MAX);
	strbuf_str(&text, main_usage);
	settings_print_help(&text);
	strbuf_str(&text, main_usage_end);
	return main_print(&text);
}

static int main_version(void)
{
	struct strbuf text;

	strbuf_init(&text, PRINT_MAX);
	strbuf_str(&text, "egress " EGRESS_VERSION "\n");
	return main_print(&text);
}

static int main_check(const char *config_path)
{
	struct vault_report *vault = NULL;
	struct settings *s = NULL;
	struct errmsg msg = {""};
	struct strbuf text;
	int ret;

	ret = sources_load(config_path, environ, &s, &msg);
	if (ret == 0)
		ret = vault_report_new(s, &vault, &msg);
	if (ret < 0) {
		supervisor_complain(msg.text);
		ret = SUPERVISOR_EXIT_SETTINGS;
	} else {
		strbuf_init(&text, PRINT_MAX);
		settings_print(s, &text);
		ret = main_print(&text);
	}
	vault_report_free(vault);
	settings_free(s);
	return ret;
}

/* Everything that can be given up before the first byte is read is given up here; the supervisor
 * has changed the user already. */
static int main_worker(void)
{
	struct errmsg msg = {""};
	int ret;

	/* Else ps(1) shows "exe", after the link that it was started by. */
	(void)prctl(PR_SET_NAME, "egress-worker", 0, 0, 0);
	ret = proc_harden(true, &msg);
	if (ret < 0) {
		supervisor_complain(msg.text);
		return WORKER_EXIT_SETTINGS;
	}
	return worker_main(WORKER_CONTROL_FD);
}

/* A start with descriptor 0, 1 or 2 closed would give its number to a listener or a file. */
static void main_open_std(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void)close(fd);
}

static int main_wrong_usage(const char *what)
{
	char text[160];

	(void)snprintf(
		text, sizeof(text), "command line: %.60s: expected an option of --help", what);
	supervisor_complain(text);
	return SUPERVISOR_EXIT_SETTINGS;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{"worker", no_argument, NULL, 'w'}, /* internal: the supervisor starts it */
		{NULL, 0, NULL, 0},
	};
	const char *config_path = NULL;
	bool check = false;
	int c;

	main_open_std();
	opterr = 0;
	while ((c = getopt_long(argc, argv, "c:hV", options, NULL)) != -1) {
		if (c == 'h')
			return main_help();
		if (c == 'V')
			return main_version();
		if (c == 'w')
			return main_worker();
		if (c == 'c')
			config_path = optarg;
		else if (c == 'k')
			check = true;
		else
			return main_wrong_usage(argv[optind - 1]);
	}
	if (optind < argc)
		return main_wrong_usage(argv[optind]);
	return check ? main_check(config_path) : supervisor_run(config_path, environ);
}
