// Connected people and their rooms on IRC, by the names that operators and reports use.

import IRCGateway
import Protection
import RequestQueue

/// Looks up IRC accounts and rooms. `init` reads every connection, so create one value for many names.
struct ConnectedNames: NameResolver {
    /// Accounts by the exact nick.
    private let accounts: [ExactText: AccountID]
    /// Folded names of rooms, by the lowercased name.
    private let rooms: [ExactText: ExactText]

    init(_ environment: IRCEnvironment) {
        accounts = Dictionary(environment.roster.entries.map { (ExactText($0.nick), $0.account) }) { first, _ in first }
        rooms = Dictionary(environment.rooms.sizes.keys.map { (ExactText($0.text.lowercased()), $0) }) { first, _ in
            first
        }
    }

    func account(_ name: String) -> AccountID {
        if let account = accounts[ExactText(name)] { return account }
        let exact = AccountID(text: name)
        return exact.isVerified ? .services(name.lowercased()) : exact
    }

    /// Only the backend knows the case mapping, but a room with members is found in any letter case.
    func room(_ name: String) -> AccountID {
        let lower = ExactText(name.lowercased())
        return .room((rooms[lower] ?? lower).text)
    }
}

/// The names of a JSON backend, which defines how they are written.
struct ExactNames: NameResolver {
    func account(_ name: String) -> AccountID { .services(name) }
    func room(_ name: String) -> AccountID { .room(name) }
}
