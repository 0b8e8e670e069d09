/* HTTP/2 has its place. */
#include <nghttp2/nghttp2.h>
#include <zlib.h> /* BAD */
