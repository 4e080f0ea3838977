// A person's messenger: registration, chats, devices, and the traffic between the server's transport and the machine.

import Crypto
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Foundation
import Messenger
import Protection
import SQLiteStore
import StoreBase
import StorePort
import Synchronization

/// What a transport is made for; it may sign a proof with the device's identity key.
public struct TransportCreationRequest: Sendable {
    /// The person.
    public let username: Username
    /// The device.
    public let deviceId: DeviceId
    /// How the person logs in.
    public let authenticationMethod: AuthenticationMethod
    /// The public part of the device's identity key: Ed25519, 32 bytes.
    public let identity: [UInt8]
    private let sign: @Sendable (_ message: [UInt8], _ context: String) -> [UInt8]

    package init(
        username: Username, deviceId: DeviceId, authenticationMethod: AuthenticationMethod, identity: [UInt8],
        sign: @escaping @Sendable (_ message: [UInt8], _ context: String) -> [UInt8]
    ) {
        (self.username, self.deviceId) = (username, deviceId)
        (self.authenticationMethod, self.identity, self.sign) = (authenticationMethod, identity, sign)
    }

    /// The signature of a server's challenge: Ed25519 over the challenge in the context `pawl app login`. 64 bytes.
    public func signature(for challenge: [UInt8]) -> [UInt8] {
        sign(challenge, "pawl app login")
    }

    /// A signature of the device's identity key in another context.
    package func signature(of message: [UInt8], context: String) -> [UInt8] { sign(message, context) }
}

/// Why the messenger did not do something.
public enum CypherMessengerError: Error, Sendable, Hashable {
    /// The history could not be written or read; nothing has changed.
    case storage(String)
    /// The text has more than 60,000 bytes, or a file more than 100 MiB; or its name or type is none or too long.
    case tooLong
    /// The other person has no keys, and an unprotected message is not allowed.
    case keysMissing
    /// The message is not in the chat, was deleted, or is not the person's own.
    case unknownMessage
    /// Only the master device of an account adds and removes devices.
    case notMaster
    /// The request of a device, or a published list, is not authentic.
    case notAuthentic
    /// The device is not in the list, or there are too many.
    case noSuchDevice
    /// Nothing is known of this person.
    case unknownUser
    /// The server could not be asked whether the account exists. Register again later.
    case registrationIncomplete(String)
    /// A file of this device cannot be read or written.
    case fileFailed(String)
    /// The transport does not have this call, and groups and files need it.
    case unsupportedCall(String)
    /// The server did not do what has to be done at once. Try again later.
    case serverFailed(String)
    /// The server has no room for the file or the version of a group. Ask its operator, or remove files.
    case serverFull(String)
    /// This device does not know the group, or the person is no member.
    case unknownGroup
    /// The person's role in the group does not allow it, it changes nothing, or this device is not adopted.
    case notAllowed
    /// Too many members, changes or groups, or a name that is too long.
    case groupLimit
    /// Other members have changed the group again and again meanwhile.
    case groupChanged

    init(_ refusal: MessengerRefusal) {
        switch refusal {
        case .notCommitted: self = .storage("The history could not be written; nothing has changed.")
        case .tooLong: self = .tooLong
        case .keysMissing: self = .keysMissing
        case .unknownMessage: self = .unknownMessage
        case .notMaster: self = .notMaster
        case .notAuthentic: self = .notAuthentic
        case .noSuchDevice: self = .noSuchDevice
        case .unknownUser: self = .unknownUser
        case .unknownGroup: self = .unknownGroup
        case .notAllowed: self = .notAllowed
        case .groupLimit: self = .groupLimit
        case .groupChanged: self = .groupChanged
        }
    }
}

/// What the app is told. All methods have defaults that do nothing; they are called one after the other.
public protocol CypherMessengerEventHandler: P2PEventHandler {
    /// A message was stored, the person's own included.
    func onCreateChatMessage(_ message: AnyChatMessage) async
    /// The text, the state or the reactions of a message have changed, or it was deleted.
    func onMessageChange(_ message: AnyChatMessage) async
    /// A device asks to be added to the account. Compare its id on both screens, then call
    /// ``CypherMessenger/addDevice(_:)``.
    func onDeviceRegisteryRequest(_ config: UserDeviceConfig, messenger: CypherMessenger) async
    /// The person's own devices have changed.
    func onDevicesChange(_ messenger: CypherMessenger) async
    /// Keys were exchanged with a person for the first time.
    func onKeysExchanged(with username: Username) async
    /// A person shows other keys than before. Messages to them wait until ``PrivateChat/acceptKeys()`` or
    /// ``PrivateChat/keepKeys()`` is called.
    func onContactIdentityChange(of username: Username) async
    /// A person shows another version of their device list than the known one, and neither continues the other: one of
    /// their devices may be stolen. The safety number is the same for both. Messages to them wait until
    /// ``PrivateChat/acceptKeys()`` or ``PrivateChat/keepKeys()`` is called; ``PrivateChat/offeredDevices`` are those of
    /// the other version. The own name stands for the person's own list, of which the known version stays.
    func onDeviceListFork(of username: Username) async
    /// An envelope under a person's name could not be opened.
    func onUnreadableMessage(from username: Username, reason: String) async
    /// Messages of a person were lost on the way. The server may report it, and the next message that comes again.
    func onMessageLoss(from username: Username, count: Int) async
    /// An unprotected text under the name of a person with a protected chat was not shown.
    func onWithheldMessage(from username: Username) async
    /// The person was added to a group, or its name, members or roles have changed.
    func onGroupChange(_ group: GroupChatSummary) async
    /// A version of a group cannot be read, or was refused. Messages under it are not shown.
    func onGroupChatUnavailable(_ group: GroupChatId, reason: String) async
    /// Earlier messages have come from the account's master device, because this device was added. They are no new
    /// messages: ``onCreateChatMessage(_:)`` is not called for them.
    func onHistoryChange(isComplete: Bool, messenger: CypherMessenger) async
}

extension CypherMessengerEventHandler {
    /// Does nothing.
    public func onCreateChatMessage(_ message: AnyChatMessage) async {}
    /// Does nothing.
    public func onMessageChange(_ message: AnyChatMessage) async {}
    /// Does nothing: the device is not added.
    public func onDeviceRegisteryRequest(_ config: UserDeviceConfig, messenger: CypherMessenger) async {}
    /// Does nothing.
    public func onDevicesChange(_ messenger: CypherMessenger) async {}
    /// Does nothing.
    public func onKeysExchanged(with username: Username) async {}
    /// Does nothing.
    public func onContactIdentityChange(of username: Username) async {}
    /// Calls ``CypherMessengerEventHandler/onContactIdentityChange(of:)``.
    public func onDeviceListFork(of username: Username) async { await onContactIdentityChange(of: username) }
    /// Does nothing.
    public func onUnreadableMessage(from username: Username, reason: String) async {}
    /// Does nothing.
    public func onMessageLoss(from username: Username, count: Int) async {}
    /// Does nothing.
    public func onWithheldMessage(from username: Username) async {}
    /// Does nothing.
    public func onGroupChange(_ group: GroupChatSummary) async {}
    /// Does nothing.
    public func onGroupChatUnavailable(_ group: GroupChatId, reason: String) async {}
    /// Does nothing.
    public func onHistoryChange(isComplete: Bool, messenger: CypherMessenger) async {}
}

/// A person's messenger on one device.
///
/// Messages are accepted when they are stored: the ratchet step, the history and the request to the server are one
/// transaction. What waits is sent after a restart, in the same bytes.
public final class CypherMessenger: CypherTransportClientDelegate {
    /// The person.
    public let username: Username
    /// This device.
    public let deviceId: DeviceId
    /// The app's connection to its server.
    public let transport: any CypherServerTransportClient

    let engine: MessengerEngine
    let peers: PeerCache
    let p2p: P2PConnections
    let signals = ChangeSignals()
    let groupReads = GroupReads()
    let handedOver = Mutex(HandedOverGroups())
    private let handler: any CypherMessengerEventHandler
    private let events: AsyncStream<MessengerEvent>.Continuation
    private let tasks = Mutex<[Task<Void, Never>]>([])
    private let reading = Mutex<[String: Reading]>([:])
    private let nextReplenishment = Mutex(ContinuousClock.now)
    /// What takes the signals of each kind.
    private let signalHandlers = Mutex<[String: @Sendable (ReceivedSignal) async -> Void]>([:])
    private let signalParts = Mutex(SignalParts())
    let callRouter: CallRouter

    /// A read of published keys that is under way.
    private struct Reading {
        var task: Task<Void, Never>?
        /// Whether the keys are needed again after it.
        var isWanted = false
    }

    private init(
        username: Username, deviceId: DeviceId, transport: any CypherServerTransportClient, engine: MessengerEngine,
        peers: PeerCache, p2p: P2PConnections, handler: any CypherMessengerEventHandler
    ) {
        (self.username, self.deviceId, self.transport) = (username, deviceId, transport)
        (self.engine, self.peers, self.p2p, self.handler) = (engine, peers, p2p, handler)
        callRouter = CallRouter(own: username)
        let (stream, events) = AsyncStream.makeStream(of: MessengerEvent.self)
        self.events = events
        let task = Task { [weak self] in
            for await event in stream { await self?.handle(event) }
        }
        tasks.withLock { $0.append(task) }
    }

    // MARK: Registration

    /// Opens the messenger of a person: registers the account, or this device with an account that exists.
    ///
    /// A new device of an account waits until the master device has added it; see ``isAdopted()``. Messages that are
    /// written before wait as well.
    ///
    /// - Parameters:
    ///   - username: the account.
    ///   - authenticationMethod: given to the transport.
    ///   - appPassword: protects the history on this device.
    ///   - makeTransport: makes the connection to the server.
    ///   - p2pFactories: ways of direct connections with other devices, the preferred one first. Without any, requests of
    ///     other devices are dropped.
    ///   - p2pSettings: how direct connections are used.
    ///   - database: the place of keys and history.
    ///   - eventHandler: is told what happens. It is kept as long as the messenger.
    /// - Throws: ``CypherMessengerError/registrationIncomplete(_:)`` if the server did not answer whether the account
    ///   exists: only ``CypherTransportError/notFound`` means that it is new.
    public static func registerMessenger(
        username: Username, authenticationMethod: AuthenticationMethod, appPassword: String,
        usingTransport makeTransport:
            @Sendable (TransportCreationRequest) async throws
            -> any CypherServerTransportClient,
        p2pFactories: [any P2PTransportClientFactory] = [], p2pSettings: P2PSettings = P2PSettings(),
        database: MessengerDatabase, eventHandler: any CypherMessengerEventHandler
    ) async throws -> CypherMessenger {
        let peers = PeerCache()
        let engine: MessengerEngine
        do {
            engine = try await onThread { () throws(StoreError) in
                let (store, key) = try database.open(appPassword)
                let sealer = key.withBytes { StorageSealer(key: $0) }
                return try MessengerEngine { carrier throws(StoreError) in
                    var changes: [StoreChange] = []
                    let participants = try MessengerParticipants(
                        account: username.raw, carrier: carrier, sealer: sealer, store: store, peers: peers,
                        now: SystemTime.now(), random: SystemRandomSource(), &changes)
                    guard !changes.isEmpty else { return participants }
                    if let failure = try store.commit([changes]).compactMap(\.self).first { throw failure }
                    return participants
                }
            }
        } catch {
            throw CypherMessengerError.storage(error.message)
        }
        if database.isRestored {
            do {
                _ = try await engine.perform { .restored(ticket: $0) }
            } catch {
                engine.close()
                throw (error as? MessengerRefusal).map { CypherMessengerError($0) } ?? error
            }
        }
        let identity = try await engine.read { DeviceIdentity($0.own.device) }
        let device = identity.deviceId
        let transport = try await makeTransport(
            TransportCreationRequest(
                username: username, deviceId: device, authenticationMethod: authenticationMethod,
                identity: identity.publicKey, sign: { identity.sign($0, $1) }))
        if let transport = transport as? any IntroducingTransportClient { engine.use(transport.carrier) }
        let p2p = P2PConnections(
            p2pFactories, settings: p2pSettings, handler: eventHandler, peers: peers, own: username,
            identity: identity)
        let messenger = CypherMessenger(
            username: username, deviceId: device, transport: transport, engine: engine, peers: peers, p2p: p2p,
            handler: eventHandler)
        do {
            try await messenger.start()
        } catch {
            messenger.close()
            throw error
        }
        return messenger
    }

    /// Runs what blocks on a thread of its own.
    private static func onThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        let result = await withCheckedContinuation { continuation in
            Thread { continuation.resume(returning: Result { () throws(StoreError) in try body() }) }.start()
        }
        return try result.get()
    }

    private func start() async throws {
        transport.delegate = self
        p2p.start(self)
        if handsGroupsOver { startHandingOver() }
        let events = events
        engine.start(
            onEvent: { events.yield($0) },
            onAttempt: { [weak self] attempt in
                guard let self else { return }
                Task { await self.make(attempt) }
            })
        if transport.authenticated != .authenticated { try? await transport.reconnect() }
        authenticationChanged(to: transport.authenticated)
        try await register()
        for message in try await engine.read(\.waitingUsers) { want(keysOf: message) }
        for reference in try await engine.read(\.wantedGroups) { want(reference) }
        await confirmGroups(isNow: false)
        watch()
    }

    /// Publishes the keys of a new account, refreshes those of the master device, or asks to be added.
    private func register() async throws {
        let isKnown = try await engine.read { $0.isRegistered }
        guard !isKnown else {
            _ = try? await engine.perform { .found(ticket: $0) }
            want(keysOf: username.raw)
            return
        }
        do {
            let config = try await transport.readKeyBundle(forUsername: username)
            _ = try await engine.perform { .join(ticket: $0, config.bytes) }
            want(keysOf: username.raw)
        } catch CypherTransportError.notFound {
            _ = try await engine.perform { .found(ticket: $0) }
        } catch let refusal as MessengerRefusal {
            throw CypherMessengerError(refusal)
        } catch {
            throw CypherMessengerError.registrationIncomplete("\(error)")
        }
    }

    /// Ours: how often the state of the transport is looked at, for transports that do not report its changes.
    private static let watchInterval: Duration = .seconds(1)

    private func watch() {
        let task = Task { [weak self] in
            while !Task.isCancelled {
                try? await Task.sleep(for: Self.watchInterval)
                guard let self else { return }
                self.authenticationChanged(to: self.transport.authenticated)
            }
        }
        tasks.withLock { $0.append(task) }
    }

    /// Closes the messenger and its store. What waits is sent when the messenger is opened again.
    public func close() {
        end()
        engine.waitUntilClosed()
    }

    private func end() {
        for task in tasks.withLock({ $0 }) + reading.withLock({ $0.values.compactMap(\.task) }) { task.cancel() }
        events.finish()
        signals.close()
        groupReads.close()
        p2p.close()
        callRouter.close()
        engine.close()
    }

    // The last reference may be released on the engine's queue, so nothing is waited for.
    deinit { end() }

    // MARK: Chats

    /// The chat with a person, whether there are messages in it or not.
    public func createPrivateChat(with username: Username) -> PrivateChat {
        PrivateChat(messenger: self, username: username)
    }

    /// All chats with messages, the last one first.
    public func listPrivateChats() async throws -> [PrivateChatSummary] {
        guard case .chats(let chats) = try await perform({ .chats(ticket: $0) }) else { return [] }
        return chats.filter { $0.chat.group == nil }.map { PrivateChatSummary($0) }
    }

    /// ``listPrivateChats()`` now and after each change.
    public func privateChatList() -> AsyncStream<[PrivateChatSummary]> {
        signals.list(.chats) { [weak self] in
            guard let self else { throw MessengerClosed() }
            return try await self.listPrivateChats()
        }
    }

    // MARK: Devices

    /// A device of the account.
    public struct Device: Hashable, Sendable {
        /// Its id.
        public let deviceId: DeviceId
        /// Whether it may add and remove devices.
        public let isMasterDevice: Bool
        /// Whether it is this device.
        public let isOwn: Bool
    }

    /// Whether this device is in the account's list.
    public func isAdopted() async -> Bool { (try? await engine.read(\.isAdopted)) ?? false }

    /// Whether earlier messages of the account are still to come from its master device, after this device was added.
    public func awaitsHistory() async -> Bool { (try? await engine.read(\.awaitsHistory)) ?? false }

    /// The devices of the account.
    public func listDevices() async -> [Device] {
        guard let (list, own) = try? await engine.read({ ($0.own.deviceList, $0.own.id) }) else { return [] }
        return list.current.map { listed in
            Device(
                deviceId: DeviceId(listed.id), isMasterDevice: listed.identity == list.root,
                isOwn: listed.id == own)
        }
    }

    /// ``listDevices()`` now and after each change.
    public func deviceList() -> AsyncStream<[Device]> {
        signals.list(.devices) { [weak self] in
            guard let self else { throw MessengerClosed() }
            return await self.listDevices()
        }
    }

    /// Adds a device that has asked for it. Only the master device can.
    public func addDevice(_ config: UserDeviceConfig) async throws {
        _ = try await perform { .adopt(ticket: $0, config.bytes) }
    }

    /// Removes a lost device from the account. Only the master device can.
    ///
    /// Groups of the person get one more version in the background: what the device has changed in them counts from then on
    /// if this device knows it, and nothing else. If it was stolen, look at their members.
    public func revokeDevice(_ device: DeviceId) async throws {
        _ = try await perform { .revoke(ticket: $0, device.id) }
        await confirmGroups(isNow: true)
    }

    // MARK: Push

    /// Sets the token under which the platform's push service knows this device; nil removes it.
    ///
    /// While the device is not connected, the server calls the operator's push hook with this token when a message waits,
    /// and the hook wakes the app, which opens the messenger: it fetches what waits. The call of the hook has neither text,
    /// sender, size nor number of messages. Call this at each start, because push services change tokens, and a server that
    /// was restored from a backup has the one of that time.
    ///
    /// - Throws: ``CypherMessengerError/unsupportedCall(_:)`` if the transport has no push, and
    ///   ``CypherMessengerError/serverFailed(_:)`` if the server did not take the token: it has no push hook, or cannot be
    ///   reached. Try again later.
    public func setPushToken(_ token: String?) async throws {
        do {
            try await transport.setPushToken(token)
        } catch CypherTransportError.unsupported(let call) {
            throw CypherMessengerError.unsupportedCall(call)
        } catch {
            throw CypherMessengerError.serverFailed("The push token was not set: \(error).")
        }
    }

    // MARK: The transport's events

    /// Takes an event of the server; the return is the acknowledgement.
    public func receiveServerEvent(_ event: CypherServerEvent) async throws {
        switch event {
        case .messageSent(let message, _, let user, _): try await receive(message.bytes, from: user)
        case .multiRecipientMessageSent(let message, _, let user, _):
            try await receive(message.message.bytes, from: user)
        case .messageDisplayed(let user, _, let id): try await receipt(id, from: user, isRead: true)
        case .messageReceived(let user, _, let id): try await receipt(id, from: user, isRead: false)
        case .messagesLost(let user, let device, let count):
            _ = try await perform { .lost(ticket: $0, device.id, of: user.raw, count: count) }
        case .requestDeviceRegistery(let config):
            guard try await engine.read(\.isMaster) else { return }
            // The person has added it before. Its keys are lost if this device went on from an earlier copy.
            let (isAdded, hasKeys) = try await engine.read { $0.isAdded(config.bytes) }
            if isAdded, !hasKeys { _ = try await perform { .adopt(ticket: $0, config.bytes) } }
            guard !isAdded else { return }
            await handler.onDeviceRegisteryRequest(config, messenger: self)
        case .oneTimePreKeysLow(let left): try await replenish(left: left)
        case .keyBundlePublished(let config, let user):
            do {
                _ = try await engine.perform {
                    .keys(ticket: $0, config.bytes, of: user.raw, NewSessions(begins: false))
                }
            } catch MessengerRefusal.notAuthentic {
                // It is not kept, and would not be authentic later.
                await handler.onUnreadableMessage(from: user, reason: "the published keys are not authentic")
            }
        case .plaintextReceived(let text, let id, let user):
            let id = id.map { MessageID(Self.digest(of: $0, from: user)) }
            _ = try await perform { .receivePlaintext(ticket: $0, text, from: user.raw, id: id) }
        }
    }

    /// The id of a text at the server, in 8 bytes: the beginning of a SHA-256 digest.
    private static func digest(of id: String, from user: Username) -> UInt64 {
        let digest = SHA256.hash(data: Data("\(user.raw)\n\(id)".utf8))
        return digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    private func receive(_ bytes: [UInt8], from user: Username) async throws {
        let reply = try await perform { .receive(ticket: $0, bytes, from: user.raw, hasKeys: false) }
        guard case .received(.keysWanted) = reply else { return }
        do {
            try await readKeys(of: user.raw, begins: false)
        } catch is MessengerRefusal {
            // What was read does not help; the envelope is refused below.
        }
        _ = try await perform { .receive(ticket: $0, bytes, from: user.raw, hasKeys: true) }
    }

    private func receipt(_ id: String, from user: Username, isRead: Bool) async throws {
        // An id of another form is not one of ours.
        guard let message = MessageReference(String(repeating: "0", count: 16) + id)?.message else { return }
        _ = try await perform { .receipt(ticket: $0, message, from: user.raw, isRead: isRead) }
    }

    /// Takes note that the transport's state has changed.
    public func authenticationChanged(to state: AuthenticationState) {
        engine.configure(
            isAuthenticated: state == .authenticated, sendsSeveral: transport.supportsMultiRecipientMessages)
    }

    /// Does a job.
    func perform(_ job: (UInt64) -> MessengerJob) async throws -> MessengerReply {
        do {
            return try await engine.perform(job)
        } catch let refusal as MessengerRefusal {
            throw CypherMessengerError(refusal)
        }
    }

    // MARK: Calls

    /// Makes a call of the transport that the machine asks for.
    private func make(_ attempt: Attempt) async {
        var end = AttemptEnd.done
        do {
            if let expires = attempt.expires, expires < SystemTime.now().wall {
                throw CypherTransportError.refused("It could not be sent in time.")
            }
            try await call(attempt.call)
        } catch CypherTransportError.unsupported {
            end = .unsupported
        } catch CypherTransportError.refused(let reason) {
            end = .refused(reason)
        } catch CypherTransportError.conflict {
            end = .refused("Another configuration of the account was published.")
        } catch CypherTransportError.notFound {
            // The server does not know a device that was just added before the new list is published. The envelope is
            // sent again then: an own device learns from it that it was added.
            end = await waitsForList(attempt.call) ? .failed : .unknownRecipient
        } catch {
            end = .failed
        }
        if case .refused = end, case .publish = attempt.call { want(keysOf: username.raw) }
        engine.submit(.attempted(attempt.id, lease: attempt.lease, end, random: UInt64.random(in: .min ... .max)))
    }

    /// Whether an envelope goes to a device of a list that its account has not published yet.
    private func waitsForList(_ call: Attempt.Call) async -> Bool {
        let recipients =
            switch call {
            case .send(_, let user, let device, _): [Attempt.Recipient(user: user, device: device)]
            case .sendSeveral(_, let recipients, _): recipients
            case .plaintext, .receipt, .publish, .register: [] as [Attempt.Recipient]
            }
        for (user, devices) in Dictionary(grouping: recipients, by: \.user) {
            let isOwn = user == username.raw
            let list = isOwn ? peers.own?.deviceList : peers[.services(user)]?.deviceList
            guard let list, devices.contains(where: { list.identity(of: $0.device) != nil }) else { continue }
            if isOwn { return true }
            do {
                let config = try await transport.readKeyBundle(forUsername: Username(user))
                // A later list, without the device, is taken by its own way.
                guard let published = try? PublishedKeys(config.bytes).deviceList else { continue }
                if list.continues(published) { return true }
            } catch CypherTransportError.notFound {
                continue
            } catch {
                return true
            }
        }
        return false
    }

    private func call(_ call: Attempt.Call) async throws {
        switch call {
        case .send(let bytes, let user, let device, let message):
            try await transport.sendMessage(
                RatchetedCypherMessage(bytes: bytes), toUser: Username(user), otherUserDeviceId: DeviceId(device),
                messageId: message.name)
        case .sendSeveral(let bytes, let recipients, let message):
            let message = (
                MultiRecipientCypherMessage(
                    message: RatchetedCypherMessage(bytes: bytes),
                    recipients: recipients.map { .init(user: Username($0.user), deviceId: DeviceId($0.device)) }),
                message.name
            )
            try await transport.sendMultiRecipientMessage(message.0, messageId: message.1)
        case .plaintext(let text, let user, let message):
            guard let transport = transport as? any PlaintextTransportClient else {
                throw CypherTransportError.unsupported("sendPlaintext")
            }
            try await transport.sendPlaintext(text, to: Username(user), messageId: message.name)
        case .receipt(let message, let user, true):
            try await transport.sendMessageReadReceipt(byRemoteId: message.name, to: Username(user))
        case .receipt(let message, let user, false):
            try await transport.sendMessageReceivedReceipt(byRemoteId: message.name, to: Username(user))
        case .publish(let bytes): try await transport.publishKeyBundle(UserConfig(bytes: bytes))
        case .register(let bytes): try await transport.requestDeviceRegistery(UserDeviceConfig(bytes: bytes))
        }
    }

    // MARK: Published keys

    /// Reads the published keys of a person until that succeeds; or, if no messages wait for them, until it is known that
    /// there are none.
    func want(keysOf user: String) {
        let isFirst = reading.withLock { reading in
            guard reading[user] == nil else {
                reading[user]?.isWanted = true
                return false
            }
            reading[user] = Reading()
            return true
        }
        guard isFirst else { return }
        let task = Task { [weak self] in
            var pause = Duration.milliseconds(200)
            while !Task.isCancelled {
                do {
                    guard let self else { return }
                    try await self.readKeys(of: user)
                    if self.hasRead(user) { return }
                    continue
                } catch is MessengerRefusal {
                    // While messages wait for them, the person may publish keys later.
                    let waits = try? await self?.engine.read { $0.waitingUsers.contains(user) }
                    if waits != true, self?.hasRead(user) ?? true { return }
                } catch is MessengerClosed {
                    return
                } catch {
                    // The server did not answer; asked again below.
                }
                try? await Task.sleep(for: pause)
                pause = min(pause * 2, Self.longestPause)
            }
        }
        reading.withLock { $0[user]?.task = task }
    }

    /// Ours: the longest pause between two reads of keys while the server does not answer.
    private static let longestPause: Duration = .seconds(30)

    /// - Returns: false if the keys are needed again.
    private func hasRead(_ user: String) -> Bool {
        reading.withLock { reading in
            guard reading[user]?.isWanted == true else {
                reading[user] = nil
                return true
            }
            reading[user]?.isWanted = false
            return false
        }
    }

    /// Begins a new session with a device whose messages cannot be opened any more. If it fails, the device's next message
    /// brings it again.
    private func renewSession(with device: DeviceID, of user: String) {
        Task { [weak self] in try? await self?.readKeys(of: user, renewing: device) }
    }

    /// Reads the published keys of a person once.
    ///
    /// - Parameter device: a device of the person with which a new session is begun in any case.
    /// - Throws: ``MessengerRefusal`` if there are none, or if they are not authentic.
    func readKeys(of user: String, begins: Bool = true, renewing device: DeviceID? = nil) async throws {
        var bytes: [UInt8]?
        do {
            bytes = try await transport.readKeyBundle(forUsername: Username(user)).bytes
        } catch CypherTransportError.notFound {
            bytes = nil
        } catch CypherTransportError.unsupported {
            bytes = nil
        }
        let sessions = NewSessions(begins: begins, renewing: device)
        let oneTime = try await oneTimePreKeys(for: bytes, of: user, sessions)
        _ = try await engine.perform { .keys(ticket: $0, bytes, of: user, sessions, oneTime: oneTime) }
    }

    /// Takes one-time prekeys if sessions begin with published keys, one for each device of which the server has some.
    private func oneTimePreKeys(
        for bytes: [UInt8]?, of user: String, _ sessions: NewSessions
    ) async throws -> [DeviceID: OneTimePreKey.Public] {
        guard let bytes,
            try await engine.read({ $0.beginsSessions(with: bytes, of: user, sessions) })
        else { return [:] }
        do {
            let keys = try await transport.takeOneTimePreKeys(ofUser: Username(user)).compactMap { config in
                (try? OneTimePreKey.Public(serialized: config.bytes.span)).map { (config.deviceId.id, $0) }
            }
            return Dictionary(keys) { first, _ in first }
        } catch CypherTransportError.offline {
            throw CypherTransportError.offline
        } catch {
            // Without them the session begins with the published keys alone.
            return [:]
        }
    }

    /// Ours: the pause between two additions of one-time prekeys, for servers that tell of few again and again.
    private static let replenishmentPause: Duration = .seconds(60)

    /// Adds one-time prekeys of this device to those at the server, if it has few. A prekey goes to the server once only,
    /// also if the call's answer is lost: the server may have handed it out.
    private func replenish(left: Int) async throws {
        guard nextReplenishment.withLock({ $0 }) <= .now,
            case .oneTimeKeys(let keys) = try await perform({ .replenish(ticket: $0, left: left) }), !keys.isEmpty
        else { return }
        nextReplenishment.withLock { $0 = .now + Self.replenishmentPause }
        let configs = keys.map { key in
            var bytes: [UInt8] = []
            key.serialize(into: &bytes)
            return OneTimePreKeyConfig(bytes: bytes, of: deviceId)
        }
        try? await transport.publishOneTimePreKeys(configs)
    }

    // MARK: Events

    private func handle(_ event: MessengerEvent) async {
        switch event {
        case .message(let message):
            let message = AnyChatMessage(message)
            signals.notify(of: message)
            await handler.onCreateChatMessage(message)
        case .changed(let message):
            let message = AnyChatMessage(message)
            signals.notify(of: message)
            await handler.onMessageChange(message)
        case .chat(let chat): signals.notify(chat.chat.group == nil ? .chats : .groups)
        case .group(let group):
            signals.notify(.groups)
            await handler.onGroupChange(GroupChatSummary(group, nil, own: username))
        case .groupWanted(let reference): want(reference)
        case .groupRefused(let reference, let refusal):
            await handler.onGroupChatUnavailable(GroupChatId(reference.group), reason: refusal.rawValue)
        case .leaveAgain(let group):
            // Another change was made at the same time and counts, so the person is still a member.
            Task { [weak self, username] in _ = try? await self?.change(.remove([username.raw]), of: group) }
        case .peer(.keysExchanged(let name)):
            // Perhaps those of a member that has signed a version.
            await askForGroups()
            await handler.onKeysExchanged(with: Username(name.name))
        case .peer(.changed(let name)): await handler.onContactIdentityChange(of: Username(name.name))
        case .peer(.forked(let name, _)):
            await handler.onDeviceListFork(of: name == .own ? username : Username(name.name))
        case .peer: break
        case .keysWanted(let user): want(keysOf: user)
        case .sessionLost(let user, let device): renewSession(with: device, of: user)
        case .unreadable(let user, let reason):
            await handler.onUnreadableMessage(from: Username(user), reason: reason.rawValue)
        case .gap(let user, let count): await handler.onMessageLoss(from: Username(user), count: count)
        case .withheld(let user): await handler.onWithheldMessage(from: Username(user))
        case .ownDevices:
            signals.notify(.devices)
            await handler.onDevicesChange(self)
        case .history(let chats, let isComplete):
            for chat in chats {
                signals.notify(chat.group.map { .group(GroupChatId($0)) } ?? .chat(Username(chat.name)))
            }
            await handler.onHistoryChange(isComplete: isComplete, messenger: self)
        case .signal(let signal):
            guard let whole = signalParts.withLock({ $0.take(signal) }) else { return }
            await signalHandlers.withLock { $0[whole.kind] }?(whole)
        }
    }

    func reportUnavailable(_ reference: GroupReference, _ error: CypherMessengerError) async {
        await handler.onGroupChatUnavailable(GroupChatId(reference.group), reason: "\(error)")
    }

    // MARK: Signals

    /// Sets what takes the signals of a kind, one after the other and in their order. Signals of other kinds are dropped.
    func handleSignals(_ kind: String, with handler: @escaping @Sendable (ReceivedSignal) async -> Void) {
        signalHandlers.withLock { $0[kind] = handler }
    }

    /// Seals and queues a signal; returns when it is stored.
    ///
    /// - Throws: ``CypherMessengerError/keysMissing`` if there is no session with the person or the device. Their keys are
    ///   read then, so a later call may succeed.
    func send(_ signal: SignalJob) async throws {
        guard signal.text.utf8.count <= ChatContent.textLimit else { throw CypherMessengerError.tooLong }
        _ = try await perform { .signal(ticket: $0, signal) }
    }
}
