// Verifies a server as Java's HTTPS does: PKIX, endpoint identification, only the given root.
// Arguments: CA file, name to verify, host, port.
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class StrictVerify {
	public static void main(String[] args) throws Exception {
		KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
		roots.load(null, null);
		try (FileInputStream in = new FileInputStream(args[0])) {
			roots.setCertificateEntry("ca",
				CertificateFactory.getInstance("X.509").generateCertificate(in));
		}
		TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
		trust.init(roots);
		SSLContext context = SSLContext.getInstance("TLS");
		context.init(null, trust.getTrustManagers(), null);
		try (Socket plain = new Socket()) {
			plain.connect(new InetSocketAddress(args[2], Integer.parseInt(args[3])), 10000);
			plain.setSoTimeout(10000);
			SSLSocket tls = (SSLSocket) context.getSocketFactory().createSocket(
				plain, args[1], Integer.parseInt(args[3]), true);
			SSLParameters parameters = tls.getSSLParameters();
			parameters.setEndpointIdentificationAlgorithm("HTTPS");
			tls.setSSLParameters(parameters);
			tls.startHandshake();
			tls.close();
		}
	}
}
