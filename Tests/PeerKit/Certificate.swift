import Foundation
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

    /// A self-signed certificate with dates of its own, as `openssl` writes them: `YYYYMMDDHHMMSSZ`.
    package init(in scratch: ScratchDirectory, from begin: String, to end: String) throws {
        try self.init(in: scratch)
        func run(_ words: [String]) throws {
            let made = try ChildProcess.run("openssl", words)
            guard made.succeeded else { throw PeerError("openssl: \(made.stderr)") }
        }
        let (request, settings) = (scratch.file("request.pem"), scratch.file("ca.cnf"))
        try run(["req", "-new", "-key", keyPath, "-subj", "/CN=localhost", "-out", request])
        try """
        [ca]
        default_ca = own
        [own]
        database = \(scratch.file("index.txt"))
        rand_serial = yes
        new_certs_dir = \(scratch.path)
        policy = any
        default_md = sha256
        x509_extensions = names
        [any]
        commonName = supplied
        [names]
        subjectAltName = DNS:localhost,IP:127.0.0.1
        basicConstraints = CA:true

        """.write(toFile: settings, atomically: true, encoding: .utf8)
        try "".write(toFile: scratch.file("index.txt"), atomically: true, encoding: .utf8)
        try run([
            "ca", "-batch", "-selfsign", "-config", settings, "-keyfile", keyPath, "-in", request, "-startdate", begin,
            "-enddate", end, "-notext", "-out", certificatePath,
        ])
    }
}
