/* Events but no buffers; zlib here. */
#include <event2/buffer.h> /* BAD */
#include <event2/event.h>
#include <nghttp2/nghttp2.h> /* BAD */
#include <zlib.h>

#include "audit/audit.h"
#include "control/settings.h" /* BAD */
#include "policy/rule_int.h"  /* BAD */
