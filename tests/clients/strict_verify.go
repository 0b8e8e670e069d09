// Verifies a server with crypto/x509 and only the given root.
// Arguments: CA file, name to verify, host:port.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net"
	"os"
	"time"
)

func main() {
	pem, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatal("no root")
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	conn, err := tls.DialWithDialer(dialer, "tcp", os.Args[3],
		&tls.Config{RootCAs: roots, ServerName: os.Args[2]})
	if err != nil {
		log.Fatal(err)
	}
	conn.Close()
}
