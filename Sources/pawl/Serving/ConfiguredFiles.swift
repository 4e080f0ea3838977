// The files that a configuration names. A reload reads them again and reports which contents have changed.

import Foundation
import NIOSSL
import PawlConfiguration
import StorePort

/// The digests of those files at the time of reading.
struct ConfiguredFiles: Sendable {
    private struct File: Sendable, Equatable {
        var path: String
        var digest: EnvelopeDigest?
    }

    private let files: [(key: String, file: File)]

    init(_ configuration: PawlConfiguration) {
        let paths: [(String, String?)] = [
            ("tls.certificate", configuration.tls?.certificate), ("tls.key", configuration.tls?.key),
            ("upstream.tls.ca", configuration.upstream.tls.authorities), ("mapping", configuration.mapping),
            ("upstream.tls.certificate", configuration.upstream.tls.identity?.certificate),
            ("upstream.tls.key", configuration.upstream.tls.identity?.key),
        ]
        files = paths.compactMap { key, path in
            guard let path else { return nil }
            let content = FileManager.default.contents(atPath: path)
            return (key, File(path: path, digest: content.map { EnvelopeDigest(of: Array($0)) }))
        }
    }

    /// Returns files with the same path and changed contents. A changed path is a changed value of its key.
    func changes(since older: ConfiguredFiles) -> [(name: String, text: String)] {
        files.compactMap { key, file in
            guard let before = older.files.first(where: { $0.key == key })?.file, before.path == file.path,
                before.digest != file.digest
            else { return nil }
            return (key, "\(key): \(file.path) has other contents\(Self.expiry(key, file.path)) (applied)")
        }
    }

    private static func expiry(_ key: String, _ path: String) -> String {
        guard key == "tls.certificate", let certificate = try? NIOSSLCertificate.fromPEMFile(path).first else {
            return ""
        }
        return ", valid until \(Table.time(Int64(certificate.notValidAfter) * 1000))"
    }
}
