/* From the vault file to an area in memory, by a child. Before it: the supervisor, at start, after
 * SIGHUP or when the file changed; after it: worker_vault, which maps the area and wipes it. */
#include "control/vault_feed.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/state.h"
#include "control/areas.h"
#include "control/roles.h"
#include "control/vault_file.h"

/* What the child answers, in memory that both have. */
struct feed_answer {
	struct vault_watch watch; /* first: it is what the caller keeps */
	int ret;                  /* what it starts with: the child said nothing */
	struct errmsg msg;
};

static struct feed_answer *feed_answer_new(void)
{
	void *p = mmap(NULL, sizeof(struct feed_answer), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct feed_answer *a = p;

	if (p == MAP_FAILED)
		return NULL;
	a->ret = E_EOF;
	return a;
}

void vault_feed_watch_free(struct vault_watch *w)
{
	if (w)
		(void)munmap(w, sizeof(struct feed_answer));
}

int vault_feed_put(struct slice doc, int *fd)
{
	uint64_t len = doc.len;
	size_t size = (sizeof(len) + doc.len + AREA_PAGE - 1) / AREA_PAGE * AREA_PAGE;
	void *area = NULL;
	int ret;

	/* Where there is no room for all of it, the worker could not map a locked one. */
	ret = state_create("egress-vault", size, area_lock_fits(), fd);
	if (ret < 0)
		return ret;
	ret = state_map(*fd, size, &area);
	if (ret < 0) {
		(void)close(*fd);
		*fd = -1;
		return ret;
	}
	memcpy(area, &len, sizeof(len));
	memcpy((char *)area + sizeof(len), doc.p, doc.len);
	(void)munmap(area, size);
	return 0;
}

int vault_feed_open(int fd, struct vault_feed *out)
{
	struct stat st;
	uint64_t len;
	int ret;

	*out = (struct vault_feed){.doc = SLICE_EMPTY};
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(len) || st.st_size > (off_t)AREA_FEED_LEN_MAX)
		return E_LIMIT;
	out->len = (size_t)st.st_size;
	ret = state_map(fd, out->len, &out->area);
	if (ret < 0)
		return ret;
	memcpy(&len, out->area, sizeof(len));
	if (len > out->len - sizeof(len)) {
		vault_feed_close(out);
		return E_SYNTAX;
	}
	out->doc = slice_make((char *)out->area + sizeof(len), (size_t)len);
	return 0;
}

void vault_feed_close(struct vault_feed *f)
{
	if (f->area) {
		explicit_bzero(f->area, f->len);
		(void)munmap(f->area, f->len);
	}
	*f = (struct vault_feed){.doc = SLICE_EMPTY};
}

/* The child. Its memory ends with it; it is never dumped, as its parent is not. */
static void feed_child(const char *path, int control, struct feed_answer *answer)
{
	struct roles sent;
	char *json = NULL;
	int ret;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	roles_init(&sent);
	ret = vault_file_read(path, &json, &answer->watch, &answer->msg);
	if (ret == 0) {
		ret = vault_feed_put(slice_str(json), &sent.fd[ROLE_VAULT]);
		if (ret == 0)
			ret = control_send(control, CONTROL_VAULT, &sent);
		if (ret < 0)
			(void)errmsg_set(&answer->msg, ret, "%s: cannot be handed over: %s", path,
				err_text(ret));
	}
	answer->ret = ret;
	_exit(0);
}

/* The child's packet, or its end, or the end of our patience. */
static int feed_receive(int control, int *fd)
{
	struct pollfd p = {.fd = control, .events = POLLIN};
	uint64_t until = clock_mono_ms() + VAULT_FEED_WAIT_MS;
	enum control_type type;
	struct roles got;
	uint64_t now;
	int ret;

	do {
		now = clock_mono_ms();
		ret = poll(&p, 1, now < until ? (int)(until - now) : 0);
	} while (ret < 0 && errno == EINTR);
	if (ret <= 0)
		return ret < 0 ? -errno : -ETIMEDOUT;
	ret = control_receive(control, &type, &got);
	if (ret < 0)
		return ret;
	*fd = got.fd[ROLE_VAULT];
	got.fd[ROLE_VAULT] = -1;
	roles_fini(&got);
	return 0;
}

static int feed_run(const char *path, struct feed_answer *answer, int *fd, struct errmsg *msg)
{
	pid_t child;
	int pair[2];
	int ret;

	ret = control_pair(pair);
	if (ret < 0)
		return errmsg_set(msg, ret, "%s: %s", path, err_text(ret));
	child = fork();
	if (child == 0) {
		(void)close(pair[0]);
		feed_child(path, pair[1], answer);
	}
	ret = child < 0 ? -errno : 0;
	(void)close(pair[1]);
	if (ret == 0) {
		ret = feed_receive(pair[0], fd);
		if (ret == -ETIMEDOUT)
			(void)kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	(void)close(pair[0]);
	/* Its own message, unless it had none. */
	if (answer->ret < 0 && answer->msg.text[0])
		return errmsg_set(msg, answer->ret, "%s", answer->msg.text);
	if (ret < 0 || answer->ret < 0 || *fd < 0)
		return errmsg_set(msg, ret < 0 ? ret : E_EOF, "%s: cannot be read: %s", path,
			err_text(ret < 0 ? ret : E_EOF));
	return 0;
}

int vault_feed_read(const char *path, int *fd, struct vault_watch **watch, struct errmsg *msg)
{
	struct feed_answer *answer = feed_answer_new();
	int ret;

	*fd = -1;
	*watch = NULL;
	if (!answer)
		return errmsg_set(msg, -ENOMEM, "%s: out of memory", path);
	ret = feed_run(path, answer, fd, msg);
	if (ret < 0 && *fd >= 0) {
		(void)close(*fd);
		*fd = -1;
	}
	if (answer->watch.n > 0)
		*watch = &answer->watch;
	else
		vault_feed_watch_free(&answer->watch);
	return ret;
}
