// What all exchanges and WebSocket connections of a gateway share.

package import DeviceDirectory
package import HTTPCodec
import JSONCodec
package import NIOCore
package import Protection
package import Reports
import RequestQueue
package import StorePort
import Synchronization

/// The surroundings of a JSON backend's sessions. Everything in it may be used from any thread.
package final class JSONEnvironment: Sendable {
    /// What a reload replaces. One object for all, because every exchange has one at hand and looks at little of it.
    package final class Settings: Sendable {
        package let mapping: Mapping
        package let texts: RemarkTexts
        /// Bytes of an answer whose messages are opened.
        package let answerLimit: Int

        package init(mapping: Mapping, texts: RemarkTexts, answerLimit: Int) {
            (self.mapping, self.texts, self.answerLimit) = (mapping, texts, answerLimit)
        }
    }

    /// Bytes of an answer whose messages are opened, where the configuration does not say. Some first synchronisations of
    /// Matrix accounts with many rooms are longer than 16 MiB.
    package static let answerLimit = 64 << 20

    package let policies: PolicyTable
    package let latches: LatchTable
    package let tally: Tally
    /// The public keys of people's own devices.
    package let directory: DirectoryTable
    package let devices = DeviceBook()
    package let credentials = CredentialBook()
    package let accounts = AccountBook()
    package let conversations = ConversationBook()
    package let observations = SharedObservations()
    package let waitingWrites = WaitingWrites()
    package let writeKeys: WriteKeys
    package let sockets = SocketBook()
    package let unmatched = UnmatchedRequests()
    let firstSights = FirstSights()
    private let current: Mutex<Settings>
    private let tickets = Atomic<UInt64>(0)

    package init(
        mapping: Mapping, texts: RemarkTexts = RemarkTexts(), policies: PolicyTable, latches: LatchTable = LatchTable(),
        tally: Tally = Tally(), directory: DirectoryTable = DirectoryTable(), writeKeys: WriteKeys,
        answerLimit: Int = answerLimit
    ) {
        self.writeKeys = writeKeys
        current = Mutex(Settings(mapping: mapping, texts: texts, answerLimit: answerLimit))
        self.policies = policies
        self.latches = latches
        self.tally = tally
        self.directory = directory
    }

    /// The mapping now; a reload may replace it.
    package var mapping: Mapping { settings.mapping }
    package var texts: RemarkTexts { settings.texts }
    package var settings: Settings { current.withLock { $0 } }

    package func replace(_ mapping: Mapping, texts: RemarkTexts, answerLimit: Int = answerLimit) {
        current.withLock { $0 = Settings(mapping: mapping, texts: texts, answerLimit: answerLimit) }
        conversations.forgetAll()
    }

    /// Whether an account is behind this gateway and takes part.
    package func isBehind(_ account: AccountID, _ policies: PolicySnapshot) -> Bool {
        accounts.contains(account) && policies.policy(of: account).takesPart
    }

    /// Whether anything is protected anywhere. Then nobody may say what cannot be looked into, because it might be for there.
    package var isProtecting: Bool { policies.strictest.demandsProtection || !latches.isEmpty }

    /// Tells a connection when ``isProtecting`` may have become true.
    ///
    /// - Parameter listener: called on any thread.
    package func watchProtection(_ connection: ConnectionID, _ listener: @escaping @Sendable () -> Void) {
        policies.listeners.add(connection, listener)
        latches.listeners.add(connection, listener)
    }

    package func unwatchProtection(_ connection: ConnectionID) {
        policies.listeners.remove(connection)
        latches.listeners.remove(connection)
    }

    /// A number for a job of the vault, which its answer bears.
    package func nextTicket() -> UInt64 { tickets.wrappingAdd(1, ordering: .relaxed).newValue }
}

/// Who would be affected by a stricter policy, since it was last written down.
package final class SharedObservations: Sendable {
    /// Ours: conversations and senders kept between two times of writing down; more are counted nowhere.
    package static let limit = 50_000

    private struct Key: Hashable {
        package let sender: AccountID
        package let target: ExactText
        package let recipient: ObservedRecipient
    }

    private let counts = Mutex<[Key: Int]>([:])

    init() {}

    package func note(_ target: String, _ recipient: ObservedRecipient, by sender: AccountID) {
        let key = Key(sender: sender, target: ExactText(target), recipient: recipient)
        counts.withLock { counts in
            guard counts.count < Self.limit || counts[key] != nil else { return }
            counts[key, default: 0] += 1
        }
    }

    /// Rows could not be stored: they are handed out again.
    package func giveBack(_ changes: [StoreChange]) {
        counts.withLock { counts in
            for case .addObservation(let row) in changes {
                guard let recipient = ObservedRecipient(rawValue: row.recipient) else { continue }
                let key = Key(
                    sender: AccountID(text: row.sender), target: ExactText(row.target), recipient: recipient)
                guard counts.count < Self.limit || counts[key] != nil else { continue }
                counts[key, default: 0] += row.messages
            }
        }
    }

    /// What was noted, as rows, and begins anew.
    package func take(wall: Int64) -> [StoreChange] {
        let noted = counts.withLock { counts in
            defer { counts.removeAll() }
            return counts
        }
        return noted.map { key, count in
            .addObservation(
                ObservationRow(
                    sender: key.sender.name, target: key.target.text, recipient: key.recipient.rawValue,
                    messages: count,
                    lastSeen: wall))
        }
    }
}

extension Credential {
    /// Asks whose it is.
    package func question(to source: AccountSource) -> Lookup { Lookup(.account, question(source.target)) }
}

extension AccountSource {
    /// Whose it is, as the backend answers; unknown where it cannot say now.
    package func owner(in answer: ResponseHead, _ body: ByteBuffer) -> CredentialBook.Owner {
        switch answer.status {
        case 200..<300:
            guard let document = try? JSONDocument(body), let place = try? document.one(name),
                let text = try? document.identifier(place, name.text)
            else { return .nobody }
            return .account(.services(text))
        case 429, 500...: return .unknown
        default: return .nobody
        }
    }
}

extension MembersSource {
    /// Ours: bytes of an answer about members.
    private static let answerLimit = 4 << 20

    /// Asks who is in a conversation, in a client's name.
    package func question(of conversation: String, by credential: Credential) -> Lookup {
        let target = Mapping.target(target, conversation: conversation)
        return Lookup(.members, credential.question(target), limit: Self.answerLimit)
    }

    /// The members that the backend names in its answer; nothing where it names none, or cannot be read.
    package func members(in answer: ResponseHead, _ body: ByteBuffer) -> [AccountID]? {
        guard (200..<300).contains(answer.status), let document = try? JSONDocument(body),
            let places = try? document.places(accounts, limit: ConversationBook.memberLimit)
        else { return nil }
        var members: [AccountID] = []
        for place in places {
            let text = areNames ? try? document.name(place) : try? document.identifier(place, accounts.text)
            guard let text, FoundMessage.isUsable(text) else { return nil }
            members.append(.services(text))
        }
        return members
    }
}
