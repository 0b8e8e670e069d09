/* Puts the wanted policy and vault in force, and looks whether they still are. Before it: watch_box
 * picks the moment; after it: the sidecar. The policy goes first; a vault that is in its way, or
 * was another, is dropped before. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "ctl/watch.h"

#define BOX_REFUSED_MS 30000 /* until what a sidecar refused is sent again */

void box_policy(struct box *b, const struct fetch_answer *a)
{
	if (!b->wanted)
		return;
	b->check_due_ms = clock_mono_ms() + 2 * b->w->o->interval_ms;
	if (a->status == 200 && wanted_is_policy(b->wanted, a->content)) {
		b->policy_known = true;
		if (b->vault == VAULT_LEFT && b->wanted->vault)
			b->vault = VAULT_LOOK;
		if (b->vault == VAULT_LEFT)
			box_calm(b, WATCH_ALARM_POLICY);
		return;
	}
	/* At first it is what the sandbox was made with. */
	if (b->policy_known)
		box_alarm(b, WATCH_ALARM_POLICY, "somebody else changed it: sent again");
	b->put_policy = true;
}

/* What was sent with keys is refused by a code alone: a text may quote them. */
const char *box_why(const struct box *b, const struct fetch_answer *a, struct errmsg *msg)
{
	const char *code;
	json_t *doc;

	if (b->ask != ASK_VAULT || a->err)
		return lifecycle_why(a, msg);
	doc = json_loadb(a->content.p, a->content.len, 0, NULL);
	code = json_string_value(json_object_get(doc, "code"));
	(void)errmsg_set(msg, 0, "%d %.60s", a->status,
		code && !code[strspn(code, "abcdefghijklmnopqrstuvwxyz_")] ? code : "");
	json_decref(doc);
	return msg->text;
}

/* A change that was refused. */
static void box_refused(struct box *b, const struct fetch_answer *a, const char *what)
{
	struct errmsg why = {""}, msg;

	(void)errmsg_set(&msg, 0, "%s was refused: %s", what, box_why(b, a, &why));
	box_alarm(b, WATCH_ALARM_POLICY, msg.text);
	*(b->ask == ASK_PUT_POLICY ? &b->check_due_ms : &b->vault_due_ms) =
		clock_mono_ms() + BOX_REFUSED_MS;
}

/* A vault that needs what the new policy takes away, or comes too early, goes first: the policy is
 * what must not wait. */
void box_put(struct box *b, const struct fetch_answer *a)
{
	b->put_policy = false;
	if (a->status == 200 || a->status == 204) {
		b->policy_known = true;
		if (!(b->alarms & BIT(WATCH_ALARM_POLICY)))
			b->check_due_ms = 0;
		log_info("watch", "%s: policy sent", b->id);
	} else if (b->wanted && b->wanted->vault &&
		slice_find(a->content, SLICE("\"vault_conflict\"")) < a->content.len) {
		b->vault = VAULT_DROP; /* and the policy after it */
		b->put_policy = true;
	} else {
		box_refused(b, a, "the policy");
	}
}

/* Which vault is in force where, so that a restart of ours does not take it away for a moment; and
 * the hash of what the sidecar says about it, which has its revision. A file of a version that
 * wrote none does not count: somebody may have changed that vault, so it is sent anew. */
static bool box_has_vault(struct box *b)
{
	char text[WANTED_STAMP_MAX];
	size_t len = strlen(b->stamp);

	box_state_read(b, "", text, sizeof(text));
	if (!slice_starts(slice_str(text), slice_str(b->stamp)) ||
		strlen(text) != len + 1 + RING_HEX_LEN)
		return false;
	memcpy(b->stamp, text, sizeof(text));
	return true;
}

/* Is it there, and as our POST left it? */
void box_vault_seen(struct box *b, const struct fetch_answer *a)
{
	char hash[RING_HEX_LEN];

	/* One that has just begun anew has none. */
	if (b->vault != VAULT_LOOK)
		return;
	ring_sha_hex(a->content, hash);
	b->no_vault = a->status == 404;
	if (b->no_vault) {
		b->vault = VAULT_PUT;
		box_alarm(b, WATCH_ALARM_POLICY, "somebody dropped the vault: sent again");
	} else if (!slice_ends(slice_str(b->stamp), slice_make(hash, sizeof(hash)))) {
		b->vault = VAULT_DROP;
		box_alarm(b, WATCH_ALARM_POLICY, "somebody else changed the vault: sent again");
	} else {
		b->vault = VAULT_LEFT;
		box_calm(b, WATCH_ALARM_POLICY);
	}
}

void box_vault_dropped(struct box *b, const struct fetch_answer *a)
{
	b->no_vault = a->status == 204 || a->status == 200 || a->status == 404;
	if (!b->no_vault)
		box_refused(b, a, "to drop the vault");
	else if (b->vault == VAULT_DROP)
		b->vault = VAULT_PUT;
}

void box_vault_sent(struct box *b, const struct fetch_answer *a)
{
	size_t len = strlen(b->stamp);
	char hash[RING_HEX_LEN];

	if (a->status == 201 || a->status == 200) {
		ring_sha_hex(a->content, hash);
		(void)snprintf(b->stamp + len, sizeof(b->stamp) - len, " %.64s", hash);
		b->vault = VAULT_LEFT;
		b->no_vault = false;
		box_state_keep(b, "", b->stamp);
		log_info("watch", "%s: vault sent", b->id);
	} else if (a->status == 409) {
		b->vault = VAULT_DROP;
	} else {
		box_refused(b, a, "the vault");
	}
}

struct fetch *box_send_vault(struct box *b)
{
	struct sidecar_question q = {.method = "POST", .path = "/credential-vault"};
	struct fetch *f = NULL;
	struct errmsg msg = {""};
	struct strbuf text;

	strbuf_init(&text, WANTED_FILE_MAX);
	text.wipe = true;
	if (wanted_vault(b->wanted, b->instance, &text, b->stamp, &msg) < 0) {
		box_alarm(b, WATCH_ALARM_POLICY, msg.text);
		b->vault_due_ms = clock_mono_ms() + BOX_REFUSED_MS;
	} else if (!b->no_vault && box_has_vault(b)) {
		b->vault = VAULT_LOOK; /* whatever happened meanwhile */
	} else {
		q.content = strbuf_slice(&text);
		f = sidecar_ask(&b->w->platform, b->sidecar, &q, on_box_answer, b);
	}
	strbuf_fini(&text);
	return f;
}
