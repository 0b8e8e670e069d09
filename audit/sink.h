/* Drains the ring to the audit file and to stdout, many lines with one write.
 *
 * A cursor moves only over whole lines, so what a crash repeats begins at a line; for the file the
 * caller corrects it by what the file holds. A file that takes no more (full disk) is tried again
 * each second and loses nothing. */
#pragma once

#include "audit/ring.h"

#define SINK_EVERY_MS 100
#define SINK_LINES 64 /* written at once without waiting for the timer */
#define SINK_RETRY_MS 1000
#define SINK_CLOSE_MS 2000 /* waited for stdout at the end */

struct event_base;
struct sink;

/* fd_file: owned from now on, or -1. to_stdout: fd_stdout, borrowed; a pipe or socket is made
 * non-blocking until sink_free. torn: a cell in the plain area that is set while stdout has got
 * half a line. */
struct sink *sink_new(struct ring *ring, int fd_file, int fd_stdout, uint64_t *torn);
/* Closes the file. Writes nothing. */
void sink_free(struct sink *s);

/* Drains from the loop. drained runs after each round, also when nothing could be written. */
void sink_start(struct sink *s, struct event_base *base, void (*drained)(void *arg), void *arg);
/* n lines were committed, or other work waits for a round (n = 0). Cheap. */
void sink_wake(struct sink *s, uint32_t n);

/* Writes what the sinks take now. True if everything is written. */
bool sink_drain(struct sink *s);
/* The same, but waits for stdout for up to SINK_CLOSE_MS. */
bool sink_finish(struct sink *s);

/* Another file in place of the one that is closed now. A half line at its end is cut off and goes
 * to the new one as a whole. */
void sink_set_file(struct sink *s, int fd);
/* cb runs once after a round that made the file longer than max_bytes, until sink_set_file or the
 * next call of this. */
void sink_on_rotate(struct sink *s, uint64_t max_bytes, void (*cb)(void *arg), void *arg);
