/* HTTP/1.1 heads. Each row is read whole, cut at every byte, and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "proxy/h1.h"

/* Rows name only what is not zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define CHECK(row, x) check((x), (row)->fact, #x)

static void check(bool ok, const char *fact, const char *what)
{
	if (!ok)
		fail_msg("%s: %s", fact, what);
}

struct head_row {
	const char *fact;
	struct slice in;
	enum h1_error error;
	enum h1_framing framing;
	uint64_t length;
	bool close;
	const char *method; /* of the request; responses only */
};

#define GET "GET / HTTP/1.1\r\n"
#define GET_HOST "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST_HOST "POST / HTTP/1.1\r\nHost: a\r\n"
#define GET_1_0 "GET / HTTP/1.0\r\n"
#define END "\r\n"
#define OK_RESPONSE "HTTP/1.1 200 OK\r\n"
#define BODY "5\r\nAAAAA\r\n0\r\n\r\n"
#define R(text)                          \
	{                                \
		(text), sizeof(text) - 1 \
	}

static const struct head_row requests[] = {
	{"plain", R(GET_HOST END)},
	{"no fields in 1.0", R(GET_1_0 END), .close = true},
	{"every tchar in method", R("!#$%&'*+-.^_`|~09azAZ / HTTP/1.1\r\nHost:\r\n\r\n")},
	{"empty Host is for others to judge", R(GET "Host:\r\n\r\n")},
	{"one empty line in front", R("\r\n" GET_HOST END)},
	{"four empty lines in front", R("\r\n\r\n\r\n\r\n" GET_HOST END)},
	{"five empty lines in front", R("\r\n\r\n\r\n\r\n\r\n" GET_HOST END), H1_REQUEST_LINE},
	{"what follows is not looked at", R(GET_HOST END "\0\n\r\x01")},
	{"raw UTF-8 in the target", R("GET /\xc3\xbc HTTP/1.1\r\nHost: a\r\n\r\n")},
	{"obs-text and tab in a value", R(GET_HOST "a: \xff\t\x80\r\n\r\n")},
	{"empty values", R(GET_HOST "a:\r\nb: \t \r\n\r\n")},
	{"asterisk", R("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")},
	{"authority", R("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n")},
	/* request line */
	{"leading blank", R(" GET / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_METHOD},
	{"no method", R("/ HTTP/1.1\r\nHost: a\r\n\r\n"), H1_METHOD},
	{"method that is no token", R("G@T / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_METHOD},
	{"method with colon", R("GET: / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_METHOD},
	{"method with obs-text", R("G\xc9T / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_METHOD},
	{"tab after method", R("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"), H1_METHOD},
	{"method alone", R("GET\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"two blanks", R("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"two blanks later", R("GET /  HTTP/1.1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"tab before version", R("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n"), H1_TARGET},
	{"tab in target", R("GET /\t/ HTTP/1.1\r\nHost: a\r\n\r\n"), H1_TARGET},
	{"blank in target", R("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"blank at the end", R("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"tab at the end", R("GET / HTTP/1.1\t\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"empty target", R("GET  HTTP/1.1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"no target", R("GET HTTP/1.1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"HTTP/0.9 has no version", R("GET /\r\n\r\n"), H1_REQUEST_LINE},
	{"empty version", R("GET / \r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"lower case version", R("GET / http/1.1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"short version", R("GET / HTTP/1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"version with two digits", R("GET / HTTP/1.11\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"version with comma", R("GET / HTTP/1,1\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"version with letter", R("GET / HTTP/1.x\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"other protocol", R("GET / ICAP/1.0\r\nHost: a\r\n\r\n"), H1_REQUEST_LINE},
	{"preface of HTTP/2", R("PRI * HTTP/2.0\r\n\r\n"), H1_VERSION},
	{"1.2", R("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), H1_VERSION},
	{"0.9", R("GET / HTTP/0.9\r\n\r\n"), H1_VERSION},
	{"3.0", R("GET / HTTP/3.0\r\nHost: a\r\n\r\n"), H1_VERSION},
	/* bytes that end a line too early or not at all */
	{"bare LF", R("GET / HTTP/1.1\nHost: a\r\n\r\n"), H1_BARE_LF},
	{"bare LF after a field", R(GET "Host: a\n\r\n"), H1_BARE_LF},
	{"bare LF in front", R("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_BARE_LF},
	{"bare LF as the empty line", R(GET_HOST "\n"), H1_BARE_LF},
	{"bare LF in a name", R(GET_HOST "a\nb: c\r\n\r\n"), H1_BARE_LF},
	{"bare CR", R("GET / HTTP/1.1\rHost: a\r\n\r\n"), H1_BARE_CR},
	{"CR CR LF", R(GET "Host: a\r\r\n\r\n"), H1_BARE_CR},
	{"bare CR in a value", R(GET "Host: a\rb\r\n\r\n"), H1_BARE_CR},
	{"bare CR in front", R("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), H1_BARE_CR},
	{"NUL in a value", R(GET "Host: a\0b\r\n\r\n"), H1_CONTROL_BYTE},
	{"NUL in a name", R(GET_HOST "a\0: b\r\n\r\n"), H1_CONTROL_BYTE},
	{"NUL in the target", R("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"), H1_CONTROL_BYTE},
	{"DEL in a value", R(GET "Host: a\x7f\r\n\r\n"), H1_CONTROL_BYTE},
	{"vertical tab", R(GET "Host: a\v\r\n\r\n"), H1_CONTROL_BYTE},
	{"escape", R(GET "Host: \x1b[0m\r\n\r\n"), H1_CONTROL_BYTE},
	{"TLS", R("\x16\x03\x01\x02\x00\x01"), H1_CONTROL_BYTE},
	/* fields */
	{"no colon", R(GET_HOST "abc\r\n\r\n"), H1_FIELD_NO_COLON},
	{"no name", R(GET_HOST ": b\r\n\r\n"), H1_FIELD_NAME},
	{"blank before colon", R(GET_HOST "a : b\r\n\r\n"), H1_FIELD_NAME},
	{"tab before colon", R(GET_HOST "a\t: b\r\n\r\n"), H1_FIELD_NAME},
	{"blank within a name", R(GET_HOST "a b: c\r\n\r\n"), H1_FIELD_NAME},
	{"bracket in a name", R(GET_HOST "a[0]: c\r\n\r\n"), H1_FIELD_NAME},
	{"obs-text in a name", R(GET_HOST "\xc3\xbc: c\r\n\r\n"), H1_FIELD_NAME},
	{"no Host", R(GET END), H1_HOST_MISSING},
	{"no Host but one like it", R(GET "Host_: a\r\n\r\n"), H1_HOST_MISSING},
	{"two Hosts", R(GET_HOST "hOST: b\r\n\r\n"), H1_HOST_TWICE},
	{"two equal Hosts", R(GET_HOST "Host: a\r\n\r\n"), H1_HOST_TWICE},
	{"two Hosts in 1.0", R(GET_1_0 "Host: a\r\nHost: a\r\n\r\n"), H1_HOST_TWICE},
	/* persistence */
	{"close", R(GET_HOST "Connection: close\r\n\r\n"), .close = true},
	{"Close in a list", R(GET_HOST "Connection: x, CLOSE ,y\r\n\r\n"), .close = true},
	{"close in a second field", R(GET_HOST "Connection: x\r\nConnection: close\r\n\r\n"),
		.close = true},
	{"close in Proxy-Connection", R(GET_HOST "Proxy-Connection: close\r\n\r\n"), .close = true},
	{"close wins", R(GET_HOST "Connection: close\r\nProxy-Connection: keep-alive\r\n\r\n"),
		.close = true},
	{"close wins the other way round", R(GET_HOST "Connection: keep-alive, close\r\n\r\n"),
		.close = true},
	{"closed is not close", R(GET_HOST "Connection: closed\r\n\r\n")},
	{"1.0 with keep-alive", R(GET_1_0 "Connection: Keep-Alive\r\n\r\n")},
	{"1.0 with keep-alive of a proxy", R(GET_1_0 "Proxy-Connection: keep-alive\r\n\r\n")},
	{"1.0 with both", R(GET_1_0 "Connection: keep-alive\r\nProxy-Connection: close\r\n\r\n"),
		.close = true},
	{"1.0 with something else", R(GET_1_0 "Connection: upgrade\r\n\r\n"), .close = true},
	/* Content-Length */
	{"length", R(POST_HOST "Content-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH, 5},
	{"length zero", R(POST_HOST "Content-Length: 0\r\n\r\n"), H1_OK, H1_LENGTH, 0},
	{"length with zeros", R(POST_HOST "Content-Length: 005\r\n\r\n"), H1_OK, H1_LENGTH, 5},
	{"length and blanks", R(POST_HOST "Content-Length: \t5 \t\r\n\r\n"), H1_OK, H1_LENGTH, 5},
	{"length of a GET", R(GET_HOST "content-LENGTH:5\r\n\r\n"), H1_OK, H1_LENGTH, 5},
	{"length in 1.0", R("POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH, 5,
		.close = true},
	{"largest length", R(POST_HOST "Content-Length: 9223372036854775807\r\n\r\n"), H1_OK,
		H1_LENGTH, INT64_MAX},
	{"one more", R(POST_HOST "Content-Length: 9223372036854775808\r\n\r\n"), H1_LENGTH_INVALID},
	{"2^64", R(POST_HOST "Content-Length: 18446744073709551616\r\n\r\n"), H1_LENGTH_INVALID},
	{"2^64 + 5", R(POST_HOST "Content-Length: 18446744073709551621\r\n\r\n"),
		H1_LENGTH_INVALID},
	{"empty length", R(POST_HOST "Content-Length:\r\n\r\n"), H1_LENGTH_INVALID},
	{"signed length", R(POST_HOST "Content-Length: +5\r\n\r\n"), H1_LENGTH_INVALID},
	{"negative length", R(POST_HOST "Content-Length: -5\r\n\r\n"), H1_LENGTH_INVALID},
	{"hexadecimal length", R(POST_HOST "Content-Length: 0x5\r\n\r\n"), H1_LENGTH_INVALID},
	{"length in words", R(POST_HOST "Content-Length: five\r\n\r\n"), H1_LENGTH_INVALID},
	{"length with fraction", R(POST_HOST "Content-Length: 5.0\r\n\r\n"), H1_LENGTH_INVALID},
	{"length with blank", R(POST_HOST "Content-Length: 1 0\r\n\r\n"), H1_LENGTH_INVALID},
	{"list of lengths", R(POST_HOST "Content-Length: 5, 5\r\n\r\n"), H1_LENGTH_INVALID},
	{"length with comma", R(POST_HOST "Content-Length: 5,\r\n\r\n"), H1_LENGTH_INVALID},
	{"two lengths", R(POST_HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
		H1_LENGTH_TWICE},
	{"two equal lengths", R(POST_HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
		H1_LENGTH_TWICE},
	/* C42 */
	{"C42 POST",
		R("POST /v1/x HTTP/1.1\r\nHost: api.model.test\r\nContent-Length: 4\r\n"
		  "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /w HTTP/1.1\r\nHost: "
		  "api.model.test\r\nContent-Length: 2\r\n\r\nhi"),
		H1_LENGTH_AND_CODING},
	{"C42 GET",
		R("GET /v1/x HTTP/1.1\r\nHost: read.test\r\nTransfer-Encoding: chunked\r\n"
		  "Content-Length: 4\r\n\r\n0\r\n\r\n"),
		H1_LENGTH_AND_CODING},
	{"C42 absolute-form",
		R("POST http://api.model.test/v1/x HTTP/1.1\r\nHost: api.model.test\r\n"
		  "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_LENGTH_AND_CODING},
	{"C42 odd coding", R(POST_HOST "Content-Length: 4\r\nTransfer-Encoding: x\r\n\r\n"),
		H1_LENGTH_AND_CODING},
	{"C42 in 1.0", R(GET_1_0 "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_LENGTH_AND_CODING},
	/* C44 */
	{"C44 chunked", R(POST_HOST "Transfer-Encoding: chunked\r\n\r\n" BODY), H1_OK, H1_CHUNKED},
	{"C44 Chunked", R(POST_HOST "Transfer-Encoding: Chunked\r\n\r\n" BODY), H1_OK, H1_CHUNKED},
	{"C44 CHUNKED", R(POST_HOST "Transfer-Encoding: CHUNKED\r\n\r\n" BODY), H1_OK, H1_CHUNKED},
	{"C44 blanks", R(POST_HOST "transfer-encoding:  chunked \t\r\n\r\n" BODY), H1_OK,
		H1_CHUNKED},
	{"C44 comma", R(POST_HOST "Transfer-Encoding: chunked,\r\n\r\n" BODY), H1_CODING},
	{"C44 leading comma", R(POST_HOST "Transfer-Encoding: ,chunked\r\n\r\n" BODY), H1_CODING},
	{"C44 identity", R(POST_HOST "Transfer-Encoding: chunked, identity\r\n\r\n" BODY),
		H1_CODING},
	{"C44 identity first", R(POST_HOST "Transfer-Encoding: identity, chunked\r\n\r\n" BODY),
		H1_CODING},
	{"C44 identity alone", R(POST_HOST "Transfer-Encoding: identity\r\n\r\n"), H1_CODING},
	{"C44 empty", R(POST_HOST "Transfer-Encoding:\r\n\r\n"), H1_CODING},
	{"C44 gzip", R(POST_HOST "Transfer-Encoding: gzip, chunked\r\n\r\n" BODY), H1_CODING},
	{"C44 xchunked", R(POST_HOST "Transfer-Encoding: xchunked\r\n\r\n" BODY), H1_CODING},
	{"C44 chunkedx", R(POST_HOST "Transfer-Encoding: chunkedx\r\n\r\n" BODY), H1_CODING},
	{"C44 quoted", R(POST_HOST "Transfer-Encoding: \"chunked\"\r\n\r\n" BODY), H1_CODING},
	{"C44 parameter", R(POST_HOST "Transfer-Encoding: chunked;q=1\r\n\r\n" BODY), H1_CODING},
	{"C44 vertical tab",
		R(POST_HOST "Transfer-Encoding: \x0b"
			    "chunked\r\n\r\n" BODY),
		H1_CONTROL_BYTE},
	{"C44 obs-text",
		R(POST_HOST "Transfer-Encoding: \xa0"
			    "chunked\r\n\r\n" BODY),
		H1_CODING},
	{"C44 two fields",
		R(POST_HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"),
		H1_CODING},
	{"C44 twice chunked",
		R(POST_HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_CODING},
	{"C44 blank before colon", R(POST_HOST "Transfer-Encoding : chunked\r\n\r\n" BODY),
		H1_FIELD_NAME},
	{"C44 1.0", R("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" BODY),
		H1_CODING_1_0},
	/* C46 */
	{"C46 fold",
		R("GET / HTTP/1.1\r\nHost: read.test\r\nX-A: 1\r\n Authorization: Bearer "
		  "ph-model-0001\r\n\r\n"),
		H1_FIELD_FOLDED},
	{"C46 folded coding", R(POST_HOST "Transfer-Encoding:\r\n chunked\r\n\r\n" BODY),
		H1_FIELD_FOLDED},
	{"C46 folded Host", R(GET "Host:\r\n deny.test\r\n\r\n"), H1_FIELD_FOLDED},
	{"C46 fold with tab", R(GET_HOST "X-A: 1\r\n\tb\r\n\r\n"), H1_FIELD_FOLDED},
	{"C46 fold after the last field", R(GET_HOST "X-A: 1\r\n \r\n\r\n"), H1_FIELD_FOLDED},
	{"C46 blank line after the request line", R(GET " Host: a\r\nHost: b\r\n\r\n"),
		H1_FIELD_FOLDED},
	/* upgrade and CONNECT */
	{"upgrade", R(GET_HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")},
	{"upgrade without content", R(GET_HOST "Upgrade: h2c\r\nContent-Length: 0\r\n\r\n"), H1_OK,
		H1_LENGTH},
	{"upgrade with content", R(POST_HOST "Upgrade: websocket\r\nContent-Length: 1\r\n\r\n"),
		H1_UPGRADE_WITH_CONTENT},
	{"upgrade with chunks", R(POST_HOST "Upgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_UPGRADE_WITH_CONTENT},
	{"h2c with content", R(POST_HOST "Upgrade: h2c\r\nContent-Length: 1\r\n\r\n"),
		H1_UPGRADE_WITH_CONTENT},
	{"CONNECT without content",
		R("CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"), H1_OK,
		H1_LENGTH},
	{"CONNECT with content",
		R("CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"),
		H1_UPGRADE_WITH_CONTENT},
	{"CONNECT with chunks",
		R("CONNECT a:443 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_UPGRADE_WITH_CONTENT},
};

static const struct head_row responses[] = {
	{"length", R(OK_RESPONSE "Content-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH, 5},
	{"chunked", R(OK_RESPONSE "Transfer-Encoding: Chunked\r\n\r\n"), H1_OK, H1_CHUNKED},
	{"until close", R(OK_RESPONSE END), H1_OK, H1_UNTIL_CLOSE, .close = true},
	{"1.0", R("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH, 5,
		.close = true},
	{"1.0 with keep-alive",
		R("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n"), H1_OK,
		H1_LENGTH, 5},
	{"until close although keep-alive", R(OK_RESPONSE "Connection: keep-alive\r\n\r\n"), H1_OK,
		H1_UNTIL_CLOSE, .close = true},
	/* status line */
	{"no reason", R("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"), H1_OK, H1_LENGTH},
	{"C60 empty reason", R("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"), H1_OK, H1_LENGTH},
	{"reason with obs-text and tab", R("HTTP/1.1 200 \t\xe4 x\r\nContent-Length: 0\r\n\r\n"),
		H1_OK, H1_LENGTH},
	{"lowest status", R("HTTP/1.1 100 C\r\n\r\n")},
	{"highest status", R("HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n"), H1_OK, H1_LENGTH},
	{"status too low", R("HTTP/1.1 099 x\r\n\r\n"), H1_STATUS_LINE},
	{"status with two digits", R("HTTP/1.1 20 OK\r\n\r\n"), H1_STATUS_LINE},
	{"status with four digits", R("HTTP/1.1 2000 OK\r\n\r\n"), H1_STATUS_LINE},
	{"status with letter", R("HTTP/1.1 2x0 OK\r\n\r\n"), H1_STATUS_LINE},
	{"signed status", R("HTTP/1.1 +20 OK\r\n\r\n"), H1_STATUS_LINE},
	{"no status", R("HTTP/1.1\r\n\r\n"), H1_STATUS_LINE},
	{"two blanks", R("HTTP/1.1  200 OK\r\n\r\n"), H1_STATUS_LINE},
	{"tab", R("HTTP/1.1\t200 OK\r\n\r\n"), H1_STATUS_LINE},
	{"tab after status", R("HTTP/1.1 200\tOK\r\n\r\n"), H1_STATUS_LINE},
	{"leading blank", R(" HTTP/1.1 200 OK\r\n\r\n"), H1_STATUS_LINE},
	{"leading empty line", R("\r\nHTTP/1.1 200 OK\r\n\r\n"), H1_STATUS_LINE},
	{"lower case version", R("http/1.1 200 OK\r\n\r\n"), H1_STATUS_LINE},
	{"other protocol", R("ICY 200 OK\r\n\r\n"), H1_STATUS_LINE},
	{"2.0", R("HTTP/2.0 200 OK\r\n\r\n"), H1_VERSION},
	{"1.2", R("HTTP/1.2 200 OK\r\n\r\n"), H1_VERSION},
	{"bare LF", R("HTTP/1.1 200 OK\n\r\n"), H1_BARE_LF},
	{"bare CR", R("HTTP/1.1 200 O\rK\r\n\r\n"), H1_BARE_CR},
	{"NUL", R("HTTP/1.1 200 O\0K\r\n\r\n"), H1_CONTROL_BYTE},
	/* responses without content */
	{"100", R("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n")},
	{"103", R("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")},
	{"101", R("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")},
	{"204", R("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n")},
	{"C60 304 with length", R("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n")},
	{"HEAD", R(OK_RESPONSE "Content-Length: 5\r\n\r\n"), .method = "HEAD"},
	{"HEAD without length", R(OK_RESPONSE END), .method = "HEAD"},
	{"head is not HEAD", R(OK_RESPONSE END), H1_OK, H1_UNTIL_CLOSE, .close = true,
		.method = "head"},
	{"CONNECT", R(OK_RESPONSE "Content-Length: 5\r\n\r\n"), .method = "CONNECT"},
	{"CONNECT with 299", R("HTTP/1.1 299 OK\r\nContent-Length: 5\r\n\r\n"),
		.method = "CONNECT"},
	{"CONNECT refused", R("HTTP/1.1 300 x\r\nContent-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH, 5,
		.method = "CONNECT"},
	/* lengths */
	{"two equal lengths", R(OK_RESPONSE "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
		H1_OK, H1_LENGTH, 5},
	{"list of equal lengths", R(OK_RESPONSE "Content-Length: 5,\t5 , 5\r\n\r\n"), H1_OK,
		H1_LENGTH, 5},
	{"two lengths", R(OK_RESPONSE "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
		H1_LENGTH_TWICE},
	{"list of lengths", R(OK_RESPONSE "Content-Length: 5, 6\r\n\r\n"), H1_LENGTH_TWICE},
	{"length with comma", R(OK_RESPONSE "Content-Length: 5,\r\n\r\n"), H1_LENGTH_INVALID},
	{"length and an empty one", R(OK_RESPONSE "Content-Length: 5\r\nContent-Length:\r\n\r\n"),
		H1_LENGTH_INVALID},
	{"negative length", R(OK_RESPONSE "Content-Length: -1\r\n\r\n"), H1_LENGTH_INVALID},
	{"length too large", R(OK_RESPONSE "Content-Length: 9223372036854775808\r\n\r\n"),
		H1_LENGTH_INVALID},
	{"two lengths for HEAD", R(OK_RESPONSE "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
		H1_LENGTH_TWICE, .method = "HEAD"},
	{"length and coding",
		R(OK_RESPONSE "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_LENGTH_AND_CODING},
	{"gzip", R(OK_RESPONSE "Transfer-Encoding: gzip, chunked\r\n\r\n"), H1_CODING},
	{"chunked twice",
		R(OK_RESPONSE "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_CODING},
	{"chunked in 1.0", R("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
		H1_CODING_1_0},
	/* fields */
	{"C46 fold", R(OK_RESPONSE "Set-Cookie: a=1;\r\n path=/\r\n\r\n"), H1_FIELD_FOLDED},
	{"C60 blanks around a value", R(OK_RESPONSE "Content-Length: \t 5 \t\r\n\r\n"), H1_OK,
		H1_LENGTH, 5},
	{"C60 Latin-1 in a cookie",
		R(OK_RESPONSE "Set-Cookie: a=\xe4\xff\r\nContent-Length: 5\r\n\r\n"), H1_OK,
		H1_LENGTH, 5},
	{"C60 raw UTF-8 in Location",
		R(OK_RESPONSE "Location: /\xc3\xbc\r\nContent-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH,
		5},
	{"C60 bracket in a name", R(OK_RESPONSE "X-A[0]: b\r\nContent-Length: 5\r\n\r\n"), H1_OK,
		H1_LENGTH, 5},
	{"C60 length and close", R(OK_RESPONSE "Content-Length: 5\r\nConnection: close\r\n\r\n"),
		H1_OK, H1_LENGTH, 5, .close = true},
	{"C60 Content-Type twice", R(OK_RESPONSE "Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n"),
		H1_OK, H1_UNTIL_CLOSE, .close = true},
	{"blank before colon", R(OK_RESPONSE "X-A : b\r\nContent-Length: 5\r\n\r\n"), H1_OK,
		H1_LENGTH, 5},
	{"no name", R(OK_RESPONSE ": b\r\nContent-Length: 5\r\n\r\n"), H1_OK, H1_LENGTH, 5},
	{"blank before the colon of a length", R(OK_RESPONSE "Content-Length : 5\r\n\r\n"),
		H1_FIELD_NAME},
	{"tab before the colon of a coding", R(OK_RESPONSE "transfer-encoding\t: chunked\r\n\r\n"),
		H1_FIELD_NAME},
	{"no colon", R(OK_RESPONSE "abc\r\n\r\n"), H1_FIELD_NO_COLON},
	{"no colon and no token", R(OK_RESPONSE "a b\r\n\r\n"), H1_FIELD_NO_COLON},
	{"bare CR in a dropped line", R(OK_RESPONSE "a[: \r x\r\n\r\n"), H1_BARE_CR},
};

/* What came of a head, however it was read. */
struct outcome {
	enum h1_error error;
	size_t len;
	struct h1_head head;
};

/* Gives h1_head_end() `cut` bytes first, then `step` more at a time. */
static void head_read(
	const struct head_row *row, bool response, size_t cut, size_t step, struct outcome *o)
{
	size_t scanned = 0, have = cut;
	ssize_t n = E_MORE;

	o->len = 0;
	for (;;) {
		n = h1_head_end(slice_first(row->in, have), &scanned, &o->error);
		CHECK(row, scanned <= have);
		if (n != E_MORE || have >= row->in.len)
			break;
		have += step;
	}
	CHECK(row, n != E_MORE);
	CHECK(row, (n < 0) == (o->error != H1_OK));
	if (n < 0)
		return;
	o->len = (size_t)n;
	if (response)
		o->error = h1_response_decode(slice_first(row->in, o->len),
			slice_str(row->method ? row->method : "GET"), &o->head);
	else
		o->error = h1_request_decode(slice_first(row->in, o->len), &o->head);
}

static void head_check(const struct head_row *row, bool response)
{
	static struct outcome whole, part;

	head_read(row, response, row->in.len, 1, &whole);
	if (whole.error != row->error)
		fail_msg("%s: %s", row->fact, h1_error_text(whole.error));
	if (whole.error == H1_OK) {
		CHECK(row, whole.head.framing == row->framing);
		CHECK(row, whole.head.length == row->length);
		CHECK(row, whole.head.keep_alive == !row->close);
	}
	for (size_t cut = 0; cut <= row->in.len; cut++) {
		/* The first cut gives byte by byte, the others two parts. */
		head_read(row, response, cut, cut == 0 ? 1 : row->in.len, &part);
		CHECK(row, part.error == whole.error && part.len == whole.len);
	}
}

static void test_requests(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(requests); i++)
		head_check(&requests[i], false);
}

static void test_responses(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(responses); i++)
		head_check(&responses[i], true);
}

static void test_request_is_slices_of_the_head(void **state)
{
	struct slice head = SLICE("\r\nPATCH /a?b HTTP/1.0\r\nHOST:  x.test:80\t\r\nX-Y:\r\n\r\n");
	static struct h1_head h;

	h.fields.v[2].name = SLICE("untouched");
	assert_int_equal(h1_request_decode(head, &h), H1_OK);
	assert_int_equal(h.minor, 0);
	assert_true(slice_eq(h.method, SLICE("PATCH")));
	assert_true(slice_eq(h.target, SLICE("/a?b")));
	assert_ptr_equal(h.method.p, head.p + 2);
	assert_int_equal(h.fields.n, 2);
	assert_int_equal(h.fields.v[0].id, FIELD_HOST);
	assert_true(slice_eq(h.fields.v[0].name, SLICE("HOST")));
	assert_true(slice_eq(h.fields.v[0].value, SLICE("x.test:80")));
	assert_int_equal(h.fields.v[1].id, FIELD_OTHER);
	assert_true(slice_eq(h.fields.v[1].name, SLICE("X-Y")));
	assert_int_equal(h.fields.v[1].value.len, 0);
	assert_int_equal(h.fields.seen, UINT64_C(1) << FIELD_HOST);
	assert_true(slice_eq(h.fields.v[2].name, SLICE("untouched")));
}

static void test_response_is_slices_and_odd_names_are_left_out(void **state)
{
	struct slice head = SLICE("HTTP/1.1 404 Not  Here \r\na[0]: b\r\nServer: x\r\n: c\r\n\r\n");
	static struct h1_head h;

	assert_int_equal(h1_response_decode(head, SLICE("GET"), &h), H1_OK);
	assert_int_equal(h.minor, 1);
	assert_int_equal(h.status, 404);
	assert_true(slice_eq(h.reason, SLICE("Not  Here ")));
	assert_int_equal(h.fields.n, 1);
	assert_true(slice_eq(h.fields.v[0].name, SLICE("Server")));
}

/* Whatever h1_head_end measured wrongly would be a defect, not a crash. */
static void test_parts_of_a_head_are_refused_by_the_decoders(void **state)
{
	struct slice request = SLICE("\r\nGET / HTTP/1.1\r\nHost: a\r\nb[: c\r\n\r\n");
	struct slice response = SLICE("HTTP/1.1 200 OK\r\nHost: a\r\nb[: c\r\n\r\n");
	static struct h1_head h;

	for (size_t n = 0; n < request.len; n++)
		assert_int_not_equal(h1_request_decode(slice_first(request, n), &h), H1_OK);
	for (size_t n = 0; n < response.len; n++)
		assert_int_not_equal(
			h1_response_decode(slice_first(response, n), SLICE("GET"), &h), H1_OK);
	assert_int_not_equal(h1_request_decode(SLICE(GET_HOST END "x"), &h), H1_OK);
	assert_int_not_equal(h1_request_decode(SLICE(GET_HOST "a: \n" END), &h), H1_OK);
	assert_int_not_equal(h1_request_decode(SLICE(GET_HOST "a\n" END), &h), H1_OK);
	assert_int_equal(
		h1_request_decode(SLICE("\r\n\r\n\r\n\r\n\r\n" GET_HOST END), &h), H1_REQUEST_LINE);
}

/* Writes "<before><n times c><after>" into buf. */
static struct slice fill(char *buf, const char *before, char c, size_t n, const char *after)
{
	size_t len = strlen(before);

	memcpy(buf, before, len);
	memset(buf + len, c, n);
	memcpy(buf + len + n, after, strlen(after));
	return slice_make(buf, len + n + strlen(after));
}

static void test_heads_are_taken_up_to_the_limit(void **state)
{
	static char buf[H1_HEAD_MAX + 64];
	static struct h1_head h;
	const char *before = GET_HOST "a: ", *after = "\r\n\r\n";
	size_t fixed = strlen(before) + strlen(after), scanned = 0;
	enum h1_error e;
	struct slice in = fill(buf, before, 'v', H1_HEAD_MAX - fixed, after);

	assert_int_equal(in.len, H1_HEAD_MAX);
	assert_int_equal(h1_head_end(in, &scanned, &e), H1_HEAD_MAX);
	assert_int_equal(h1_request_decode(in, &h), H1_OK);
	for (size_t n = H1_HEAD_MAX - 8; n < H1_HEAD_MAX; n++) {
		scanned = 0;
		assert_int_equal(h1_head_end(slice_first(in, n), &scanned, &e), E_MORE);
	}
	in = fill(buf, before, 'v', H1_HEAD_MAX - fixed + 1, after);
	scanned = 0;
	assert_int_equal(h1_head_end(in, &scanned, &e), E_LIMIT);
	assert_int_equal(e, H1_HEAD_TOO_LARGE);
	scanned = 0;
	for (size_t n = 0; n < H1_HEAD_MAX; n++)
		assert_int_equal(h1_head_end(slice_first(in, n), &scanned, &e), E_MORE);
	assert_int_equal(h1_head_end(slice_first(in, H1_HEAD_MAX), &scanned, &e), E_LIMIT);
}

static void test_targets_methods_and_fields_are_taken_up_to_the_limit(void **state)
{
	static char buf[H1_HEAD_MAX];
	static struct h1_head h;
	struct slice in;

	in = fill(buf, "GET ", '/', H1_TARGET_MAX, " HTTP/1.0\r\n\r\n");
	assert_int_equal(h1_request_decode(in, &h), H1_OK);
	assert_int_equal(h.target.len, H1_TARGET_MAX);
	in = fill(buf, "GET ", '/', H1_TARGET_MAX + 1, " HTTP/1.0\r\n\r\n");
	assert_int_equal(h1_request_decode(in, &h), H1_TARGET_TOO_LONG);
	in = fill(buf, "", 'M', H1_METHOD_MAX, " / HTTP/1.0\r\n\r\n");
	assert_int_equal(h1_request_decode(in, &h), H1_OK);
	in = fill(buf, "", 'M', H1_METHOD_MAX + 1, " / HTTP/1.0\r\n\r\n");
	assert_int_equal(h1_request_decode(in, &h), H1_METHOD);
	for (size_t n = FIELDS_MAX; n <= FIELDS_MAX + 1; n++) {
		size_t len = strlen(GET_1_0);

		memcpy(buf, GET_1_0, len);
		for (size_t i = 0; i < n; i++, len += 5)
			memcpy(buf + len, "a: \r\n", 5);
		memcpy(buf + len, "\r\n", 2);
		assert_int_equal(h1_request_decode(slice_make(buf, len + 2), &h),
			n > FIELDS_MAX ? H1_TOO_MANY_FIELDS : H1_OK);
	}
	assert_int_equal(h.fields.n, FIELDS_MAX);
}

/* Feeding byte by byte must not look at old bytes again, or a slow client costs n * n: they are
 * spoilt here as soon as they are behind *scanned and the line end before it. */
static void test_the_search_goes_on_where_it_stopped(void **state)
{
	char in[] = GET_HOST "a: b\r\nc: d\r\n\r\n";
	size_t len = sizeof(in) - 1, scanned = 0;
	enum h1_error e;

	for (size_t n = 0; n < len; n++) {
		assert_int_equal(h1_head_end(slice_make(in, n), &scanned, &e), E_MORE);
		/* A CR whose next byte is not there yet stays. */
		assert_true(scanned == n || scanned + 1 == n);
		if (scanned > 2)
			memset(in, '\0', scanned - 2);
	}
	assert_int_equal(h1_head_end(slice_make(in, len), &scanned, &e), len);
}

static void test_empty_lines_alone_are_refused_past_the_limit(void **state)
{
	struct slice in = SLICE("\r\n\r\n\r\n\r\n\r\n");
	size_t scanned = 0;
	enum h1_error e;

	for (size_t n = 0; n < in.len; n++)
		assert_int_equal(h1_head_end(slice_first(in, n), &scanned, &e), E_MORE);
	assert_int_equal(h1_head_end(in, &scanned, &e), E_SYNTAX);
	assert_int_equal(e, H1_REQUEST_LINE);
}

static void test_every_error_has_a_text(void **state)
{
	for (int e = H1_OK + 1; e < H1_ERROR_MAX; e++)
		assert_true(strlen(h1_error_text((enum h1_error)e)) > 0);
	assert_string_equal(h1_error_text(H1_OK), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_request_is_slices_of_the_head),
		cmocka_unit_test(test_response_is_slices_and_odd_names_are_left_out),
		cmocka_unit_test(test_parts_of_a_head_are_refused_by_the_decoders),
		cmocka_unit_test(test_heads_are_taken_up_to_the_limit),
		cmocka_unit_test(test_targets_methods_and_fields_are_taken_up_to_the_limit),
		cmocka_unit_test(test_the_search_goes_on_where_it_stopped),
		cmocka_unit_test(test_empty_lines_alone_are_refused_past_the_limit),
		cmocka_unit_test(test_every_error_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
