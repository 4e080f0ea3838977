// The people and rooms that are here now, by the names that operators and reports use.

import IRCGateway
import Protection
import RequestQueue
import Vault

/// Looks up names. Made once for many of them: making it looks at every connection.
struct PresentNames {
    /// By nick as written.
    private let accounts: [ExactText: AccountID]
    /// Folded names, by the name in small letters.
    private let rooms: [ExactText: ExactText]
    private let isIRC: Bool

    init(_ gateway: Gateway) {
        isIRC = gateway.json == nil
        let entries = isIRC ? gateway.environment.roster.entries : []
        accounts = Dictionary(entries.map { (ExactText($0.nick), $0.account) }) { first, _ in first }
        let names = isIRC ? Array(gateway.environment.rooms.sizes.keys) : []
        rooms = Dictionary(names.map { (ExactText($0.text.lowercased()), $0) }) { first, _ in first }
    }

    /// The account that a name means: a services account, or the nick of somebody who is here without one.
    func account(_ name: String) -> AccountID {
        // A backend that speaks HTTP says itself how its names are written.
        guard isIRC else { return .services(name) }
        if let account = accounts[ExactText(name)] { return account }
        let exact = AccountID(text: name)
        return exact.isVerified ? .services(name.lowercased()) : exact
    }

    /// The room that a name means. Only the backend knows how names fold; a room that somebody is in is found in any case.
    func room(_ name: String) -> AccountID {
        guard isIRC else { return .room(name) }
        let lower = ExactText(name.lowercased())
        return .room((rooms[lower] ?? lower).text)
    }
}
