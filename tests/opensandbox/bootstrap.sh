#!/bin/sh
# What execd's image brings as /bootstrap.sh, as small as the tests need it: waits for the sidecar's CA
# where TLS is decrypted, trusts it, starts execd and then the sandbox's own program.
set -eu

CA=/opt/opensandbox/mitmproxy-ca-cert.pem
STORE=/etc/ssl/certs/ca-certificates.crt

if [ "${OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT:-}" = true ]; then
	i=0
	while [ ! -s "$CA" ] && [ "$i" -lt 300 ]; do
		sleep 0.1
		i=$((i + 1))
	done
	cat "$CA" >>"$STORE"
	export SSL_CERT_FILE="$STORE" REQUESTS_CA_BUNDLE="$STORE" NODE_EXTRA_CA_CERTS="$CA"
fi
/opt/opensandbox/execd serve &
exec "$@"
