/// Matches a service or a bot by a nick mask and a mask of its server or host.
///
/// A nick alone is never enough, because anyone can take it.
package struct ServicePattern: Sendable, Hashable {
    /// The second condition, besides the nick.
    package enum Origin: Sendable, Hashable {
        /// The server that introduced the nick.
        case server(String)
        /// The host of the nick.
        case host(String)
    }

    /// A mask with `*` and `?`.
    package var nick: String
    /// The second condition.
    package var origin: Origin

    /// Creates a pattern.
    package init(nick: String, origin: Origin) {
        self.nick = nick
        self.origin = origin
    }

    /// Parses `NICKMASK server=MASK` or `NICKMASK host=MASK`.
    init(configuration text: String) throws(Mismatch) {
        let words = text.split(whereSeparator: \.isWhitespace)
        guard let nick = words.first else { throw Mismatch("which is blank") }
        guard !nick.contains("="), !nick.contains("!"), !nick.contains("@") else {
            throw Mismatch("which does not begin with a nick mask")
        }
        guard words.count > 1 else { throw Mismatch("which is a nick alone, and anybody can take a nick") }
        guard words.count == 2 else { throw Mismatch("which has more than two parts") }
        let parts = words[1].split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, !parts[1].isEmpty else {
            throw Mismatch(
                "whose second part is not `server=` "
                    + "or `host=`")
        }
        guard parts[1].contains(where: { $0 != "*" && $0 != "?" }) else {
            throw Mismatch("whose second part matches every server or host")
        }
        switch parts[0] {
        case "server": self.init(nick: String(nick), origin: .server(String(parts[1])))
        case "host": self.init(nick: String(nick), origin: .host(String(parts[1])))
        default: throw Mismatch("whose second part is not `server=` or `host=`")
        }
    }
}

extension ServicePattern: CustomStringConvertible {
    package var description: String {
        switch self.origin {
        case .server(let mask): "\(self.nick) server=\(mask)"
        case .host(let mask): "\(self.nick) host=\(mask)"
        }
    }
}
