// A chat of several people: its members, and its messages as an app sees them. Versions of a group are published as blobs
// of the transport, sealed; only members have the key.

import Envelope
import Foundation
import Messenger
import Protection
import Synchronization

/// The id of a group: 32 hexadecimal digits, a digest of its first version.
public struct GroupChatId: Hashable, Comparable, Sendable, Codable, CustomStringConvertible {
    /// The digits.
    public let raw: String

    init(_ id: GroupID) { raw = id.text }

    var id: GroupID? { GroupID(raw) }

    /// Reads 32 lowercase hexadecimal digits; nil for any other text.
    public init?(_ raw: String) {
        guard GroupID(raw) != nil else { return nil }
        self.raw = raw
    }
    /// The coded form is the digits as a text.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let id = GroupChatId(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not the id of a group")
        }
        self = id
    }
    /// The coded form is the digits as a text.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(raw)
    }
    /// The digits.
    public var description: String { raw }
    /// Ordered as texts.
    public static func < (left: GroupChatId, right: GroupChatId) -> Bool { left.raw < right.raw }
}

/// A group in a list, as it was when it was read.
public struct GroupChatSummary: Hashable, Sendable {
    /// What a member may do.
    public enum Role: Sendable, Hashable {
        /// Writes, and leaves.
        case member
        /// Also renames the group, and adds and removes members.
        case moderator
        /// The person that made the group: also removes and appoints moderators.
        case owner
    }

    /// The group.
    public let id: GroupChatId
    /// Its name, at most 128 bytes.
    public let name: String
    /// The app's own data, at most 1,024 bytes.
    public let metadata: [UInt8]
    /// The members with their roles, at most 32.
    public let members: [Username: Role]
    /// Whether the person is a member. If not, the history stays and no more can be sent.
    public let isMember: Bool
    /// How many versions the group has had, at most 200.
    public let version: Int
    /// Messages of other members that were not read.
    public let unread: Int
    /// The place of the last message; 0 for none.
    public let lastOrder: UInt64

    init(_ group: GroupState, _ chat: ChatSummary?, own: Username) {
        let content = group.content
        (id, name, metadata) = (GroupChatId(group.id), content.name, content.metadata)
        let roles = content.members.map { member in
            let role: Role =
                switch member.role {
                case .member: .member
                case .moderator: .moderator
                case .owner: .owner
                }
            return (Username(member.account.name), role)
        }
        members = Dictionary(roles, uniquingKeysWith: { first, _ in first })
        (isMember, version) = (members[own] != nil, group.chain.versions.count)
        (unread, lastOrder) = (chat?.unread ?? 0, chat?.last ?? 0)
    }
}

/// A version of a group, as the transport's blob calls carry it: bytes that only members can open.
struct PublishedGroup: Codable, Sendable {
    var data: Data
}

/// Reads of published versions that are under way.
final class GroupReads: Sendable {
    private struct Read {
        var task: Task<Void, Never>?
    }

    private let reads = Mutex<[GroupReference: Read]>([:])

    /// Starts a read, unless it is under way.
    ///
    /// - Parameters:
    ///   - body: returns whether the server has answered.
    ///   - afterwards: called if it has, when another read may start.
    func start(
        _ reference: GroupReference, _ body: @escaping @Sendable () async -> Bool,
        afterwards: @escaping @Sendable () async -> Void
    ) {
        let isFirst = reads.withLock { reads in
            guard reads[reference] == nil else { return false }
            reads[reference] = Read()
            return true
        }
        guard isFirst else { return }
        let task = Task { [weak self] in
            let isAnswered = await body()
            self?.reads.withLock { _ = $0.removeValue(forKey: reference) }
            if isAnswered { await afterwards() }
        }
        reads.withLock { $0[reference]?.task = task }
    }

    /// Ends a read. It starts again if the version is still wanted.
    func stop(_ reference: GroupReference) { reads.withLock { $0[reference]?.task }?.cancel() }

    func close() {
        for task in reads.withLock({ $0.values.compactMap(\.task) }) { task.cancel() }
    }
}

extension CypherMessenger {
    // MARK: Groups

    /// Makes a group of the person, who owns it, and others. It needs the transport's blob calls, except over IRC, where
    /// members hand versions over to each other.
    ///
    /// Members get messages when their keys are known; until then messages wait for them.
    ///
    /// - Parameters:
    ///   - members: at most 31 others.
    ///   - name: at most 128 bytes.
    ///   - metadata: the app's own data, at most 1,024 bytes; members can read it, the server cannot.
    /// - Throws: ``CypherMessengerError``: `unsupportedCall` with the name of the call that the transport does not have,
    ///   `notAllowed` before this device is adopted, `groupLimit`, `serverFull`, or `serverFailed`. Then there is no group.
    public func createGroupChat(
        with members: Set<Username>, name: String = "", metadata: [UInt8] = []
    ) async throws -> GroupChat {
        let change = GroupChange.create(name: name, metadata: metadata, members: members.map(\.raw).sorted())
        return GroupChat(messenger: self, id: GroupChatId(try await self.change(change, of: nil).id))
    }

    /// The chat of a group; nil if this device does not know the group.
    public func groupChat(_ id: GroupChatId) async throws -> GroupChat? {
        let isKnown = try await groupStates().contains { GroupChatId($0.id) == id }
        return isKnown ? GroupChat(messenger: self, id: id) : nil
    }

    /// All groups that this device knows, the one with the last message first.
    public func listGroupChats() async throws -> [GroupChatSummary] {
        guard case .chats(let chats) = try await perform({ .chats(ticket: $0) }) else { return [] }
        return try await groupStates().map { group in
            GroupChatSummary(group, chats.first { $0.chat == group.id.chat }, own: username)
        }
        .sorted { ($1.lastOrder, $0.id) < ($0.lastOrder, $1.id) }
    }

    /// ``listGroupChats()`` now and after each change.
    public func groupChatList() -> AsyncStream<[GroupChatSummary]> {
        signals.list(.groups) { [weak self] in
            guard let self else { throw MessengerClosed() }
            return try await self.listGroupChats()
        }
    }

    /// Reads the versions of groups that messages have named, such as groups that the person was added to. This happens
    /// by itself; the call tells why it does not succeed.
    ///
    /// - Throws: ``CypherMessengerError``: `unsupportedCall` with the name of the call that the transport does not have,
    ///   or `serverFailed`.
    public func joinGroupChats() async throws {
        for reference in try await engine.read(\.wantedGroups) {
            guard !handsGroupsOver else {
                try await ask(for: reference, lifetime: Self.askPause)
                continue
            }
            var failures = 0
            do {
                try await read(reference, &failures)
            } catch let error as CypherTransportError {
                throw CypherMessengerError(error)
            }
        }
    }

    private func groupStates() async throws -> [GroupState] {
        guard case .groups(let groups) = try await perform({ .groups(ticket: $0) }) else { return [] }
        return groups
    }

    /// Ours: how often a change is made again on a version that another member has made meanwhile.
    private static let changeAttempts = 5

    /// Publishes a new version, and then lets it count.
    @discardableResult
    func change(_ change: GroupChange, of base: GroupID?) async throws -> GroupState {
        do {
            return try await makeVersion(change, of: base)
        } catch let error as CypherTransportError {
            throw CypherMessengerError(error)
        }
    }

    /// As ``change(_:of:)``, with the errors of the transport as they are.
    private func makeVersion(_ change: GroupChange, of base: GroupID?) async throws -> GroupState {
        for _ in 0..<Self.changeAttempts {
            let reply = try await perform { .proposeGroup(ticket: $0, change, of: base) }
            guard case .proposal(let proposal) = reply else { break }
            let id = try await publish(proposal)
            do {
                let reply = try await perform { .publishedGroup(ticket: $0, proposal, blob: id) }
                if case .group(let group) = reply { return group }
            } catch CypherMessengerError.groupChanged {
                continue
            }
        }
        throw CypherMessengerError.groupChanged
    }

    /// Ours: how often a version after a removal is made again where the server refuses it, in some six minutes.
    static let confirmAttempts = 20

    /// Makes one more version of groups after a device was removed, in the background, one group after the other.
    ///
    /// Groups for which it fails are tried again, later each time: until the server can be reached and the store can be
    /// written, and at most ``confirmAttempts`` times where the server refuses it.
    ///
    /// - Parameter isNow: whether it was removed just now.
    func confirmGroups(isNow: Bool) async {
        let groups = (try? await engine.read { $0.unconfirmedGroups(isNow: isNow) }) ?? []
        guard !groups.isEmpty else { return }
        Task { [weak self] in
            var (left, pause) = (groups, Duration.milliseconds(100))
            var refusals: [GroupID: Int] = [:]
            while true {
                var again: [GroupID] = []
                for group in left {
                    guard let confirmation = await self?.confirm(group) else { return }
                    if confirmation == .refused { refusals[group, default: 0] += 1 }
                    guard confirmation != .ended, refusals[group, default: 0] < Self.confirmAttempts else { continue }
                    again.append(group)
                }
                guard !again.isEmpty else { return }
                left = again
                try? await Task.sleep(for: pause)
                pause = min(pause * 2, .seconds(30))
            }
        }
    }

    private enum Confirmation {
        /// The version was made, or cannot be made at all.
        case ended
        /// The server does not take it.
        case refused
        /// The server cannot be reached or has no room, or the store cannot be written.
        case failed
    }

    private func confirm(_ group: GroupID) async -> Confirmation {
        do {
            _ = try await makeVersion(.confirm, of: group)
            return .ended
        } catch let error as CypherTransportError {
            return switch error {
            case .unsupported: .ended
            case .refused, .conflict, .notFound: .refused
            case .offline, .full: .failed
            }
        } catch let error as CypherMessengerError {
            return switch error {
            case .storage: .failed
            case .groupChanged: .refused
            default: .ended
            }
        } catch is MessengerClosed {
            return .ended
        } catch {
            return .failed
        }
    }

    /// Publishes a version, unless members hand it over.
    ///
    /// - Returns: the id of its blob.
    private func publish(_ proposal: GroupProposal) async throws -> String {
        guard !handsGroupsOver else { return GroupReference.blob(at: deviceId.id) }
        return try await transport.publishBlob(PublishedGroup(data: Data(proposal.blob))).id
    }

    /// Reads a version until the server has answered, or the member that has named it.
    func want(_ reference: GroupReference) {
        guard !handsGroupsOver else { return wantFromMember(reference) }
        groupReads.start(
            reference,
            { [weak self] in
                var pause = Duration.milliseconds(100)
                var failures = 0
                while !Task.isCancelled {
                    guard let isAnswered = await self?.isAnswered(reference, &failures) else { return false }
                    if isAnswered { return true }
                    try? await Task.sleep(for: pause)
                    pause = min(pause * 2, .seconds(30))
                }
                return false
            },
            afterwards: { [weak self] in
                // Another message may have named it again after it was given up.
                guard let self else { return }
                let isWanted = try? await self.engine.read { $0.wantedGroups.contains(reference) }
                if isWanted == true { self.want(reference) }
            })
    }

    /// Whether the server has answered a read of a version; nil if asking again is of no use.
    private func isAnswered(_ reference: GroupReference, _ failures: inout Int) async -> Bool? {
        do {
            try await read(reference, &failures)
            return true
        } catch CypherTransportError.unsupported(let call) {
            await reportUnavailable(reference, .unsupportedCall(call))
            return nil
        } catch is MessengerClosed {
            return nil
        } catch {
            return false
        }
    }

    /// Ours: how often the keys for a version of a group that is not known are read in vain, in some six minutes. Anybody can
    /// name such a version, signed by an account whose keys no server gives.
    static let keyAttempts = 20

    /// Reads a version once.
    ///
    /// - Parameter failures: how often the server has given the version, and not the keys for it.
    func read(_ reference: GroupReference, _ failures: inout Int) async throws {
        var bytes: [UInt8]?
        do {
            let blob = try await transport.readPublishedBlob(byId: reference.blob, as: PublishedGroup.self)
            bytes = blob.map { Array($0.blob.data) }
        } catch CypherTransportError.notFound {
            bytes = nil
        } catch is DecodingError {
            bytes = nil
        }
        let reply = try await perform { .readGroup(ticket: $0, reference, bytes, hasKeys: false) }
        guard case .keysNeeded(let users) = reply else { return }
        for user in users {
            do {
                try await readKeys(of: user, begins: false)
            } catch is MessengerRefusal {
                // Without authentic keys the version is refused below.
            } catch let error as CypherTransportError {
                failures += 1
                let isKnown = try await engine.read { $0.groups.contains { $0.id == reference.group } }
                guard failures > Self.keyAttempts, !isKnown else { throw error }
            }
        }
        _ = try await perform { .readGroup(ticket: $0, reference, bytes, hasKeys: true) }
    }
}

extension CypherMessengerError {
    init(_ error: CypherTransportError) {
        self =
            switch error {
            case .unsupported(let call): .unsupportedCall(call)
            case .full(let words): .serverFull(words)
            default: .serverFailed("\(error)")
            }
    }
}

/// The chat of a group.
public struct GroupChat: Sendable {
    let messenger: CypherMessenger
    /// The group.
    public let id: GroupChatId

    var name: ChatName {
        get throws {
            guard let id = id.id else { throw CypherMessengerError.unknownGroup }
            return .group(id)
        }
    }

    // MARK: Members

    /// The group with its name and members, as this device knows it now.
    public func info() async throws -> GroupChatSummary {
        guard let info = try await messenger.listGroupChats().first(where: { $0.id == id }) else {
            throw CypherMessengerError.unknownGroup
        }
        return info
    }

    /// Adds people. They read nothing that was written before. Only the owner and moderators can.
    ///
    /// - Throws: ``CypherMessengerError``, as all calls that change a group: `unsupportedCall`, `serverFull`,
    ///   `serverFailed`, `notAllowed`, `groupLimit`, `groupChanged` if others change the group all the time.
    public func addMembers(_ members: Set<Username>) async throws {
        try await change(.add(members.map(\.raw).sorted()))
    }

    /// Removes people. They cannot read what is written from now on. Only the owner removes moderators.
    public func removeMembers(_ members: Set<Username>) async throws {
        try await change(.remove(members.map(\.raw).sorted()))
    }

    /// Leaves the group. The history stays.
    public func leave() async throws { try await change(.remove([messenger.username.raw])) }

    /// Renames the group. Only the owner and moderators can.
    public func rename(_ name: String) async throws { try await change(.rename(name)) }

    /// Replaces the app's own data. Only the owner and moderators can.
    public func setMetadata(_ metadata: [UInt8]) async throws { try await change(.metadata(metadata)) }

    /// Makes a member a moderator, or no longer one. Only the owner can.
    public func setModerator(_ member: Username, _ isModerator: Bool) async throws {
        try await change(.moderator(member.raw, isModerator))
    }

    private func change(_ change: GroupChange) async throws {
        guard let id = id.id else { throw CypherMessengerError.unknownGroup }
        try await messenger.change(change, of: id)
    }

    // MARK: Messages

    /// Sends a text to all members. It is stored when this returns, and sent as soon as the server can be reached.
    ///
    /// It waits for members whose keys are missing or have changed; the others get it at once.
    @discardableResult
    public func sendText(_ text: String) async throws -> AnyChatMessage {
        try await send(SendJob(in: try name, text: text))
    }

    /// Replaces the text of an own message, here and at the members.
    @discardableResult
    public func edit(_ message: AnyChatMessage, to text: String) async throws -> AnyChatMessage {
        try await send(SendJob(in: try name, .edit(try reference(message)), text: text))
    }

    /// Deletes the text of an own message, here and at the members.
    @discardableResult
    public func delete(_ message: AnyChatMessage) async throws -> AnyChatMessage {
        let deleted = try await send(SendJob(in: try name, .delete(try reference(message))))
        messenger.removeBlobs(message.file?.parts ?? [])
        return deleted
    }

    /// Reacts to a message, with at most 64 bytes of text; nil takes the reaction back.
    @discardableResult
    public func react(to message: AnyChatMessage, with text: String?) async throws -> AnyChatMessage {
        try await send(SendJob(in: try name, .react(try reference(message), with: text)))
    }

    private func reference(_ message: AnyChatMessage) throws -> MessageReference {
        guard message.group == id, let reference = MessageReference(message.id) else {
            throw CypherMessengerError.unknownMessage
        }
        return reference
    }

    func send(_ job: SendJob) async throws -> AnyChatMessage {
        guard case .accepted(let message) = try await messenger.perform({ .send(ticket: $0, job) }) else {
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
        let name = try name
        let reply = try await messenger.perform { .history(ticket: $0, name, before: order, limit: limit) }
        guard case .history(let messages) = reply else { return [] }
        return messages.map { AnyChatMessage($0) }
    }

    /// The last messages, now and after each change.
    public func messageList(last limit: Int = 50) -> AsyncStream<[AnyChatMessage]> {
        messenger.signals.list(.group(id)) { [weak messenger, id] in
            guard let messenger else { throw MessengerClosed() }
            return try await GroupChat(messenger: messenger, id: id).messages(limit: limit)
        }
    }

    /// Marks all messages as read, and confirms that to those who have written them.
    public func markAsRead() async throws {
        let name = try name
        _ = try await messenger.perform { .markRead(ticket: $0, name) }
    }

    /// New texts of the person are deleted by all members after a time, which begins on each device when it stores them.
    ///
    /// - Parameter seconds: nil for texts that stay.
    public func setDestructionTimer(_ seconds: Int64?) async throws {
        let (name, seconds) = (try name, seconds.map { min(max($0, 1), 999_999_999) })
        _ = try await messenger.perform { .setTimer(ticket: $0, name, seconds) }
    }
}
