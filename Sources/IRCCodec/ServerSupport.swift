// The tokens of 005 (RPL_ISUPPORT) that the gateway needs.

/// The ISUPPORT values of a server, with the defaults of RFC 1459 for missing tokens.
package struct ServerSupport: Equatable, Sendable {
    package var caseMapping = CaseMapping.rfc1459
    /// Whether the server has named its case mapping, and it is known.
    package private(set) var namesCaseMapping = false
    /// Whether the server has named a case mapping that is not known. ``caseMapping`` is then ASCII, which folds fewest
    /// names together.
    package private(set) var hasUnknownCaseMapping = false
    /// The first characters of room names.
    package var channelTypes = Array("#&+!".utf8)
    /// Prefixes of a room's name that address only members with that status.
    package var statusPrefixes: [UInt8] = []
    /// Maximum length of a nick, in bytes. RFC 1459 allows 9, every current server more, so the default is a safe one.
    package var nickLength = 30
    package var network: String?

    package init() {}

    /// Reads the tokens of one 005 line.
    package mutating func absorb(_ line: IRCLine) {
        let parameters = line.parameters
        guard parameters.count > 2 else { return }
        for span in parameters[1..<(parameters.count - 1)] {
            let token = line.string(span)
            let pieces = token.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let value = pieces.count > 1 ? String(pieces[1]) : ""
            switch pieces[0].uppercased() {
            case "CASEMAPPING":
                let named = CaseMapping(announced: value)
                caseMapping = named ?? .ascii
                (namesCaseMapping, hasUnknownCaseMapping) = (named != nil, named == nil)
            case "CHANTYPES": channelTypes = Array(value.utf8)
            case "STATUSMSG": statusPrefixes = Array(value.utf8)
            case "NICKLEN", "MAXNICKLEN":
                if let length = Int(value), (1...256).contains(length) { nickLength = max(length, 9) }
            case "NETWORK": network = value
            default: continue
            }
        }
    }

    /// The number of bytes for the text of a relayed line: `:nick!user@host VERB target :text CR LF` in 512 bytes.
    ///
    /// Nicks may change while a message waits, so the longest possible nicks count.
    ///
    /// - Parameters:
    ///   - nick: the own nick; nil before the server has sent it.
    ///   - sourceLength: the longest own source that the server has sent, in bytes.
    package func lineCapacity(verb: String, target: String, nick: String?, sourceLength: Int) -> Int {
        let nickLength = max(nick?.utf8.count ?? 0, self.nickLength)
        // RFC 2812 and current servers: a user name of at most 20 bytes, a host of at most 64.
        let source = max(nickLength + 1 + 20 + 1 + 64, sourceLength)
        let targetLength = max(target.utf8.count, self.nickLength)
        return IRCLimits.lineLength - 2 - (1 + source + 1) - (verb.utf8.count + 1) - (targetLength + 2)
    }

    /// Whether a target is a room, with or without a status prefix.
    package func isRoom(_ first: UInt8, then second: UInt8?) -> Bool {
        if channelTypes.contains(first) { return true }
        guard statusPrefixes.contains(first), let second else { return false }
        return channelTypes.contains(second) || statusPrefixes.contains(second)
    }
}
