// The accounts of nicks, as far as the backend sends them on this connection.

import IRCCodec
import Protection
import RequestQueue

/// The accounts by folded nick.
struct NickAccounts {
    /// Ours: maximum number of nicks. A larger table is emptied and filled again.
    package static let limit = 20_000

    private var accounts: [ExactText: String] = [:]

    /// The folded account of a folded nick; nil if it is not known to be logged in.
    package func account(of nick: String) -> String? { accounts[nick] }

    /// Updates the accounts from a line of the backend.
    ///
    /// - Parameter tagsAccounts: whether lines of logged-in people have the account tag. A line without it is then from
    ///   a person who is not logged in.
    mutating func learn(_ line: IRCLine, tagsAccounts: Bool, _ support: ServerSupport) {
        guard line.sourceIsPerson else { return }
        let fold: (String) -> String = { support.caseMapping.fold($0) }
        let nick = line.folded(line.sourceNick, support.caseMapping)
        if tagsAccounts { note(nick, line.tags.isEmpty ? nil : line.tag("account"), fold) }
        switch line.key {
        case .join: if let account = line.text(1) { note(nick, account == "*" ? nil : account, fold) }
        case .account: note(nick, line.text(0) == "*" ? nil : line.text(0), fold)
        case .nick:
            let account = accounts.removeValue(forKey: nick)
            if let new = line.text(0) { note(fold(new), account, fold) }
        case .quit: accounts[nick] = nil
        default: break
        }
    }

    /// Stores the account of a folded nick from a directory.
    package mutating func note(_ nick: String, account: AccountID) {
        if account.isVerified { note(nick, account.name) { $0 } }
    }

    private mutating func note(_ nick: String, _ account: String?, _ fold: (String) -> String) {
        if accounts.count >= Self.limit { accounts.removeAll() }
        accounts[nick] = account.map(fold)
    }
}
