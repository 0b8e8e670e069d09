/* The count of those without the token. Before it: api.c, which has refused one; after it: the
 * worker, which puts it on record. */
#include "control/api_strangers.h"

#include <event2/event.h>

#include "audit/event.h"

static void strangers_tell(struct api_strangers *s)
{
	const struct timeval quiet = {API_STRANGERS_MS / 1000, API_STRANGERS_MS % 1000 * 1000};
	uint32_t n = s->untold;

	if (n == 0)
		return;
	s->untold = 0;
	(void)event_add(&s->quiet, &quiet);
	if (s->told)
		s->told(s->arg, n, s->uid);
}

static void on_strangers_quiet(evutil_socket_t fd, short what, void *arg)
{
	strangers_tell(arg);
}

void api_strangers_init(struct api_strangers *s, struct event_base *base)
{
	*s = (struct api_strangers){.uid = AUDIT_UID_NONE};
	event_assign(&s->quiet, base, -1, 0, on_strangers_quiet, s);
}

void api_strangers_fini(struct api_strangers *s)
{
	strangers_tell(s);
	event_del(&s->quiet);
}

void api_strangers_count(struct api_strangers *s, uint32_t uid)
{
	if (s->untold == 0)
		s->uid = uid;
	else if (s->uid != uid)
		s->uid = AUDIT_UID_NONE;
	s->total++;
	if (s->untold < UINT32_MAX)
		s->untold++;
	if (!event_pending(&s->quiet, EV_TIMEOUT, NULL))
		strangers_tell(s);
}
