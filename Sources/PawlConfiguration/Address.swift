extension PawlConfiguration {
    /// A host and a port, as in `127.0.0.1:9464`, `[::1]:9464` or `irc.example.org:6667`.
    package struct Address: Sendable, Hashable {
        /// A name or an address, without brackets.
        package var host: String
        /// The port; zero lets the system choose.
        package var port: Int

        /// Creates an address.
        package init(host: String, port: Int) {
            self.host = host
            self.port = port
        }

        /// Whether the host is `localhost` or a loopback address.
        package var isLoopback: Bool {
            self.host.lowercased() == "localhost" || IPAddress(self.host)?.isLoopback == true
        }
    }
}

extension PawlConfiguration.Address: CustomStringConvertible {
    package var description: String {
        self.host.contains(":") ? "[\(self.host)]:\(self.port)" : "\(self.host):\(self.port)"
    }
}

extension PawlConfiguration.Address {
    /// Parses `host:port`; the port is required if there is no `defaultPort`.
    init(configuration text: String, defaultPort: Int? = nil) throws(Mismatch) {
        let host: Substring
        let rest: Substring
        if text.hasPrefix("[") {
            guard let end = text.firstIndex(of: "]") else { throw Mismatch("whose `[` is not closed") }
            host = text[text.index(after: text.startIndex)..<end]
            rest = text[text.index(after: end)...]
            guard IPAddress(host) != nil, host.contains(":") else {
                throw Mismatch("whose brackets do not hold an IPv6 address")
            }
            guard rest.isEmpty || rest.first == ":" else {
                throw Mismatch(
                    "with something other than a port "
                        + "after `]`")
            }
        } else {
            host = text.prefix { $0 != ":" }
            rest = text.dropFirst(host.count)
            guard !rest.dropFirst().contains(":") else {
                throw Mismatch(
                    IPAddress(text) == nil
                        ? "with more than one `:`" : "whose IPv6 address is not in brackets, as in `[\(text)]`")
            }
            guard !host.isEmpty else { throw Mismatch("without a host") }
            guard Self.isHost(host) else { throw Mismatch("whose host is neither a name nor an address") }
        }
        guard rest.isEmpty else {
            let digits = rest.dropFirst()
            guard let port = Int(digits), digits.utf8.allSatisfy({ (48...57).contains($0) }), port <= 65535 else {
                throw Mismatch("whose port is not a number from 0 to 65535")
            }
            self.init(host: String(host), port: port)
            return
        }
        guard let defaultPort else { throw Mismatch("without a port") }
        self.init(host: String(host), port: defaultPort)
    }

    /// Whether a text is a host name or an IPv4 address.
    ///
    /// Names have at most 253 bytes, in labels of at most 63. A text with a numeric last label must be an IPv4 address.
    private static func isHost(_ host: Substring) -> Bool {
        let labels = host.split(separator: ".", omittingEmptySubsequences: false)
        guard labels.last?.allSatisfy(\.isNumber) == false else { return IPAddress(host) != nil }
        return host.utf8.count <= 253
            && labels.allSatisfy { label in
                (1...63).contains(label.utf8.count) && label.first != "-" && label.last != "-"
                    && label.utf8.allSatisfy { byte in
                        switch byte {
                        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                            true
                        default: false
                        }
                    }
            }
    }
}
