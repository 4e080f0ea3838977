// A chat with one person, and its messages as an app sees them.

import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection

/// A message of a chat, as it was when it was read.
public struct AnyChatMessage: Hashable, Sendable, Identifiable {
    /// How far an own message has come.
    public enum State: Sendable, Hashable {
        /// It waits for the keys of its recipient.
        case waiting
        /// It is sealed and waits for the server.
        case undelivered
        /// The server has it.
        case sent
        /// A device of the recipient has stored it; for a message of the other person, this device.
        case received
        /// The recipient has read it.
        case read
        /// The server has refused it.
        case failed
    }

    /// A reaction of one person.
    public struct Reaction: Hashable, Sendable {
        /// Whether it is the person's own.
        public let isOwn: Bool
        /// Its characters.
        public let text: String
        /// In groups, the member that has reacted; nil for the person, and in private chats.
        public let username: Username?
    }

    /// The id of a message: 32 hexadecimal digits, the same on all devices.
    public let id: String
    /// The id by which the server knows it.
    public let remoteId: String
    /// The other person of the chat; the id of a group for its messages.
    public let chat: Username
    /// The group of the message; nil in private chats.
    public let group: GroupChatId?
    /// The person that has written it; nil for an own message.
    public let sender: Username?
    /// In groups, how far each member has confirmed an own message: `received` or `read`. ``state`` is that of the last.
    public let receipts: [Username: State]
    /// Whether the person has written it, on this device or on another.
    public let isOwn: Bool
    /// The text; empty if it was deleted, and for a file.
    public let text: String
    /// The file that it names; nil for a text, and if it was deleted.
    public var attachment: ChatAttachment? { file.map { ChatAttachment($0) } }
    let file: FileReference?
    /// When it was written, by its sender's clock, in milliseconds since 1970.
    public let sentDate: Int64
    /// How far it has come.
    public let state: State
    /// Whether it was end-to-end encrypted. If not, the server and all networks could read and change it.
    public let isEncrypted: Bool
    /// Whether the safety number had been compared when it was stored.
    public let isVerified: Bool
    /// Whether its author has changed the text.
    public let isEdited: Bool
    /// Whether its author or its timer has deleted the text.
    public let isDeleted: Bool
    /// Reactions, at most one of each person.
    public let reactions: [Reaction]
    /// How long the text stays, in seconds; nil for good.
    public let destructionTimer: Int64?
    /// The place in the chat, on this device.
    public let order: UInt64

    init(_ message: ChatMessage) {
        (id, remoteId) = (message.reference.text, message.reference.message.name)
        group = message.chat.group.map { GroupChatId($0) }
        (chat, isOwn) = (Username(group?.raw ?? message.chat.name), message.isOwn)
        file = message.isFile ? try? FileReference(message.text) : nil
        text = message.isFile ? "" : message.text
        sender = message.isOwn ? nil : Username((message.author ?? message.chat).name)
        sentDate = message.writtenAt
        state = State(message.state)
        receipts = Dictionary(
            message.receipts.map { (Username($0.key.name), State($0.value)) }, uniquingKeysWith: { first, _ in first })
        (isEncrypted, isVerified) = (message.protection == .device, message.isVerified)
        (isEdited, isDeleted) = (message.isEdited, message.isDeleted)
        reactions = message.reactions.map { reaction in
            Reaction(
                isOwn: reaction.isOwn, text: reaction.characters, username: reaction.author.map { Username($0.name) })
        }
        (destructionTimer, order) = (message.timer, message.sequence)
    }
}

extension AnyChatMessage.State {
    init(_ state: DeliveryState) {
        self =
            switch state {
            case .waiting: .waiting
            case .queued: .undelivered
            case .sent: .sent
            case .received: .received
            case .read: .read
            case .failed: .failed
            }
    }
}

/// A chat in a list.
public struct PrivateChatSummary: Hashable, Sendable {
    /// The other person.
    public let username: Username
    /// Messages of the other person that were not read.
    public let unread: Int
    /// The place of the last message.
    public let lastOrder: UInt64

    init(_ summary: ChatSummary) {
        (username, unread, lastOrder) = (Username(summary.chat.name), summary.unread, summary.last)
    }
}

/// The chat with one person.
public struct PrivateChat: Sendable {
    let messenger: CypherMessenger
    /// The other person.
    public let username: Username

    // MARK: Messages

    /// Sends a text. It is stored when this returns, and sent as soon as the server can be reached.
    ///
    /// - Throws: ``CypherMessengerError``: `keysMissing` if the person cannot read encrypted messages yet and the
    ///   transport does not allow an unprotected one.
    @discardableResult
    public func sendText(_ text: String) async throws -> AnyChatMessage {
        var job = SendJob(to: username.raw, text: text)
        if let transport = messenger.transport as? any PlaintextTransportClient {
            if transport.allowsPlaintext(to: username) {
                job.fallback = .plaintext
            } else if transport.refusesToWait(for: username) {
                job.fallback = .refuse
            }
        }
        return try await send(job)
    }

    /// Replaces the text of an own message, here and at the other person's.
    @discardableResult
    public func edit(_ message: AnyChatMessage, to text: String) async throws -> AnyChatMessage {
        try await send(SendJob(to: username.raw, .edit(try reference(message)), text: text))
    }

    /// Deletes the text of an own message, here and at the other person's.
    @discardableResult
    public func delete(_ message: AnyChatMessage) async throws -> AnyChatMessage {
        let deleted = try await send(SendJob(to: username.raw, .delete(try reference(message))))
        messenger.removeBlobs(message.file?.parts ?? [])
        return deleted
    }

    /// Reacts to a message, with at most 64 bytes of text; nil takes the reaction back.
    @discardableResult
    public func react(to message: AnyChatMessage, with text: String?) async throws -> AnyChatMessage {
        try await send(SendJob(to: username.raw, .react(try reference(message), with: text)))
    }

    private func reference(_ message: AnyChatMessage) throws -> MessageReference {
        guard message.group == nil, message.chat == username, let reference = MessageReference(message.id) else {
            throw CypherMessengerError.unknownMessage
        }
        return reference
    }

    func send(_ job: SendJob) async throws -> AnyChatMessage {
        let reply = try await messenger.perform({ .send(ticket: $0, job) })
        guard case .accepted(let message) = reply else {
            throw CypherMessengerError.unknownMessage
        }
        return AnyChatMessage(message)
    }

    /// The last messages before a place, in their order.
    ///
    /// - Parameters:
    ///   - order: of a message; nil for the end of the chat.
    ///   - limit: at most 200.
    public func messages(before order: UInt64? = nil, limit: Int = 50) async throws -> [AnyChatMessage] {
        let reply = try await messenger.perform {
            .history(ticket: $0, .person(username.raw), before: order, limit: limit)
        }
        guard case .history(let messages) = reply else { return [] }
        return messages.map { AnyChatMessage($0) }
    }

    /// The last messages, now and after each change.
    public func messageList(last limit: Int = 50) -> AsyncStream<[AnyChatMessage]> {
        messenger.signals.list(.chat(username)) { [weak messenger, username] in
            guard let messenger else { throw MessengerClosed() }
            return try await PrivateChat(messenger: messenger, username: username).messages(limit: limit)
        }
    }

    /// Marks all messages as read, and confirms that to the other person.
    public func markAsRead() async throws {
        _ = try await messenger.perform { .markRead(ticket: $0, .person(username.raw)) }
    }

    /// New texts of the person are deleted on both sides after a time, which begins on each side when it stores them.
    ///
    /// - Parameter seconds: nil for texts that stay.
    public func setDestructionTimer(_ seconds: Int64?) async throws {
        let seconds = seconds.map { min(max($0, 1), 999_999_999) }
        _ = try await messenger.perform { .setTimer(ticket: $0, .person(username.raw), seconds) }
    }

    // MARK: Keys

    /// The safety number that the person shares with the other one: 60 digits; nil before keys were exchanged.
    ///
    /// Compare it aloud, then call ``verify()``.
    public func safetyNumber() -> String? { number?.digits }

    /// The code of the safety number, 65 bytes, to be shown as a QR code; nil before keys were exchanged.
    public func safetyCode() -> [UInt8]? { number?.scannable }

    private var number: SafetyNumber? {
        guard let peer = messenger.peers[.services(username.raw)], let own = messenger.peers.own else { return nil }
        return own.deviceList.safetyNumber(with: peer.deviceList)
    }

    /// Whether the person has compared the safety number.
    public var isVerified: Bool { messenger.peers[.services(username.raw)]?.isVerified ?? false }

    /// Whether the other person shows other keys, which have to be accepted.
    public var hasChangedKeys: Bool { messenger.peers[.services(username.raw)]?.offered != nil }

    /// Whether the other person shows two versions of their device list, of which one has to be chosen; see
    /// ``CypherMessengerEventHandler/onDeviceListFork(of:)``.
    public var hasForkedDevices: Bool { messenger.peers[.services(username.raw)]?.isForked ?? false }

    /// The devices in the list that ``acceptKeys()`` would accept; none if no other list is shown.
    public var offeredDevices: [DeviceId] {
        (messenger.peers[.services(username.raw)]?.offered?.current ?? []).map { DeviceId($0.id) }
    }

    /// The other person's devices, as the list that counts has them; none before keys were exchanged.
    public var devices: [DeviceId] {
        (messenger.peers[.services(username.raw)]?.deviceList.current ?? []).map { DeviceId($0.id) }
    }

    /// Adds the device under this name to the person's own devices. For transports with keys in band, such as IRC, on
    /// which each device has a name of its own.
    ///
    /// Compare the safety number on both devices first. The other device calls ``joinDevices()`` before.
    ///
    /// - Throws: ``CypherMessengerError/noSuchDevice`` if the list is full, or the other device has others already.
    public func adoptDevice() async throws {
        _ = try await messenger.perform { .decide(ticket: $0, username.raw, .adopt) }
    }

    /// Lets the device under this name, which is the person's own, add this one to its list; see ``adoptDevice()``.
    public func joinDevices() async throws {
        _ = try await messenger.perform { .decide(ticket: $0, username.raw, .join) }
    }

    /// Notes that the safety number was compared and is the same on both sides.
    public func verify() async throws {
        _ = try await messenger.perform { .decide(ticket: $0, username.raw, .verify) }
    }

    /// Trusts the new keys of the other person. The safety number has to be compared again.
    public func acceptKeys() async throws {
        _ = try await messenger.perform { .decide(ticket: $0, username.raw, .accept) }
    }

    /// Keeps the known device list of the other person, who shows other keys or a fork of the list, and ignores those. Other
    /// keys that are still published are offered again. Changes nothing if they show none.
    public func keepKeys() async throws {
        _ = try await messenger.perform { .decide(ticket: $0, username.raw, .keep) }
    }
}
