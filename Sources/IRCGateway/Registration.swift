// What a client has said to be let in, and of itself, kept in memory so that it can be said again to a backend that comes
// back.

package import IRCCodec
package import NIOCore
package import RequestQueue

/// The registration of one connection. It holds passwords; it is never stored and never printed.
package struct Registration {
    /// How the client has logged in by SASL.
    enum Login {
        case none
        /// The lines after `AUTHENTICATE PLAIN`.
        case plain([ByteBuffer])
        /// A mechanism whose proof cannot be given twice.
        case unrepeatable
    }

    /// Ours: a PLAIN message has two short names and a password; 400 bytes go into one line.
    private static let loginLines = 8
    /// Ours: keys of rooms that are remembered.
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
    /// The modes of its own that the client has asked for, and whether they are to be set.
    private var modes: [Character: Bool] = [:]
    private(set) var isQuitting = false
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
        case .quit: isQuitting = true
        default: break
        }
    }

    private mutating func noteModes(_ changes: String) {
        var isSet = true
        for letter in changes {
            switch letter {
            case "+": isSet = true
            case "-": isSet = false
            // Given by OPER, AWAY and the server, and not by asking for them.
            case "a", "o", "O", "r": break
            default: if letter.isASCII, letter.isLetter { modes[letter] = isSet }
            }
        }
    }

    /// The modes as MODE takes them; nothing where none was asked for.
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
