/// Who is a service or a bot: a nick mask together with the mask of the server or of the host it must come from.
///
/// A nick alone is never enough: anybody can take one.
package struct ServicePattern: Sendable, Hashable {
    /// What besides the nick must match.
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

    /// Names a pattern.
    package init(nick: String, origin: Origin) {
        self.nick = nick
        self.origin = origin
    }

    /// Reads `NICKMASK server=MASK` or `NICKMASK host=MASK`.
    init(configuration text: String) throws(Mismatch) {
        let words = text.split(whereSeparator: \.isWhitespace)
        guard let nick = words.first else { throw Mismatch("which names nobody") }
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
            throw Mismatch("whose second part matches everybody")
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
