/* Stamps of files. Before it: vault_file notes them in a child; after it: the supervisor compares
 * them every two seconds, by stat(2) only. */
#include "control/vault_watch.h"

#include <string.h>
#include <sys/stat.h>

#define WATCH_SEED 0x9e3779b97f4a7c15ULL
#define WATCH_MUL 0xff51afd7ed558ccdULL /* odd, so that no step loses information */

static uint64_t watch_ns(struct timespec t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct vault_stamp watch_stamp(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return (struct vault_stamp){0};
	return (struct vault_stamp){.dev = st.st_dev,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.mtime_ns = watch_ns(st.st_mtim),
		.ctime_ns = watch_ns(st.st_ctim)};
}

static uint64_t watch_mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * WATCH_MUL;
	return h ^ (h >> 32);
}

static uint64_t watch_mix_stamp(uint64_t h, const struct vault_stamp *s)
{
	h = watch_mix(h, s->dev);
	h = watch_mix(h, s->ino);
	h = watch_mix(h, s->size);
	h = watch_mix(h, s->mtime_ns);
	return watch_mix(h, s->ctime_ns);
}

bool vault_watch_add(struct vault_watch *w, const char *path)
{
	struct vault_watched *f;
	size_t len = strlen(path);

	if (w->n == VAULT_WATCH_MAX || len >= sizeof(f->path))
		return false;
	f = &w->file[w->n++];
	memcpy(f->path, path, len + 1);
	f->stamp = watch_stamp(path);
	return true;
}

uint64_t vault_watch_noted(const struct vault_watch *w)
{
	uint64_t h = WATCH_SEED;

	for (size_t i = 0; i < w->n; i++)
		h = watch_mix_stamp(h, &w->file[i].stamp);
	return h;
}

uint64_t vault_watch_now(const struct vault_watch *w)
{
	uint64_t h = WATCH_SEED;

	for (size_t i = 0; i < w->n; i++) {
		struct vault_stamp now = watch_stamp(w->file[i].path);

		h = watch_mix_stamp(h, &now);
	}
	return h;
}
