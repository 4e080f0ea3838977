// Connected people and their rooms, by the names that operators and reports use.

import IRCGateway
import Protection
import RequestQueue
import Vault

/// Looks up accounts and rooms by name. `init` reads every connection, so create one value for many names.
struct PresentNames {
    /// Accounts by the exact nick.
    private let accounts: [ExactText: AccountID]
    /// Folded names of rooms, by the lowercased name.
    private let rooms: [ExactText: ExactText]
    private let isIRC: Bool

    init(_ gateway: Gateway) {
        isIRC = gateway.json == nil
        let entries = isIRC ? gateway.environment.roster.entries : []
        accounts = Dictionary(entries.map { (ExactText($0.nick), $0.account) }) { first, _ in first }
        let names = isIRC ? Array(gateway.environment.rooms.sizes.keys) : []
        rooms = Dictionary(names.map { (ExactText($0.text.lowercased()), $0) }) { first, _ in first }
    }

    /// Returns the account of a name: a services account, or the nick of a connected person without one.
    func account(_ name: String) -> AccountID {
        // A backend that speaks HTTP defines how its names are written, so they are not folded.
        guard isIRC else { return .services(name) }
        if let account = accounts[ExactText(name)] { return account }
        let exact = AccountID(text: name)
        return exact.isVerified ? .services(name.lowercased()) : exact
    }

    /// Returns the room of a name.
    ///
    /// Only the backend knows the case mapping, but a room with members is found in any letter case.
    func room(_ name: String) -> AccountID {
        guard isIRC else { return .room(name) }
        let lower = ExactText(name.lowercased())
        return .room((rooms[lower] ?? lower).text)
    }
}
