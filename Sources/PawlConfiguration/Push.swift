extension PawlConfiguration {
    /// The hook that is called when a message waits for a device that is not connected.
    package struct Push: Sendable, Equatable {
        /// Where the hook is, or `nil` if there is none.
        package var url: HookURL?
        /// The bearer token of each call, or `nil` for none.
        package var secret: Secret?
        /// A PEM file of certificate authorities, or `nil` for those of the system.
        package var authorities: String?
    }

    /// A URL with a path, over TLS or on loopback.
    package struct HookURL: Sendable, Equatable {
        /// The URL as it was written.
        package let text: String

        /// Ours: bytes of a URL.
        private static let limit = 2048

        /// Reads a URL.
        init(configuration text: String) throws(Mismatch) {
            guard text.utf8.count <= Self.limit, TextParsers.isVisible(text), text.utf8.allSatisfy({ $0 < 0x80 }) else {
                throw Mismatch()
            }
            guard let separator = text.firstRange(of: "://") else { throw Mismatch("without a scheme") }
            let scheme = text[..<separator.lowerBound].lowercased()
            guard scheme == "https" || scheme == "http" else { throw Mismatch("whose scheme is not known") }
            let rest = text[separator.upperBound...]
            let authority = rest.prefix { !"/?#".contains($0) }
            guard !authority.contains("@") else { throw Mismatch("with a user, which has no place here") }
            guard !rest.contains("#") else { throw Mismatch("with a fragment, which has no place here") }
            guard !authority.isEmpty else { throw Mismatch("without a host") }
            let address = try Address(configuration: String(authority), defaultPort: scheme == "https" ? 443 : 80)
            guard address.port != 0 else { throw Mismatch("whose port is 0, to which nothing can connect") }
            guard scheme == "https" || address.isLoopback else {
                throw Mismatch("which is plain text beyond loopback; write `https://`")
            }
            self.text = text
        }
    }
}

extension PawlConfiguration.Push {
    init(_ reading: inout ConfigurationReading) {
        url = reading.optional(.pushURL) { (text) throws(Mismatch) in
            try PawlConfiguration.HookURL(configuration: text)
        }
        secret = reading.secret(file: .pushSecretFile)
        authorities = reading.optional(.pushAuthorities, TextParsers.path)
    }
}
