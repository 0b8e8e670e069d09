/* Runs a fuzz target over every file of its corpus, in place of libFuzzer. An empty or missing
 * corpus is a failure: a replay of nothing proves nothing. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define INPUT_MAX (1u << 20)

int main(int argc, char **argv)
{
	struct dirent **names;
	size_t ran = 0;
	int n;

	if (argc != 2) {
		fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
		return 2;
	}
	n = scandir(argv[1], &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char path[4096];
		struct strbuf text;

		if (names[i]->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", argv[1], names[i]->d_name);
			strbuf_init(&text, INPUT_MAX);
			if (strbuf_read_file(&text, path) < 0) {
				fprintf(stderr, "%s: cannot be read\n", path);
				return 1;
			}
			LLVMFuzzerTestOneInput((const uint8_t *)strbuf_slice(&text).p, text.len);
			strbuf_fini(&text);
			ran++;
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	printf("%zu inputs\n", ran);
	return ran > 0 ? 0 : 1;
}
