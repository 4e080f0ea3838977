// The state that all exchanges and WebSocket connections of a gateway share.

package import DeviceDirectory
package import HTTPCodec
import JSONCodec
package import NIOCore
package import Protection
package import Reports
import RequestQueue
package import StorePort
import Synchronization

/// The shared state of a JSON gateway. It may be used from any thread.
package final class JSONEnvironment: Sendable {
    /// The settings that a reload replaces. A class, so that each exchange keeps only a reference.
    package final class Settings: Sendable {
        package let mapping: Mapping
        package let texts: NoticeTexts
        /// Maximum size of an answer whose messages are opened, in bytes.
        package let answerLimit: Int
        package let relays: RelayLimits

        package init(mapping: Mapping, texts: NoticeTexts, answerLimit: Int, relays: RelayLimits = RelayLimits()) {
            (self.mapping, self.texts, self.answerLimit, self.relays) = (mapping, texts, answerLimit, relays)
        }
    }

    package let policies: PolicyTable
    package let latches: LatchTable
    package var tally: Tally { writes.tally }
    /// The public keys of people's own devices.
    package let directory: DirectoryCache
    package let devices = ProvenDevices()
    package let relays = RelayTable()
    package let mailSockets = MailSockets()
    package let credentials = CredentialCache()
    package let accounts = KnownAccounts()
    package let conversations = MemberCache()
    package let messages = MessageConversations()
    package let confirmed = ConfirmedConversations()
    package let observations = SharedObservations()
    /// The tables that exchanges share with the queue of writes.
    package let writes: WriteTables
    package let unmatched = UnmatchedRequests()
    /// The notices for devices that are not connected; nil without a push hook.
    package let push: PushNotices?
    let duplicateFilter = DuplicateFilter()
    private let current: Mutex<Settings>
    private let replacements = Atomic<UInt64>(0)
    private let tickets = Atomic<UInt64>(0)

    package init(
        mapping: Mapping, texts: NoticeTexts = NoticeTexts(), policies: PolicyTable, latches: LatchTable = LatchTable(),
        directory: DirectoryCache = DirectoryCache(), writes: WriteTables, answerLimit: Int,
        relays: RelayLimits = RelayLimits(), push: PushNotices? = nil
    ) {
        (self.writes, self.push) = (writes, push)
        current = Mutex(Settings(mapping: mapping, texts: texts, answerLimit: answerLimit, relays: relays))
        self.policies = policies
        self.latches = latches
        self.directory = directory
    }

    /// The present mapping. A reload may replace it.
    package var mapping: Mapping { settings.mapping }
    package var texts: NoticeTexts { settings.texts }
    package var settings: Settings { current.withLock { $0 } }
    /// Changes when a reload replaces ``settings``.
    var settingsVersion: UInt64 { replacements.load(ordering: .acquiring) }

    package func replace(
        _ mapping: Mapping, texts: NoticeTexts, answerLimit: Int, relays: RelayLimits = RelayLimits()
    ) {
        current.withLock {
            $0 = Settings(mapping: mapping, texts: texts, answerLimit: answerLimit, relays: relays)
        }
        replacements.wrappingAdd(1, ordering: .acquiringAndReleasing)
        conversations.forgetAll()
        messages.forgetAll()
        confirmed.forgetAll()
    }

    /// Whether an account is behind this gateway, and its policy takes part.
    package func isBehind(_ account: AccountID, _ policies: PolicySnapshot) -> Bool {
        accounts.contains(account) && policies.policy(of: account).takesPart
    }

    /// Whether anything is protected anywhere.
    ///
    /// If so, content that the gateway cannot inspect is refused: it could be addressed to a protected conversation.
    package var isProtecting: Bool { policies.strictest.demandsProtection || !latches.isEmpty }

    /// Whether the vault may have keys of messages and files at the backend. They are opened under every policy.
    package var holdsKeys: Bool { writes.heldKeys.mayExist }

    /// Whether a device may go on with its relay: its login still stands for it, and its account takes part.
    package func mayRelay(_ call: RelayCall) -> Bool {
        devices.device(of: call.account, by: call.credential, in: directory) == call.own
            && policies.snapshot.policy(of: call.account).takesPart
    }

    /// Notifies a connection when ``isProtecting`` may have become true.
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

    /// A number for a job of the vault. The vault's reply carries it.
    package func nextTicket() -> UInt64 { tickets.wrappingAdd(1, ordering: .relaxed).newValue }
}

/// Counters of messages that a stricter policy would affect, since they were last stored.
package final class SharedObservations: Sendable {
    /// Ours: maximum counters between two stores; further combinations are not counted.
    package static let limit = 50_000

    private struct Key: Hashable {
        package let sender: AccountID
        package let target: ExactText
        package let recipient: ObservedRecipient
    }

    private let counts = Mutex<[Key: Int]>([:])

    init() {}

    package func note(_ target: String, _ recipient: ObservedRecipient, by sender: AccountID, messages: Int = 1) {
        let key = Key(sender: sender, target: ExactText(target), recipient: recipient)
        counts.withLock { counts in
            guard counts.count < Self.limit || counts[key] != nil else { return }
            counts[key, default: 0] += messages
        }
    }

    /// Takes back rows that could not be stored, for the next attempt.
    package func giveBack(_ changes: [StoreChange]) {
        counts.withLock { counts in
            for case .rare(.addObservation(let row)) in changes {
                guard let recipient = ObservedRecipient(rawValue: row.recipient) else { continue }
                let key = Key(
                    sender: AccountID(text: row.sender), target: ExactText(row.target), recipient: recipient)
                guard counts.count < Self.limit || counts[key] != nil else { continue }
                counts[key, default: 0] += row.messages
            }
        }
    }

    /// Returns all counters as rows, and resets them.
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
    /// The lookup of the credential's owner.
    package func question(to source: AccountSource) -> Lookup { Lookup(.account, question(source.target)) }
}

extension AccountSource {
    /// Reads the owner from the backend's answer; unknown if the backend has a temporary failure.
    package func owner(in answer: ResponseHead, _ body: ByteBuffer) -> CredentialCache.Owner {
        switch answer.status {
        case 200..<300:
            guard let document = try? JSONDocument(body), let place = try? document.one(name),
                let text = try? document.identifier(place, name.text)
            else { return .nobody }
            return .account(.services(text))
        case 429, 500...: return .unknown
        case 401: return .rejected
        default: return .nobody
        }
    }
}

extension MessageSource {
    /// The lookup of a message's conversation, with a client's credential.
    package func question(about message: String, by credential: Credential) -> Lookup {
        Lookup(.message, credential.question(Mapping.target(target, "message_id", message)))
    }

    /// Reads the conversation from the backend's answer; nil if the answer is an error or names none.
    package func conversation(in answer: ResponseHead, _ body: ByteBuffer) -> String? {
        conversation.identifier(in: answer, body)
    }
}

extension ConversationSource {
    /// The lookup of a conversation, with a client's credential.
    package func question(about conversation: String, by credential: Credential) -> Lookup {
        Lookup(.conversation, credential.question(Mapping.target(target, "conversation", conversation)))
    }

    /// Reads the id from the backend's answer; nil if the answer is an error or names none.
    package func id(in answer: ResponseHead, _ body: ByteBuffer) -> String? { id.identifier(in: answer, body) }
}

extension JSONPath {
    /// Reads an id from the backend's answer; nil if the answer is an error or has none.
    fileprivate func identifier(in answer: ResponseHead, _ body: ByteBuffer) -> String? {
        guard (200..<300).contains(answer.status), let document = try? JSONDocument(body),
            let place = try? document.one(self)
        else { return nil }
        return try? document.identifier(place, text)
    }
}

extension MembersSource {
    /// Ours: maximum size of an answer with members, in bytes.
    static let answerLimit = 4 << 20

    /// Reads the members from one answer of the backend; nil if the answer is an error or cannot be read.
    package func members(in answer: ResponseHead, _ body: ByteBuffer) -> [AccountID]? {
        guard (200..<300).contains(answer.status), let document = try? JSONDocument(body),
            let places = try? document.places(accounts, limit: MemberCache.memberLimit)
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
