// The TLS of a client, as the gateway has terminated it or a trusted proxy has announced it.

internal import Crypto
package import NIOCore
package import NIOSSL

/// A client that is connected by TLS.
package struct ClientSecurity: Equatable, Sendable {
    /// The SHA-256 of the client's certificate (DER) in lower-case hexadecimal digits; nil if it has shown none.
    package private(set) var fingerprint: String?

    package init() {}

    /// The security of a client whose TLS ends here. Its possession of the certificate's key has been proven.
    package init(_ certificate: NIOSSLCertificate?) {
        guard let certificate, let bytes = try? certificate.toDERBytes() else { return }
        fingerprint = SHA256.hash(data: bytes).map { byte in
            (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }.joined()
    }

    /// Options of a WEBIRC command, separated by spaces; nil if they do not have `secure`.
    package init?(options: some Sequence<Substring>) {
        var isSecure = false
        for option in options {
            if option == "secure" { isSecure = true }
            guard option.hasPrefix(Self.fingerprintOption) else { continue }
            let digits = option.dropFirst(Self.fingerprintOption.count).lowercased()
            guard digits.utf8.count == 64, digits.allSatisfy(\.isHexDigit), digits.utf8.count == digits.count else {
                continue
            }
            fingerprint = digits
        }
        guard isSecure else { return nil }
    }

    /// The options of a WEBIRC command that say the same.
    package var options: [String] {
        ["secure"] + (fingerprint.map { [Self.fingerprintOption + $0] } ?? [])
    }

    /// What InspIRCd reads with `<sslinfo hash="sha-256">`.
    private static let fingerprintOption = "certfp-sha-256="
}

extension DownstreamOptions {
    /// Returns the handler that ends the TLS of a client; nil without a certificate.
    package func tlsHandler() -> NIOSSLServerHandler? {
        guard let tls else { return nil }
        guard asksForCertificates else { return NIOSSLServerHandler(context: tls) }
        // Backends compare the fingerprint; who has signed the certificate is of no concern.
        return NIOSSLServerHandler(context: tls) { _, promise in promise.succeed(.certificateVerified) }
    }
}

/// The line that announces a client to a backend. IRCv3 "WEBIRC".
package enum WebIRC {
    /// Returns the line.
    ///
    /// The options are never empty: InspIRCd takes a client without options for one by TLS if the gateway itself
    /// connects by TLS.
    ///
    /// - Parameter localPort: the port of the gateway that the client has connected to.
    package static func line(
        password: String, _ addresses: ProxiedAddresses?, localPort: Int, security: ClientSecurity?
    ) -> ByteBuffer {
        let address = addresses?.source.ipAddress ?? "127.0.0.1"
        // A leading colon would begin the last parameter.
        let shown = address.hasPrefix(":") ? "0" + address : address
        var options = security?.options ?? []
        if let port = addresses?.source.port, port > 0 { options.append("remote-port=\(port)") }
        options.append("local-port=\(localPort)")
        return ByteBuffer(
            string: "WEBIRC \(password) pawl \(shown) \(shown) :\(options.joined(separator: " "))\r\n")
    }
}
