/* Words of a line, for resolv.conf and hosts files. */
#pragma once

#include "base/slice.h"

/* Cuts the next word off *line, which moves past it; empty at the end of the line. */
static inline struct slice word_cut(struct slice *line)
{
	struct slice word;
	size_t n = 0;

	*line = slice_strip(*line);
	while (n < line->len && line->p[n] != ' ' && line->p[n] != '\t')
		n++;
	word = slice_first(*line, n);
	*line = slice_from(*line, n);
	return word;
}
