/* /credential-vault (reference credential-vault 1): GET shows what is there, without any value;
 * POST, PATCH and DELETE change it, each in turn with every change of the policy. The worker gives
 * what is in force, and takes what shall be. */
#pragma once

#include "control/api.h"
#include "control/policy_change.h"

#define API_VAULT_PATH "/credential-vault"
#define API_VAULT_METHODS "GET, POST, PATCH, DELETE"

/* How long a write waits for egress to be ready (reference 1.5). */
#define API_VAULT_READY_MS 30000

enum api_vault_method { API_VAULT_POST, API_VAULT_PATCH, API_VAULT_DELETE };

struct api_vault_write {
	enum api_vault_method method;
	struct slice doc; /* in locked memory */
	uint32_t uid;     /* of who asks: AUDIT_UID_NONE */
};

struct api_vault_ops {
	/* As vault_state_json. */
	char *(*state)(void *arg);
	/* Does what is written now reach requests that it protects? */
	bool (*ready)(void *arg);
	/* At its turn: decides by what is in force now; in force and kept when it returns 0. Codes
	 * of worker_vault_write; the message never quotes a value. */
	int (*write)(void *arg, const struct api_vault_write *w, struct errmsg *msg);
};

struct api_vault;

/* All borrowed for its life. */
struct api_vault *api_vault_new(struct event_base *base, struct policy_change *changes,
	const struct api_vault_ops *ops, void *arg);
/* Writes that wait for egress to be ready are answered; those in changes must have been. Accepts
 * NULL. */
void api_vault_free(struct api_vault *v);

/* Each answers: the vault; all credentials, or all bindings; one of them, by the name that stands
 * below. */
void api_vault_run(struct api_vault *v, struct api_call *call);
void api_vault_list(struct api_vault *v, struct api_call *call, const char *kind);
void api_vault_item(struct api_vault *v, struct api_call *call, const char *kind);
