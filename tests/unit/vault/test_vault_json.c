/* What a vault document may say, and what a refused one is answered. U numbers are lines of the
 * conformance catalogue, C numbers cases of peers' failures. */
#include <jansson.h>

#include "tests/unit/vault/fixture.h"
#include "vault/vault_json.h"

#define DOC_MAX 262144

struct row {
	const char *what; /* put into the form of the table */
	int ret;
	const char *text; /* of the message, or of the state when ret is 0 */
};

static void run_rows(const struct row *rows, size_t n, const char *form)
{
	static char doc[DOC_MAX];

	for (size_t i = 0; i < n; i++) {
		const char *hole = strstr(form, "@@");
		struct fixture f;

		(void)snprintf(doc, sizeof(doc), "%.*s%s%s", (int)(hole - form), form, rows[i].what,
			hole + 2);
		fixture_open(&f);
		f.rules.allow_http = true;
		f.msg.text[0] = '\0';
		if (fixture_try(&f, doc) != rows[i].ret)
			fail_msg("%s: %s", rows[i].what, f.msg.text);
		if (rows[i].ret < 0 && strcmp(f.msg.text, rows[i].text) != 0)
			fail_msg("%s: wanted \"%s\", got \"%s\"", rows[i].what, rows[i].text,
				f.msg.text);
		if (rows[i].ret == 0) {
			char *state = vault_state_json(f.vault);
			char *want = fixture_quotes(rows[i].text);

			if (!strstr(state, want))
				fail_msg("%s: wanted %s in %s", rows[i].what, want, state);
			free(state);
			free(want);
		}
		fixture_close(&f);
	}
}

#define RUN_ROWS(rows, form) run_rows(rows, ARRAY_LEN(rows), form)

/* 1.3, line 46: unknown fields at every level, broken JSON. */
static const struct row documents[] = {
	{"{}", 0, "'credentials':[],'bindings':[]"},
	{" { 'bindings' : null } ", 0, "'bindings':[]"},
	{"{'credentials':[],'bindings':[]}", 0, "'revision':1"},
	{"", E_SYNTAX, "line 1, column 0: not valid JSON"},
	{"null", E_SYNTAX, "line 1, column 4: not valid JSON"},
	{"[]", E_SYNTAX, "an object was expected"},
	{"{}x", E_SYNTAX, "line 1, column 3: not valid JSON"},
	{"{}{}", E_SYNTAX, "line 1, column 3: not valid JSON"},
	{"{'credentials':[]", E_SYNTAX, "line 1, column 17: not valid JSON"},
	{"{'bindings':[],'bindings':[]}", E_SYNTAX,
		"line 1, column 25: a field stands there twice"},
	{"{'Bindings':[]}", E_UNKNOWN, "unknown field \"Bindings\""},
	{"{'revision':1}", E_UNKNOWN, "unknown field \"revision\""},
	{"{'revision':null}", E_UNKNOWN, "unknown field \"revision\""},
	{"{'expectedRevision':1}", E_UNKNOWN, "unknown field \"expectedRevision\""},
	{"{'\\u0001\\u00e9':1}", E_UNKNOWN, "unknown field \"???\""},
	{"{'credentials':{}}", E_SYNTAX, "credentials: a list was expected"},
	{"{'bindings':'x'}", E_SYNTAX, "bindings: a list was expected"},
	{"{'credentials':[1]}", E_SYNTAX, "an object was expected"},
	{"{'bindings':[[]]}", E_SYNTAX, "an object was expected"},
};

static void test_documents(void **arg)
{
	RUN_ROWS(documents, "@@");
}

#define LONG_NAME                                                                          \
	"n234567890n234567890n234567890n234567890n234567890n234567890n234567890n234567890" \
	"n234567890n234567890n234567890n234567890n234567890n234567890n234567890n234567890" \
	"n234567890n234567890n234567890n234567890n234567890n234567890n234567890n234567890" \
	"n234567890123"

static const struct row credentials[] = {
	{"{'name':' k ','source':{'value':'v'}}", 0,
		"{'name':'k','sourceType':'inline','revision':1}"},
	{"{'name':'k','source':{'type':'','value':'v'}}", 0, "'sourceType':'inline'"},
	{"{'name':'k','source':{'type':null,'value':'v'}}", 0, "'sourceType':'inline'"},
	{"{'name':'z','source':{'value':'v'}},{'name':'a','source':{'value':'w'}}", 0,
		"[{'name':'a','sourceType':'inline','revision':1},{'name':'z',"},
	{"{'name':'" LONG_NAME "','source':{'value':'v'}}", 0, LONG_NAME},
	{"{'name':'" LONG_NAME "4','source':{'value':'v'}}", E_VALUE,
		"credential name is longer than 253 bytes"},
	{"{'name':'\\u0000'}", E_SYNTAX, "line 1, column 32: not valid JSON"},
	{"{'name':'a\\nb'}", E_VALUE, "credential name has a control byte"},
	{"{'name':'a\\u007fb'}", E_VALUE, "credential name has a control byte"},
	{"{'name':'  '}", E_VALUE, "credential name cannot be blank"},
	{"{}", E_VALUE, "credential name cannot be blank"},
	{"{'name':1}", E_SYNTAX, "name: a text was expected"},
	{"{'name':'k','value':'v'}", E_UNKNOWN, "unknown field \"value\""},
	{"{'name':'k','revision':2}", E_UNKNOWN, "unknown field \"revision\""},
	{"{'name':'k'}", E_VALUE, "credential \"k\": inline credential value cannot be empty"},
	{"{'name':'k','source':null}", E_VALUE,
		"credential \"k\": inline credential value cannot be empty"},
	{"{'name':'k','source':{'value':''}}", E_VALUE,
		"credential \"k\": inline credential value cannot be empty"},
	{"{'name':'k','source':'v'}", E_SYNTAX, "source: an object was expected"},
	{"{'name':'k','source':{'value':7}}", E_SYNTAX,
		"credential \"k\": parse inline credential source: value: a text was expected"},
	{"{'name':'k','source':{'value':'v','ttl':1}}", E_UNKNOWN,
		"credential \"k\": parse inline credential source: unknown field \"ttl\""},
	{"{'name':'k','source':{'type':'http','value':'v'}}", E_VALUE,
		"credential \"k\": unsupported credential source type \"http\""},
	{"{'name':'k','source':{'type':'Inline','value':'v'}}", E_VALUE,
		"credential \"k\": unsupported credential source type \"Inline\""},
	/* From the API no file is ever read. */
	{"{'name':'k','source':{'type':'file','value':'/etc/shadow'}}", E_VALUE,
		"credential \"k\": unsupported credential source type \"file\""},
	{"{'name':'k','source':{'value':'v'}},{'name':' k','source':{'value':'w'}}", E_VALUE,
		"duplicate credential name \"k\""},
	/* C128: the value is never shown. */
	{"{'name':'k','source':{'value':'sk-\\u0000secret'}}", E_SYNTAX,
		"line 1, column 63: not valid JSON"},
};

static void test_credentials(void **arg)
{
	RUN_ROWS(credentials, "{'credentials':[@@]}");
}

static const struct row matches[] = {
	/* U17 */
	{"'hosts':['api.test']", 0,
		"'match':{'schemes':['https'],'hosts':['api.test'],"
		"'methods':['GET','POST','PUT','PATCH','DELETE'],'paths':['/*']}"},
	{"'hosts':[' API.Test. ','api.test','*.API.test.']", 0,
		"'hosts':['api.test','*.api.test']"},
	{"'schemes':[' HTTP ','https','http'],'hosts':['api.test']", 0,
		"'schemes':['http','https']"},
	{"'schemes':['https','http'],'hosts':['api.test']", 0, "'schemes':['https','http']"},
	{"'schemes':[],'hosts':['api.test'],'methods':[],'paths':[]", 0, "'schemes':['https']"},
	{"'hosts':['api.test'],'methods':[' get ','GET','propfind']", 0,
		"'methods':['GET','PROPFIND']"},
	{"'hosts':['api.test'],'paths':[' /v1/* ','/v1/*','/a*b']", 0, "'paths':['/v1/*','/a*b']"},
	{"'hosts':['api.1','xn--nxasmq6b.test','a-b.c-d']", 0, "'xn--nxasmq6b.test'"},
	/* U26 */
	{"'hosts':['api.test'],'ports':[80,443]", 0, "'hosts':['api.test'],'methods'"},
	{"'hosts':['api.test'],'ports':[443]", 0, "'hosts':['api.test'],'methods'"},
	{"'hosts':['api.test'],'ports':[80]", 0, "'hosts':['api.test'],'methods'"},
	{"'hosts':['api.test'],'ports':null", 0, "'hosts':['api.test'],'methods'"},
	{"'hosts':['api.test'],'ports':[8080]", E_VALUE,
		"binding \"b\": unsupported port 8080: only ports 80 and 443 are supported "
		"(derived "
		"from scheme)"},
	{"'hosts':['api.test'],'ports':[443,8080]", E_VALUE,
		"binding \"b\": unsupported port 8080: only ports 80 and 443 are supported "
		"(derived "
		"from scheme)"},
	{"'hosts':['api.test'],'ports':['443']", E_SYNTAX,
		"binding \"b\": match.ports: a list of whole numbers was expected"},
	{"'schemes':['ftp'],'hosts':['api.test']", E_VALUE,
		"binding \"b\": unsupported scheme \"ftp\""},
	{"'schemes':[''],'hosts':['api.test']", E_VALUE, "binding \"b\": unsupported scheme \"\""},
	{"'schemes':['https']", E_VALUE, "binding \"b\": match.hosts cannot be empty"},
	{"'hosts':[]", E_VALUE, "binding \"b\": match.hosts cannot be empty"},
	{"'hosts':'api.test'", E_SYNTAX, "binding \"b\": match: hosts: a list was expected"},
	{"'hosts':[1]", E_SYNTAX, "binding \"b\": match.hosts: a list of texts was expected"},
	{"'hosts':['api.test'],'requestHeaders':[]", E_UNKNOWN,
		"binding \"b\": match: unknown field \"requestHeaders\""},
	/* U25 and the grammar of 1.4 */
	{"'hosts':['api.test:443']", E_VALUE,
		"binding \"b\": credential binding host \"api.test:443\" must be an FQDN"},
	{"'hosts':['api_x.test']", E_VALUE,
		"binding \"b\": credential binding host \"api_x.test\" must be an FQDN"},
	{"'hosts':['localhost']", E_VALUE,
		"binding \"b\": credential binding host \"localhost\" must be an FQDN"},
	{"'hosts':['*.localhost']", E_VALUE,
		"binding \"b\": invalid wildcard host \"*.localhost\""},
	{"'hosts':['*.api.test:443']", E_VALUE,
		"binding \"b\": invalid wildcard host \"*.api.test:443\""},
	{"'hosts':['*.com']", E_VALUE, "binding \"b\": invalid wildcard host \"*.com\""},
	{"'hosts':['*']", E_VALUE, "binding \"b\": invalid wildcard host \"*\""},
	{"'hosts':['a.*.test']", E_VALUE, "binding \"b\": invalid wildcard host \"a.*.test\""},
	{"'hosts':['*.*.test']", E_VALUE, "binding \"b\": invalid wildcard host \"*.*.test\""},
	{"'hosts':['*x.test']", E_VALUE, "binding \"b\": invalid wildcard host \"*x.test\""},
	{"'hosts':['*.10.0.0.1']", E_VALUE,
		"binding \"b\": wildcard host \"*.10.0.0.1\" cannot target an IP address"},
	{"'hosts':['10.0.0.1']", E_VALUE,
		"binding \"b\": credential binding host \"10.0.0.1\" must be an FQDN, not an IP "
		"address"},
	{"'hosts':['[::1]']", E_VALUE,
		"binding \"b\": credential binding host \"[::1]\" must be an FQDN, not an IP "
		"address"},
	{"'hosts':['::1']", E_VALUE,
		"binding \"b\": credential binding host \"::1\" must be an FQDN, not an IP "
		"address"},
	{"'hosts':['https://api.test']", E_VALUE,
		"binding \"b\": host \"https://api.test\" must not include scheme or path"},
	{"'hosts':['api.test/v1']", E_VALUE,
		"binding \"b\": host \"api.test/v1\" must not include scheme or path"},
	{"'hosts':[' . ']", E_VALUE, "binding \"b\": host cannot be blank"},
	{"'hosts':['']", E_VALUE, "binding \"b\": host cannot be blank"},
	{"'hosts':['api.test..']", E_VALUE,
		"binding \"b\": credential binding host \"api.test.\" must be an FQDN"},
	{"'hosts':['.api.test']", E_VALUE,
		"binding \"b\": credential binding host \".api.test\" must be an FQDN"},
	{"'hosts':['-a.test']", E_VALUE,
		"binding \"b\": credential binding host \"-a.test\" must be an FQDN"},
	{"'hosts':['a-.test']", E_VALUE,
		"binding \"b\": credential binding host \"a-.test\" must be an FQDN"},
	{"'hosts':['b\\u00fccher.test']", E_VALUE,
		"binding \"b\": credential binding host \"b??cher.test\" must be an FQDN"},
	{"'hosts':['" LONG_NAME ".test']", E_VALUE,
		"binding \"b\": credential binding host \"" LONG_NAME ".test\" must be an FQDN"},
	{"'hosts':['api.test'],'methods':[' ']", E_VALUE, "binding \"b\": method cannot be blank"},
	{"'hosts':['api.test'],'methods':['GE T']", E_VALUE,
		"binding \"b\": invalid method \"GE T\""},
	/* W-30, C118 */
	{"'hosts':['api.test'],'methods':['trace']", E_VALUE,
		"binding \"b\": method \"TRACE\" cannot be bound: its answer would show the "
		"credential"},
	{"'hosts':['api.test'],'methods':['TRACK']", E_VALUE,
		"binding \"b\": method \"TRACK\" cannot be bound: its answer would show the "
		"credential"},
	{"'hosts':['api.test'],'methods':['CONNECT']", E_VALUE,
		"binding \"b\": method \"CONNECT\" cannot be bound: its answer would show the "
		"credential"},
	{"'hosts':['api.test'],'paths':['v1/*']", E_VALUE,
		"binding \"b\": path pattern must start with /"},
	{"'hosts':['api.test'],'paths':['']", E_VALUE,
		"binding \"b\": path pattern must start with /"},
	{"'hosts':['api.test'],'paths':['/a\\u0001']", E_VALUE,
		"binding \"b\": path pattern has a control byte"},
};

static void test_matches(void **arg)
{
	RUN_ROWS(matches, "{'bindings':[{'name':'b','auth':{'type':'passthrough'},'match':{@@}}]}");
}

static const struct row auths[] = {
	{"'type':'bearer','credential':' k '", 0, "'auth':{'type':'bearer'}"},
	{"'type':'basic','credential':'k'", 0, "'auth':{'type':'basic'}"},
	{"'type':'apiKey','name':'x-api-key','credential':'k'", 0,
		"'auth':{'type':'apiKey','name':'X-Api-Key'}"},
	{"'type':'apiKey','name':'PRIVATE-TOKEN','credential':'k'", 0, "'name':'Private-Token'"},
	{"'type':'apiKey','name':'cookie','credential':'k'", 0, "'name':'Cookie'"},
	{"'type':'customHeaders','headers':[{'name':'x-a','credential':'k'},"
	 "{'name':'x-b','credential':'k'}]",
		0, "'auth':{'type':'customHeaders'}"},
	{"'type':'passthrough','credential':'','headers':[]", 0, "'auth':{'type':'passthrough'}"},
	{"'type':''", E_VALUE, "binding \"b\": unsupported auth type \"\""},
	{"'type':'Bearer','credential':'k'", E_VALUE,
		"binding \"b\": unsupported auth type \"Bearer\""},
	{"'type':'oauth2'", E_VALUE, "binding \"b\": unsupported auth type \"oauth2\""},
	{"'type':'bearer','credential':'k','scope':'x'", E_UNKNOWN,
		"binding \"b\": auth: unknown field \"scope\""},
	{"'type':7", E_SYNTAX, "binding \"b\": auth: type: a text was expected"},
	{"'type':'bearer'", E_VALUE, "binding \"b\": bearer auth requires credential"},
	{"'type':'basic','credential':' '", E_VALUE,
		"binding \"b\": basic auth requires credential"},
	{"'type':'apiKey','name':'x-a'", E_VALUE, "binding \"b\": apiKey auth requires credential"},
	{"'type':'apiKey','credential':'k'", E_VALUE, "binding \"b\": apiKey auth requires name"},
	{"'type':'bearer','credential':'k','name':'x'", E_VALUE,
		"binding \"b\": bearer auth does not accept name"},
	{"'type':'apiKey','name':'x','credential':'k','headers':[{'name':'y','credential':'k'}]",
		E_VALUE, "binding \"b\": apiKey auth does not accept headers"},
	{"'type':'customHeaders'", E_VALUE, "binding \"b\": customHeaders auth requires headers"},
	{"'type':'customHeaders','headers':[{'name':'x-a'}]", E_VALUE,
		"binding \"b\": customHeaders entry \"X-A\" requires credential"},
	{"'type':'customHeaders','headers':[{'name':'x-a','value':'v'}]", E_UNKNOWN,
		"binding \"b\": auth.headers: unknown field \"value\""},
	{"'type':'customHeaders','headers':['x']", E_SYNTAX,
		"binding \"b\": auth.headers: an object was expected"},
	/* U19 */
	{"'type':'customHeaders','headers':[{'name':'x-a','credential':'k'},"
	 "{'name':'X-A','credential':'k'}]",
		E_VALUE, "binding \"b\": duplicate custom header name \"X-A\""},
	/* U24 */
	{"'type':'passthrough','credential':'k'", E_VALUE,
		"binding \"b\": passthrough auth does not accept credential"},
	{"'type':'passthrough','name':'x'", E_VALUE,
		"binding \"b\": passthrough auth does not accept name"},
	{"'type':'passthrough','headers':[{'name':'x','credential':'k'}]", E_VALUE,
		"binding \"b\": passthrough auth does not accept headers"},
	{"'type':'bearer','credential':'other'", E_VALUE,
		"binding \"b\" references unknown credential \"other\""},
	{"'type':'customHeaders','headers':[{'name':'x-a','credential':'other'}]", E_VALUE,
		"binding \"b\" references unknown credential \"other\""},
	/* C128: names */
	{"'type':'apiKey','name':'X-A\\r\\nB','credential':'k'", E_VALUE,
		"binding \"b\": invalid credential header name \"X-A??B\""},
	{"'type':'apiKey','name':'X A','credential':'k'", E_VALUE,
		"binding \"b\": invalid credential header name \"X A\""},
	{"'type':'apiKey','name':'x:','credential':'k'", E_VALUE,
		"binding \"b\": invalid credential header name \"x:\""},
};

static void test_auths(void **arg)
{
	RUN_ROWS(auths,
		"{'credentials':[{'name':'k','source':{'value':'sk-value-01'}}],"
		"'bindings':[{'name':'b','match':{'hosts':['api.test']},'auth':{@@}}]}");
}

/* U18 and the additions of reference 4 */
static void test_reserved_headers_are_refused(void **arg)
{
	static const char *const names[] = {"Host", "CONTENT-LENGTH", "content-type",
		"Transfer-Encoding", "connection", "Upgrade", "TE", "trailer",
		"Proxy-Authorization", "proxy-authenticate", "Forwarded", "X-Forwarded-For",
		"x-forwarded-host", "x-forwarded-proto", "Keep-Alive", "proxy-connection",
		"HTTP2-Settings", "expect", "Sec-WebSocket-Key", "sec-websocket-protocol",
		"alt-used"};
	struct fixture f;

	fixture_open(&f);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char doc[512];
		char want[128];

		(void)snprintf(want, sizeof(want),
			"binding \"b\": reserved credential header name \"%s\"", names[i]);
		for (int custom = 0; custom < 2; custom++) {
			(void)snprintf(doc, sizeof(doc),
				"{'credentials':[{'name':'k','source':{'value':'v'}}],'bindings':"
				"[{'name':'b','match':{'hosts':['api.test']},'auth':{'type':'%s',%s"
				"'name':'%s','credential':'k'%s}}]}",
				custom ? "customHeaders" : "apiKey", custom ? "'headers':[{" : "",
				names[i], custom ? "}]" : "");
			fixture_refuse(&f, doc, E_VALUE, want);
		}
	}
	fixture_close(&f);
}

static const struct row substitutions[] = {
	/* U7 with our addition: all but the value is shown, so that it can be sent again. */
	{"{'credential':'k','placeholder':'ph-model-1','in':[' Body ','path','body','PATH']}", 0,
		"{'placeholder':'ph-model-1','credential':'k','in':['body','path']}"},
	/* U22 */
	{"{'credential':'k','placeholder':'  ph-outer  ','in':['query']}", 0,
		"'placeholder':'  ph-outer  '"},
	{"{'credential':'k','placeholder':'12345678','in':['header']}", 0, "'in':['header']"},
	{"{'credential':'k','placeholder':'ph-model-1','in':['HEADER:X-Key','Query:Key','form:a b',"
	 "'json:/a/0/b~1c~0']}",
		0, "'in':['header:x-key','query:Key','form:a b','json:/a/0/b~1c~0']"},
	{"{'credential':'k','placeholder':'ph-model-1','in':['path']},"
	 "{'credential':'k','placeholder':'ph-model-1','in':['query']}",
		0, "{'placeholder':'ph-model-1','credential':'k','in':['query']}"},
	{"{'credential':'k','placeholder':'ph-model-1','in':['query:a']},"
	 "{'credential':'k','placeholder':'ph-model-1','in':['query:b']}",
		0, "'in':['query:b']"},
	{"{'placeholder':'ph-model-1','in':['body']}", E_VALUE,
		"binding \"b\": substitution 0 requires credential"},
	/* U21 */
	{"{'credential':'k','placeholder':'  ','in':['body']}", E_VALUE,
		"binding \"b\": substitution 0 requires placeholder"},
	{"{'credential':'k','in':['body']}", E_VALUE,
		"binding \"b\": substitution 0 requires placeholder"},
	/* C130 */
	{"{'credential':'k','placeholder':'1234567','in':['body']}", E_VALUE,
		"binding \"b\": substitution 0: a placeholder has at least 8 bytes"},
	{"{'credential':'k','placeholder':'ph-model\\n1','in':['body']}", E_VALUE,
		"binding \"b\": substitution 0: a placeholder has no CR and no LF"},
	{"{'credential':'k','placeholder':'ph-model\\r1','in':['body']}", E_VALUE,
		"binding \"b\": substitution 0: a placeholder has no CR and no LF"},
	{"{'credential':'k','placeholder':'sk-value-01','in':['body']}", E_VALUE,
		"credential \"k\": its value is also a placeholder"},
	{"{'credential':'k','placeholder':'ph-model-1'}", E_VALUE,
		"binding \"b\": substitution 0 requires at least one target surface"},
	{"{'credential':'k','placeholder':'ph-model-1','in':[]}", E_VALUE,
		"binding \"b\": substitution 0 requires at least one target surface"},
	/* U20 */
	{"{'credential':'k','placeholder':'ph-model-1','in':['cookie']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"cookie\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['header:x y']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"header:x y\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['header:']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"header:\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['header:Host']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"header:host\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['query:']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"query:\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['form:a\\tb']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"form:a?b\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['json:a']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"json:a\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['json:']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"json:\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['json:/a~2']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"json:/a~2\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['json:/a~']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"json:/a~\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['path:x']}", E_VALUE,
		"binding \"b\": substitution 0 has unsupported target surface \"path:x\""},
	/* U23 */
	{"{'credential':'k','placeholder':'ph-model-1','in':['path','query']},"
	 "{'credential':'k','placeholder':'ph-model-2','in':['query']},"
	 "{'credential':'k','placeholder':'ph-model-1','in':['query']}",
		E_VALUE,
		"binding \"b\": substitution 2 duplicates placeholder \"ph-model-1\" on query "
		"surface "
		"from substitution 0"},
	{"{'credential':'k','placeholder':'ph-model-1','in':['body']},"
	 "{'credential':'k','placeholder':'ph-model-1','in':['json:/a']}",
		E_VALUE,
		"binding \"b\": substitution 1 duplicates placeholder \"ph-model-1\" on body "
		"surface "
		"from substitution 0"},
	/* U28 */
	{"{'credential':'other','placeholder':'ph-model-1','in':['body']}", E_VALUE,
		"binding \"b\" references unknown credential \"other\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':['body'],'x':1}", E_UNKNOWN,
		"binding \"b\": substitution 0: unknown field \"x\""},
	{"{'credential':'k','placeholder':'ph-model-1','in':'body'}", E_SYNTAX,
		"binding \"b\": substitution 0: in: a list was expected"},
	{"{'credential':'k','placeholder':'ph-model-1','in':[null]}", E_SYNTAX,
		"binding \"b\": in: a list of texts was expected"},
};

static void test_substitutions(void **arg)
{
	RUN_ROWS(substitutions,
		"{'credentials':[{'name':'k','source':{'value':'sk-value-01'}}],"
		"'bindings':[{'name':'b','match':{'hosts':['api.test']},"
		"'auth':{'type':'passthrough','substitutions':[@@]}}]}");
}

static const struct row bindings[] = {
	{"{'name':' b ','match':{'hosts':['a.test']},'auth':{'type':'passthrough'}}", 0,
		"'bindings':[{'name':'b',"},
	{"{'match':{'hosts':['a.test']},'auth':{'type':'passthrough'}}", E_VALUE,
		"binding name cannot be blank"},
	{"{'name':'b','auth':{'type':'passthrough'}}", E_VALUE,
		"binding \"b\": match.hosts cannot be empty"},
	{"{'name':'b','match':{'hosts':['a.test']}}", E_VALUE,
		"binding \"b\": unsupported auth type \"\""},
	{"{'name':'b','match':{'hosts':['a.test']},'auth':{'type':'passthrough'},'x':1}", E_UNKNOWN,
		"unknown field \"x\""},
	{"{'name':'b','match':{'hosts':['a.test']},'auth':{'type':'passthrough'}},"
	 "{'name':'b ','match':{'hosts':['b.test']},'auth':{'type':'passthrough'}}",
		E_VALUE, "duplicate binding name \"b\""},
};

static void test_bindings(void **arg)
{
	RUN_ROWS(bindings, "{'bindings':[@@]}");
}

/* C128, W-6, line 159: what may stand in a header. @@ is the value, in the JSON of the document. */
static const struct {
	const char *value;
	bool in_header; /* may stand in one */
} values[] = {
	{"sk-1", true},
	{"a b\\tc", true},
	{"~!@#", true},
	{"sk-1\\n", false},
	{"sk-1\\r\\nX-Evil: 1", false},
	{" sk-1", false},
	{"sk-1 ", false},
	{"\\tsk-1", false},
	{"sk-\\u0001", false},
	{"sk-\\u007f", false},
	{"sk-\\u00e9", false},
};

static void test_values_that_no_header_carries_are_refused_there(void **arg)
{
	static const char *const uses[] = {
		"'type':'bearer','credential':'k'",
		"'type':'basic','credential':'k'",
		"'type':'apiKey','name':'x','credential':'k'",
		"'type':'customHeaders','headers':[{'name':'x','credential':'k'}]",
		"'type':'passthrough','substitutions':[{'credential':'k','placeholder':'ph-model-1'"
		","
		"'in':['header']}]",
		"'type':'passthrough','substitutions':[{'credential':'k','placeholder':'ph-model-1'"
		","
		"'in':['header:x']}]",
		"'type':'passthrough','substitutions':[{'credential':'k','placeholder':'ph-model-1'"
		","
		"'in':['path','query','body']}]",
	};

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		for (size_t k = 0; k < ARRAY_LEN(uses); k++) {
			bool fine = values[i].in_header || k == ARRAY_LEN(uses) - 1;
			struct fixture f;
			char doc[1024];

			(void)snprintf(doc, sizeof(doc),
				"{'credentials':[{'name':'k','source':{'value':'%s'}}],'bindings':"
				"[{'name':'b','match':{'hosts':['api.test']},'auth':{%s}}]}",
				values[i].value, uses[k]);
			fixture_open(&f);
			if (fine)
				fixture_load(&f, doc);
			else
				fixture_refuse(&f, doc, E_VALUE,
					"credential \"k\": its value cannot stand in a header: "
					"control or non-ASCII bytes, or blanks or a newline at an "
					"end");
			assert_null(strstr(f.msg.text, "sk-"));
			assert_int_equal(vault_exists(f.vault), fine);
			fixture_close(&f);
		}
	}
}

static size_t fill(char *to, size_t at, size_t n, char c)
{
	memset(to + at, c, n);
	return at + n;
}

static int try_value_of(struct fixture *f, size_t n)
{
	static char doc[DOC_MAX];
	size_t len = (size_t)snprintf(
		doc, sizeof(doc), "{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":\"");

	len = fill(doc, len, n, 'v');
	(void)snprintf(doc + len, sizeof(doc) - len, "\"}}]}");
	return fixture_try(f, doc);
}

static void test_value_length_limit(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(try_value_of(&f, CREDENTIAL_VALUE_MAX), 0);
	assert_int_equal(try_value_of(&f, CREDENTIAL_VALUE_MAX + 1), E_VALUE);
	assert_string_equal(
		f.msg.text, "credential \"k\": inline credential value is longer than 65536 bytes");
	fixture_close(&f);
}

static int try_blanks(struct fixture *f, size_t n)
{
	char *doc = xmalloc(n);
	int ret;

	memset(doc, ' ', n);
	doc[0] = '{';
	doc[n - 1] = '}';
	ret = vault_load(f->vault, slice_make(doc, n), &f->rules, &f->msg);
	free(doc);
	return ret;
}

/* Line 46: at the limit and one past it. */
static void test_document_length_limit(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(try_blanks(&f, VAULT_DOC_MAX), 0);
	assert_int_equal(try_blanks(&f, VAULT_DOC_MAX + 1), E_LIMIT);
	assert_string_equal(f.msg.text, "1048577 bytes; a vault document has at most 1048576");
	fixture_close(&f);
}

static int try_nested(struct fixture *f, size_t depth)
{
	static char doc[DOC_MAX];
	size_t len = (size_t)snprintf(doc, sizeof(doc), "{\"x\":\"[[\\\"[\",\"y\":");

	len = fill(doc, len, depth - 1, '[');
	len = fill(doc, len, depth - 1, ']');
	(void)snprintf(doc + len, sizeof(doc) - len, "}");
	return vault_load(f->vault, slice_str(doc), &f->rules, &f->msg);
}

static void test_depth_limit(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(try_nested(&f, VAULT_JSON_DEPTH_MAX), E_UNKNOWN);
	assert_int_equal(try_nested(&f, VAULT_JSON_DEPTH_MAX + 1), E_LIMIT);
	assert_string_equal(f.msg.text, "nested deeper than 64");
	fixture_close(&f);
}

static int try_containers(struct fixture *f, size_t n)
{
	static char doc[VAULT_JSON_CONTAINERS_MAX * 3 + 64];
	size_t len = (size_t)snprintf(doc, sizeof(doc), "{\"x\":[0");

	for (size_t i = 2; i < n; i++)
		len += (size_t)snprintf(doc + len, sizeof(doc) - len, ",[]");
	(void)snprintf(doc + len, sizeof(doc) - len, "]}");
	return vault_load(f->vault, slice_str(doc), &f->rules, &f->msg);
}

static void test_container_limit(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(try_containers(&f, VAULT_JSON_CONTAINERS_MAX), E_UNKNOWN);
	assert_int_equal(try_containers(&f, VAULT_JSON_CONTAINERS_MAX + 1), E_LIMIT);
	assert_string_equal(f.msg.text, "more than 131072 objects and lists");
	fixture_close(&f);
}

/* n items of a list, made with a format that takes the number. */
static int try_list(
	struct fixture *f, const char *before, const char *item, const char *after, size_t n)
{
	static char doc[DOC_MAX];
	size_t len = (size_t)snprintf(doc, sizeof(doc), "%s", before);

	for (size_t i = 0; i < n; i++) {
		const char *hole = strchr(item, '#');

		len += (size_t)snprintf(doc + len, sizeof(doc) - len, "%s%.*s%zu%s", i ? "," : "",
			(int)(hole - item), item, i, hole + 1);
	}
	(void)snprintf(doc + len, sizeof(doc) - len, "%s", after);
	return fixture_try(f, doc);
}

static void test_list_limits(void **arg)
{
	static const char methods[] = "{'bindings':[{'name':'b','auth':{'type':'passthrough'},"
				      "'match':{'hosts':['a.test'],'methods':[";
	static const char subs[] = "{'credentials':[{'name':'k','source':{'value':'v'}}],"
				   "'bindings':[{'name':'b','match':{'hosts':['a.test']},"
				   "'auth':{'type':'passthrough','substitutions':[";
	static const char places[] = "{'credentials':[{'name':'k','source':{'value':'v'}}],"
				     "'bindings':[{'name':'b','match':{'hosts':['a.test']},"
				     "'auth':{'type':'passthrough','substitutions':[{'credential':"
				     "'k','placeholder':'ph-model-1','in':[";
	static const char one[] = "{'credential':'k','placeholder':'placeholder-#','in':['query']}";
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(try_list(&f, methods, "'M#'", "]}}]}", 64), 0);
	assert_int_equal(try_list(&f, methods, "'M#'", "]}}]}", 65), E_VALUE);
	assert_string_equal(f.msg.text, "binding \"b\": match.methods: more than 64 methods");
	assert_int_equal(try_list(&f, subs, one, "]}}]}", 1000), 0);
	assert_int_equal(try_list(&f, subs, one, "]}}]}", 1001), E_VALUE);
	assert_string_equal(f.msg.text, "binding \"b\": more than 1000 substitutions");
	assert_int_equal(try_list(&f, places, "'query:q#'", "]}]}}]}", 64), 0);
	assert_int_equal(try_list(&f, places, "'query:q#'", "]}]}}]}", 65), E_VALUE);
	assert_string_equal(f.msg.text, "binding \"b\": substitution 0 has more than 64 targets");
	fixture_close(&f);
}

static int try_product(struct fixture *f, size_t hosts, size_t paths)
{
	static char doc[DOC_MAX];
	size_t len = (size_t)snprintf(doc, sizeof(doc),
		"{'bindings':[{'name':'b','auth':{'type':'passthrough'},'match':{'hosts':[");

	for (size_t i = 0; i < hosts; i++)
		len += (size_t)snprintf(
			doc + len, sizeof(doc) - len, "%s'h%zu.test'", i ? "," : "", i);
	len += (size_t)snprintf(doc + len, sizeof(doc) - len, "],'paths':[");
	for (size_t i = 0; i < paths; i++)
		len += (size_t)snprintf(
			doc + len, sizeof(doc) - len, "%s'/p%zu/*'", i ? "," : "", i);
	(void)snprintf(doc + len, sizeof(doc) - len, "]}}]}");
	return fixture_try(f, doc);
}

static void test_index_limit(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(try_product(&f, 512, 512), 0);
	assert_int_equal(try_product(&f, 512, 513), E_LIMIT);
	assert_string_equal(
		f.msg.text, "bindings have more than 262144 pairs of host and path pattern");
	fixture_close(&f);
}

/* No part of a document with a key goes into a message: jansson's own text would quote it. */
static void test_syntax_errors_quote_nothing(void **arg)
{
	static const char key[] = "SECRETKEY";
	static const char doc[] = "{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":"
				  "\"SECRETKEY\"}}]}";
	struct fixture f;

	fixture_open(&f);
	for (size_t cut = 0; cut < sizeof(doc) - 1; cut++) {
		for (size_t kind = 0; kind < 3; kind++) {
			char text[sizeof(doc) + 1];
			size_t len = cut;

			memcpy(text, doc, sizeof(doc));
			if (kind > 0)
				len = sizeof(doc) - 1;
			if (kind == 1)
				text[cut] = '\x01';
			if (kind == 2)
				text[cut] = 'x';
			f.msg.text[0] = '\0';
			assert_true(
				vault_load(f.vault, slice_make(text, len), &f.rules, &f.msg) <= 0);
			for (size_t i = 0; i + 4 < sizeof(key); i++) {
				char piece[5] = {key[i], key[i + 1], key[i + 2], key[i + 3]};

				assert_null(strstr(f.msg.text, piece));
			}
		}
	}
	fixture_close(&f);
}

/* After a document jansson works with the memory that it had before. */
static void test_allocators_are_given_back(void **arg)
{
	json_malloc_t before_malloc;
	json_malloc_t after_malloc;
	json_free_t before_free;
	json_free_t after_free;
	struct fixture f;

	json_get_alloc_funcs(&before_malloc, &before_free);
	fixture_open(&f);
	fixture_load(&f, "{}");
	assert_int_equal(fixture_try(&f, "{"), E_SYNTAX);
	json_get_alloc_funcs(&after_malloc, &after_free);
	assert_true(before_malloc == after_malloc && before_free == after_free);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: a document before it would hide what the test is about. */
		cmocka_unit_test(test_allocators_are_given_back),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_credentials),
		cmocka_unit_test(test_matches),
		cmocka_unit_test(test_auths),
		cmocka_unit_test(test_reserved_headers_are_refused),
		cmocka_unit_test(test_substitutions),
		cmocka_unit_test(test_bindings),
		cmocka_unit_test(test_values_that_no_header_carries_are_refused_there),
		cmocka_unit_test(test_value_length_limit),
		cmocka_unit_test(test_document_length_limit),
		cmocka_unit_test(test_depth_limit),
		cmocka_unit_test(test_container_limit),
		cmocka_unit_test(test_list_limits),
		cmocka_unit_test(test_index_limit),
		cmocka_unit_test(test_syntax_errors_quote_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
