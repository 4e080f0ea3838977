/// Parsers for texts that have no type of their own.
enum TextParsers {
    /// A path as it was written.
    static func path(_ text: String) throws(Mismatch) -> String {
        guard !text.isEmpty, !text.utf8.contains(0) else { throw Mismatch() }
        return text
    }

    /// A name without spaces.
    static func word(_ text: String) throws(Mismatch) -> String {
        guard (1...253).contains(text.utf8.count), self.isVisible(text) else { throw Mismatch() }
        return text
    }

    /// The origin of a page as browsers write it (RFC 6454 section 6.2), or `*`.
    static func origin(_ text: String) throws(Mismatch) -> String {
        guard text != "*" else { return text }
        guard let separator = text.firstRange(of: "://") else { throw Mismatch("without a scheme") }
        guard ["http", "https"].contains(text[..<separator.lowerBound].lowercased()) else {
            throw Mismatch("whose scheme is neither http nor https")
        }
        let rest = text[separator.upperBound...]
        guard !rest.isEmpty, !rest.contains(where: { "/?#@*".contains($0) }) else {
            throw Mismatch("not an origin, which is a scheme, a host and perhaps a port")
        }
        return try self.word(text)
    }

    /// A host name or an address.
    static func host(_ text: String) throws(Mismatch) -> String {
        guard try PawlConfiguration.Address(configuration: text, defaultPort: 0).host == text else { throw Mismatch() }
        return text
    }

    /// The name of an environment variable.
    static func variable(_ text: String) throws(Mismatch) -> String {
        guard text.wholeMatch(of: /[A-Za-z_][A-Za-z0-9_]*/) != nil else { throw Mismatch() }
        return text
    }

    /// The URI of a database. The driver reads it: an error of here would show what may hold a password.
    static func database(_ text: String) throws(Mismatch) -> String {
        guard !text.isEmpty else { throw Mismatch() }
        return text
    }

    /// Whether nothing in `text` is a space or a control character.
    static func isVisible(_ text: String) -> Bool {
        text.unicodeScalars.allSatisfy { !$0.properties.isWhitespace && $0.properties.generalCategory != .control }
    }
}

extension PawlConfiguration {
    /// Parses the name of a network as the configuration does.
    package static func networkName(_ text: String) throws -> String { try TextParsers.word(text) }
}

extension Secret {
    /// Parses a password, which must be usable as a middle parameter of an IRC line.
    init(configuration text: String) throws(Mismatch) {
        guard (1...200).contains(text.utf8.count), !text.hasPrefix(":"), TextParsers.isVisible(text) else {
            throw Mismatch()
        }
        self.init(text)
    }

    /// Parses the first line of a password file. The file must hold nothing else.
    init(configuration line: String, rest text: String) throws(Mismatch) {
        guard text.dropFirst(line.count).allSatisfy(\.isNewline) else { throw Mismatch() }
        try self.init(configuration: line)
    }
}
