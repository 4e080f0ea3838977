// The machine of a connection's identity: its nick, its accounts, its client's software, and how the server compares
// names.

import Envelope
import IRCCodec
import NIOCore
import Protection
import RequestQueue

/// The identity of one connection with the backend.
struct ConnectionIdentity {
    /// What follows from a login or a logout.
    struct AccountChange: Equatable {
        /// The earlier account, if it had a login: its unsent requests must not be sent under another one.
        var left: AccountID?
        /// An earlier account without a login whose messages are no longer expected.
        var forgotten: AccountID?
    }

    /// Ours: earlier accounts whose envelopes may still arrive; repeated logins and logouts must not fill memory.
    static let earlierAccounts = 4

    let id: ConnectionID
    private(set) var nick: String?
    private(set) var account: AccountID
    /// Earlier accounts of this connection, the oldest first. Envelopes for them may still arrive.
    private var previous: [AccountID] = []
    private var logouts = 0
    /// Whether the server's welcome has ended, so that a case mapping that it has not named is that of the RFC.
    private var isWelcomed = false
    /// A login whose account depends on the server's case mapping, which is not known (yet); nil if there is none.
    private var undecided: String?
    /// What the server has announced in RPL_ISUPPORT, and its expected case mapping before that.
    private(set) var support = ServerSupport()
    /// The longest source of this connection in a line of the backend, in bytes.
    private var sourceLength = 0
    /// The client's software, from its reply to CTCP VERSION or from other lines that name it; empty if unknown.
    private(set) var software = ""
    /// Whether the software is from a reply to CTCP VERSION.
    private var hasAnsweredVersion = false

    /// - Parameters:
    ///   - account: the account before a login.
    ///   - caseMapping: how the server is expected to compare names, until it announces that.
    init(id: ConnectionID, account: AccountID, caseMapping: CaseMapping = .rfc1459) {
        (self.id, self.account) = (id, account)
        support.caseMapping = caseMapping
    }

    // MARK: Names

    var foldedNick: String { nick.map(support.caseMapping.fold) ?? "" }

    /// Whether a folded name is this connection's own nick.
    func isOwn(_ name: String) -> Bool { nick.map { support.caseMapping.fold($0) == name } ?? false }

    /// Whether the source of a line is this connection's own nick.
    func isSelf(_ line: IRCLine) -> Bool {
        let source = line.sourceNick
        guard let nick, source.count == nick.utf8.count else { return false }
        let mapping = support.caseMapping
        return line.bytes.withUnsafeReadableBytes { raw in
            zip(raw[source.range], nick.utf8).allSatisfy { mapping.fold($0) == mapping.fold($1) }
        }
    }

    /// The room of a target, folded, with the status that its readers must have; nil if the target is a person.
    func room(_ target: String) -> (name: String, status: String)? {
        let bytes = target.utf8
        guard let first = bytes.first, support.isRoom(first, then: bytes.dropFirst().first) else { return nil }
        let name = bytes.firstIndex(where: support.channelTypes.contains) ?? target.endIndex
        return (support.caseMapping.fold(String(target[name...])), String(target[..<name]))
    }

    /// The number of bytes for the text of a line that the backend relays.
    func lineCapacity(verb: String, target: String) -> Int {
        support.lineCapacity(verb: verb, target: target, nick: nick, sourceLength: sourceLength)
    }

    /// The backend uses this nick for the connection from now on.
    mutating func renamed(to nick: String) { self.nick = nick }

    /// The backend has sent a line of this connection, with a source of so many bytes.
    mutating func sawSource(length: Int) { sourceLength = max(sourceLength, length) }

    /// Updates what the server announces from RPL_ISUPPORT, or at the end of its welcome (376 or 422).
    ///
    /// - Returns: whether names are compared in another way from now on.
    mutating func absorb(_ line: IRCLine) -> Bool {
        let before = support.caseMapping
        if line.key.numeric == 5 {
            support.absorb(line)
        } else {
            isWelcomed = true
            support.caseMapping = accountMapping
        }
        return support.caseMapping != before
    }

    // MARK: Accounts

    /// The mapping of account names. It does not depend on what is expected, because devices are stored under them.
    private var accountMapping: CaseMapping {
        support.namesCaseMapping || support.hasUnknownCaseMapping ? support.caseMapping : .rfc1459
    }

    /// All accounts whose envelopes this connection can open, the current one first.
    var accounts: [AccountID] { [account] + previous.reversed() }

    /// The backend has logged the connection in.
    ///
    /// A login by SASL comes before the server names its case mapping. If the mappings disagree about the name, the account
    /// would be that of another person on some servers, so that the login counts as soon as the mapping is known. It never
    /// does on a server whose mapping this program does not know: the connection has an account of its own there.
    ///
    /// - Parameter isRegistered: whether messages can have been sent to the earlier account.
    /// - Returns: nil if the account is the same, or not known yet; see ``takeUndecided()``.
    mutating func loggedIn(_ name: String, isRegistered: Bool) -> AccountChange? {
        guard decides(name) else {
            let change = loggedOut(isRegistered: isRegistered)
            undecided = name
            return change
        }
        undecided = nil
        return change(to: .services(accountMapping.fold(name)), isRegistered)
    }

    /// Whether the account of a name is known.
    private func decides(_ name: String) -> Bool {
        support.namesCaseMapping || isWelcomed && !support.hasUnknownCaseMapping || CaseMapping.areAgreed(about: name)
    }

    /// Whether the backend has logged the connection in, also if its account is not known.
    var isLoggedIn: Bool { account.isVerified || undecided != nil }

    /// Whether a name is that of the connection's login.
    func isLogin(_ name: String) -> Bool {
        if let undecided { return ExactText(undecided) == ExactText(name) }
        return account.isVerified && account == .services(accountMapping.fold(name))
    }

    /// Removes and returns the name of a login that waited for the server's case mapping; nil if there is none, or the
    /// mapping is still not known.
    mutating func takeUndecided() -> String? {
        guard let name = undecided, decides(name) else { return nil }
        undecided = nil
        return name
    }

    /// The backend has logged the connection out. It gets a new account without a name, which inherits nothing.
    ///
    /// - Returns: nil if the connection was not logged in.
    mutating func loggedOut(isRegistered: Bool) -> AccountChange? {
        undecided = nil
        guard account.isVerified else { return nil }
        logouts += 1
        return change(to: .connection(id.value, logouts: logouts), isRegistered)
    }

    private mutating func change(to new: AccountID, _ isRegistered: Bool) -> AccountChange? {
        guard new != account else { return nil }
        var change = AccountChange(left: account.isVerified ? account : nil)
        if isRegistered {
            previous.append(account)
            if previous.count > Self.earlierAccounts {
                let oldest = previous.removeFirst()
                if !oldest.isVerified { change.forgotten = oldest }
            }
        }
        account = new
        return change
    }

    // MARK: Software

    /// Stores the client's software from a reply to CTCP VERSION.
    ///
    /// - Returns: whether the text is the first such reply.
    mutating func learnSoftware(_ text: some Collection<UInt8>) -> Bool {
        guard !hasAnsweredVersion, CTCP(text) == .other("VERSION"), text.count > 9 else { return false }
        software = Self.printable(text.dropFirst(9).prefix { $0 != 0x01 })
        hasAnsweredVersion = true
        return true
    }

    /// Beginnings of the names that clients register with, and of the reasons with which they quit, by default.
    private static let signatures = [
        "AdiIRC", "Colloquy", "IRCCloud", "KVIrc ", "Konversation ", "Limnoria ", "Palaver", "Quassel ", "Textual IRC",
        "The Lounge", "WeeChat ", "ZNC ", "https://quassel-irc.org",
    ]

    /// Stores the client's software from a line in which it names itself: USER, QUIT, or a PING to measure lag.
    ///
    /// - Returns: whether it was unknown before.
    mutating func guessSoftware(_ line: IRCLine) -> Bool {
        guard software.isEmpty else { return false }
        switch line.key {
        case .ping:
            // XChat, which HexChat continues, has the same.
            guard let token = line.text(0), token.hasPrefix("LAG"), token.count > 3,
                token.dropFirst(3).allSatisfy(\.isNumber)
            else { return false }
            software = "HexChat"
        case .user, .quit:
            guard let text = line.text(line.key == .user ? 3 : 0),
                Self.signatures.contains(where: text.hasPrefix)
            else { return false }
            software = Self.printable(text.utf8)
        default: return false
        }
        return true
    }

    private static func printable(_ text: some Sequence<UInt8>) -> String {
        String(decoding: text.prefix(64).map { (0x20...0x7E).contains($0) ? $0 : 0x3F }, as: UTF8.self)
    }
}
