import Glibc

/// A self-signed certificate, for `localhost` where nothing else is said, and its key, made by the system's `openssl`.
package struct Certificate: Sendable {
    package let certificatePath: String
    package let keyPath: String

    /// The key is readable by all: servers that leave root behind read it late, and it protects nothing.
    package init(in scratch: ScratchDirectory, names: String = "DNS:localhost,IP:127.0.0.1") throws {
        certificatePath = scratch.file("certificate.pem")
        keyPath = scratch.file("key.pem")
        let made = try ChildProcess.run(
            "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", keyPath, "-out", certificatePath, "-days", "3650", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=\(names)",
            ])
        guard made.succeeded else { throw PeerError("openssl: \(made.stderr)") }
        chmod(keyPath, 0o644)
    }
}
