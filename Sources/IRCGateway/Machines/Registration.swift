// The client's registration, login, modes and AWAY, kept in memory to repeat them after an outage of the backend.

package import IRCCodec
package import NIOCore
package import RequestQueue

/// The registration of one connection. It contains passwords: never stored, never logged.
package struct Registration {
    /// The client's SASL login.
    enum Login {
        case none
        /// The lines after `AUTHENTICATE PLAIN`.
        case plain([ByteBuffer])
        /// A mechanism whose proof cannot be repeated.
        case unrepeatable
    }

    /// Ours: a login with this many lines is not repeated. A PLAIN message has two short names and a password; one line
    /// carries 400 bytes.
    private static let loginLines = 8
    /// Ours: maximum number of stored keys of rooms.
    private static let keyLimit = 256

    /// PASS as the client wrote it.
    package private(set) var password: ByteBuffer?
    /// USER as the client wrote it.
    package private(set) var user: ByteBuffer?
    private(set) var login = Login.none
    /// Keys of rooms, by folded name.
    package private(set) var keys: [ExactText: String] = [:]
    /// AWAY as the client wrote it, while it is away.
    package private(set) var away: ByteBuffer?
    /// The user modes that the client has requested, and whether they are set or unset.
    private var modes: [Character: Bool] = [:]
    /// Whether the client or an operator of the backend ends the connection, so that its loss is no outage.
    private(set) var isEnding = false
    private var mechanism: String?
    private var attempt: [ByteBuffer] = []

    /// Notes a line of the client.
    ///
    /// - Parameter nick: the client's own, folded.
    package mutating func note(_ line: IRCLine, _ raw: ByteBuffer, nick: String?, _ fold: (String) -> String) {
        switch line.key {
        case .pass: password = raw
        case .user: user = raw
        case .authenticate: noteAuthenticate(line, raw)
        case .join: noteKeys(line, fold)
        case .away: away = line.parameter(0).map(\.isEmpty) == false ? raw : nil
        case .mode: if let target = line.text(0), fold(target) == nick { noteModes(line.text(1) ?? "") }
        case .quit: isEnding = true
        default: break
        }
    }

    private mutating func noteModes(_ changes: String) {
        var isSet = true
        for letter in changes {
            switch letter {
            case "+": isSet = true
            case "-": isSet = false
            // These are set by OPER, AWAY and the server, not by a MODE of the client.
            case "a", "o", "O", "r": break
            default: if letter.isASCII, letter.isLetter { modes[letter] = isSet }
            }
        }
    }

    /// The lines of a login that can be repeated; nil if there is none.
    var repeatableLogin: [ByteBuffer]? {
        switch login {
        case .plain(let lines): lines
        case .none, .unrepeatable: nil
        }
    }

    /// The modes as the parameter of MODE; nil if none was requested.
    var wantedModes: String? {
        guard !modes.isEmpty else { return nil }
        func letters(_ isSet: Bool) -> String { String(modes.filter { $0.value == isSet }.keys.sorted()) }
        let (set, unset) = (letters(true), letters(false))
        return (set.isEmpty ? "" : "+" + set) + (unset.isEmpty ? "" : "-" + unset)
    }

    private mutating func noteAuthenticate(_ line: IRCLine, _ raw: ByteBuffer) {
        guard mechanism != nil else {
            mechanism = (line.text(0) ?? "").uppercased()
            attempt = []
            return
        }
        if attempt.count < Self.loginLines { attempt.append(raw) }
    }

    private mutating func noteKeys(_ line: IRCLine, _ fold: (String) -> String) {
        let names = (line.text(0) ?? "").split(separator: ",")
        for (name, key) in zip(names, (line.text(1) ?? "").split(separator: ",")) where keys.count < Self.keyLimit {
            keys[fold(String(name))] = String(key)
        }
    }

    /// An operator of the backend has ended the connection.
    mutating func killed() { isEnding = true }

    /// The backend has accepted (903) or refused the attempt.
    package mutating func ended(accepted: Bool) {
        if accepted {
            let isWhole = attempt.count < Self.loginLines
            login = mechanism == "PLAIN" && isWhole ? .plain(attempt) : .unrepeatable
        }
        mechanism = nil
        attempt = []
    }
}
