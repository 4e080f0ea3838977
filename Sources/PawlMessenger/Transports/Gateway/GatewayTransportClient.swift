// A transport over the calls of a Pawl gateway in front of the app's backend. Sources/WIRE.md describes them.
//
// One task keeps the connection: it logs in, proves the device as soon as the account's list has it, and takes what waits
// for it: over a WebSocket if it has a client for these and one can be opened, else with calls that the gateway answers when
// something comes. After a failure it begins again, later each time.

import Devices
public import Foundation
import Messenger
import RequestQueue
package import RequestQueueClient
import RequestQueueURLSession
import Synchronization

/// How a person is logged in at the app's backend: one field of each request, such as `Authorization: Bearer TOKEN`.
public struct GatewayCredential: Sendable, Hashable {
    /// The name of the field, as `account.credential` of the gateway's mapping has it.
    public var header: String
    /// Its value.
    public var value: String

    /// A field with a credential.
    public init(header: String = "Authorization", value: String) { (self.header, self.value) = (header, value) }

    /// A token, in the field `Authorization`.
    public static func bearer(_ token: String) -> GatewayCredential { .init(value: "Bearer \(token)") }
}

/// A transport over a Pawl gateway (`pawl serve`) in front of a backend with HTTP.
///
/// The login is that of the backend, and each device needs one of its own: the gateway remembers which device a login has
/// proven. Names of accounts have to be in lower case. The backend sees nothing of the messages.
///
/// Calls fail with ``CypherTransportError``: `offline` after all that may pass, also limits (240 calls a minute of an
/// account) and mailboxes that are full.
public final class GatewayTransportClient: CypherServerTransportClient {
    private struct State {
        weak var delegate: (any CypherTransportClientDelegate)?
        var authenticated = AuthenticationState.unauthenticated
        var supportsMultiRecipientMessages = true
        var task: Task<Void, Never>?
    }

    private let caller: GatewayCaller
    private let sockets: (any GatewaySocketClient)?
    private let state = Mutex(State())

    /// A transport for a device; made in `usingTransport`.
    ///
    /// - Parameters:
    ///   - url: the root of the gateway, such as `https://chat.example.org`. Its own calls are under `/_pawl/v1`.
    ///   - request: the device, which signs its proofs.
    ///   - sockets: opens the WebSocket over which messages come, such as `WebSocketGatewayClient` of the library
    ///     PawlMessengerWebSocket. Without one, and while none can be opened, calls over HTTP wait for messages.
    ///   - credential: logs in, or returns the login of before. Called again when the backend has refused it, with true.
    ///     ``CypherTransportError/refused(_:)`` means that the person has to log in; after any other error it is called
    ///     again later.
    public convenience init(
        url: URL, for request: TransportCreationRequest, sockets: (any GatewaySocketClient)? = nil,
        credential: @escaping @Sendable (_ isRefused: Bool) async throws -> GatewayCredential
    ) {
        self.init(
            url: url, for: request, network: URLSessionNetworkClient(largestResponse: GatewayBody.answerLimit),
            sockets: sockets, credential: credential)
    }

    /// As above, over another network client.
    package init(
        url: URL, for request: TransportCreationRequest, network: any NetworkClient,
        sockets: (any GatewaySocketClient)? = nil,
        credential: @escaping @Sendable (_ isRefused: Bool) async throws -> GatewayCredential
    ) {
        self.sockets = sockets
        caller = GatewayCaller(url, for: request, network: network, credential: credential)
    }

    deinit { state.withLock { $0.task }?.cancel() }

    /// Receives what comes from the gateway.
    public var delegate: (any CypherTransportClientDelegate)? {
        get { state.withLock { $0.delegate } }
        set { state.withLock { $0.delegate = newValue } }
    }

    /// `.authenticated` while the gateway answers and accepts the login, `.authenticationFailure` after it was refused.
    public var authenticated: AuthenticationState { state.withLock { $0.authenticated } }

    /// True: one call takes a message to up to 100 devices. Set it to false to send to one device at a time.
    public var supportsMultiRecipientMessages: Bool {
        get { state.withLock { $0.supportsMultiRecipientMessages } }
        set { state.withLock { $0.supportsMultiRecipientMessages = newValue } }
    }

    private func setAuthenticated(_ new: AuthenticationState) {
        let hasChanged = state.withLock { state in
            defer { state.authenticated = new }
            return state.authenticated != new
        }
        if hasChanged { delegate?.authenticationChanged(to: new) }
    }

    // MARK: Connection

    /// Logs in, and fetches from then on what comes. If it fails, the client tries again by itself.
    public func reconnect() async throws {
        let before = stop()
        var failure: GatewayCaller.Failure?
        do throws(GatewayCaller.Failure) {
            _ = try await caller.identify()
            setAuthenticated(.authenticated)
        } catch {
            setAuthenticated(after: error)
            failure = error
        }
        let task = Task { [weak self, caller, sockets] in
            // Events are handed over one after the other.
            _ = await before?.value
            await Self.run(caller, sockets) { [weak self] in self }
        }
        state.withLock { state in
            state.task?.cancel()
            state.task = task
        }
        if failure != nil { throw CypherTransportError.offline }
    }

    /// Ends the connection: nothing is fetched, and the state is `.unauthenticated`.
    public func disconnect() async throws {
        stop()
        setAuthenticated(.unauthenticated)
    }

    /// - Returns: the task that ends now.
    @discardableResult
    private func stop() -> Task<Void, Never>? {
        state.withLock { state in
            defer { state.task = nil }
            state.task?.cancel()
            return state.task
        }
    }

    /// Ours: how long the gateway may hold back the answer when there are no messages, in seconds.
    private static let wait = 20
    /// Ours: how often a device that is not adopted asks whether it is.
    private static let (adoptionPause, longestAdoptionPause): (Duration, Duration) = (.seconds(2), .seconds(15))
    /// Ours: pauses after failures, doubled each time.
    private static let (shortestPause, longestPause): (Duration, Duration) = (.milliseconds(250), .seconds(30))
    /// Ours: the pause after an empty answer that the gateway did not hold back.
    private static let emptyPause: Duration = .seconds(1)

    /// Keeps the connection until the task is cancelled, or the client is released.
    ///
    /// - Parameter current: the client; nil if it was released. It is not kept while a call waits.
    private static func run(
        _ caller: GatewayCaller, _ sockets: (any GatewaySocketClient)?,
        _ current: @Sendable () -> GatewayTransportClient?
    ) async {
        var pause = shortestPause
        var socketPause = shortestSocketPause
        while !Task.isCancelled {
            do {
                var (isProven, oneTime) = try await caller.identify()
                try Task.checkCancellation()
                current()?.setAuthenticated(.authenticated)
                if !isProven {
                    try await prove(caller, current)
                    (isProven, oneTime) = try await caller.identify()
                }
                if isProven { await current()?.report(oneTimeLeft: oneTime) }
                guard let sockets else {
                    pause = shortestPause
                    try await fetch(caller, until: nil, current)
                    continue
                }
                let begin = ContinuousClock.now
                if try await listen(caller, sockets, current) {
                    socketPause = shortestSocketPause
                    // Otherwise something ends it all the time.
                    if begin.duration(to: .now) > longLife { pause = shortestPause }
                } else {
                    pause = shortestPause
                    try await fetch(caller, until: .now + socketPause, current)
                    socketPause = min(socketPause * 2, longestSocketPause)
                    continue
                }
            } catch is MessengerClosed {
                return
            } catch let failure as GatewayCaller.Failure {
                guard !Task.isCancelled, let client = current() else { return }
                client.setAuthenticated(after: failure)
            } catch {
                // The messenger has not stored an entry. It is fetched again.
            }
            guard !Task.isCancelled, current() != nil else { return }
            try? await Task.sleep(for: pause * Double.random(in: 0.75...1.25))
            pause = min(pause * 2, longestPause)
        }
    }

    private func setAuthenticated(after failure: GatewayCaller.Failure) {
        switch failure {
        case .notLoggedIn: setAuthenticated(.authenticationFailure)
        case .unreachable, .unknownCall: setAuthenticated(.unauthenticated)
        // The gateway has answered, so the login is good.
        case .notProven, .notAdopted, .notFound, .unknownDevices, .conflict, .full, .refused: break
        }
    }

    /// Waits until the account's published keys have this device, and proves it.
    private static func prove(_ caller: GatewayCaller, _ current: @Sendable () -> GatewayTransportClient?) async throws
    {
        var pause = adoptionPause
        while true {
            try Task.checkCancellation()
            do throws(GatewayCaller.Failure) {
                let config = try await caller.proveAgain()
                // A new device learns from this that it was adopted.
                try? await current()?.delegate?.receiveServerEvent(
                    .keyBundlePublished(config, byUser: caller.request.username))
                return
            } catch .notAdopted, .notFound {
                guard current() != nil else { throw MessengerClosed() }
                try await Task.sleep(for: pause)
                pause = min(pause * 1.25, longestAdoptionPause)
                // Another call of this client may have proven it: the first keys of an account.
                if try await caller.identify().isProven { return }
            }
        }
    }

    /// Tells the messenger how many one-time prekeys the gateway has. It is told again by a later page if it fails.
    private func report(oneTimeLeft left: Int) async {
        try? await delegate?.receiveServerEvent(.oneTimePreKeysLow(left: left))
    }

    /// Ours: how long calls are used after no WebSocket could be opened, doubled each time.
    private static let (shortestSocketPause, longestSocketPause): (Duration, Duration) = (.seconds(30), .seconds(600))
    /// Ours: a WebSocket that has lived so long is opened again without a longer pause.
    private static let longLife: Duration = .seconds(30)
    /// Ours: how long the first page may take.
    private static let firstPageTime: Duration = .seconds(15)

    /// Takes the pages that the gateway sends over a WebSocket.
    ///
    /// - Returns: false if there was none: it could not be opened, or no page came.
    /// - Throws: an error if the messenger has not stored an entry, or the task is cancelled.
    private static func listen(
        _ caller: GatewayCaller, _ sockets: any GatewaySocketClient,
        _ current: @Sendable () -> GatewayTransportClient?
    ) async throws -> Bool {
        guard let socket = try? await caller.openSocket(sockets) else {
            try Task.checkCancellation()
            return false
        }
        let timer = Task {
            try await Task.sleep(for: firstPageTime)
            socket.close()
        }
        defer {
            timer.cancel()
            socket.close()
        }
        var position: UInt64 = 0
        var hasBegun = false
        do {
            try await withTaskCancellationHandler {
                while let bytes = await socket.receive() {
                    timer.cancel()
                    guard let page = try? GatewayBody.page(bytes, after: position) else { return }
                    hasBegun = true
                    let before = position
                    try await deliver(page, &position, caller, current)
                    guard position > before else { continue }
                    // One that has ended meanwhile says so at the next page.
                    try? await socket.send(GatewayBody.acknowledgement(position))
                }
            } onCancel: {
                socket.close()
            }
            try Task.checkCancellation()
        } catch {
            // The gateway may not have read what was sent over the WebSocket.
            if position > 0 { try? await acknowledge(position, caller) }
            throw error
        }
        return hasBegun
    }

    /// Hands the entries of a page over, one after the other.
    ///
    /// - Parameter position: the last entry that the messenger has stored.
    private static func deliver(
        _ page: GatewayPage, _ position: inout UInt64, _ caller: GatewayCaller,
        _ current: @Sendable () -> GatewayTransportClient?
    ) async throws {
        if let left = page.oneTime { await current()?.report(oneTimeLeft: left) }
        for entry in page.entries {
            try Task.checkCancellation()
            guard let delegate = current()?.delegate else { throw MessengerClosed() }
            if let event = serverEvent(entry, for: caller.request) {
                try await delegate.receiveServerEvent(event)
            }
            position = entry.sequence
        }
    }

    /// Fetches pages until something fails.
    ///
    /// - Parameter end: returns then, when nothing has come; nil for never.
    private static func fetch(
        _ caller: GatewayCaller, until end: ContinuousClock.Instant?,
        _ current: @Sendable () -> GatewayTransportClient?
    ) async throws {
        // What was not acknowledged on an earlier connection comes again.
        var position: UInt64 = 0
        var emptyAnswers = 0
        while true {
            try Task.checkCancellation()
            let begin = ContinuousClock.now
            let answer = try await caller.provenCall(
                .get, "messages?after=\(position)&wait=\(wait)", wait: wait)
            guard let page = try? GatewayBody.page(answer, after: position) else {
                throw GatewayCaller.Failure.unreachable
            }
            guard !page.entries.isEmpty else {
                if let left = page.oneTime { await current()?.report(oneTimeLeft: left) }
                guard current() != nil else { throw MessengerClosed() }
                // A waiting call ends without entries when there are some to fetch. A gateway that answers so all the
                // time is asked again later.
                emptyAnswers = page.hasMore ? emptyAnswers + 1 : 2
                if emptyAnswers > 1, begin.duration(to: .now) < emptyPause { try await Task.sleep(for: emptyPause) }
                if let end, end <= .now { return }
                continue
            }
            emptyAnswers = 0
            let taken = position
            do {
                try await deliver(page, &position, caller, current)
            } catch {
                if position > taken { try? await acknowledge(position, caller) }
                throw error
            }
            try await acknowledge(position, caller)
        }
    }

    /// Acknowledges what was stored, also if the connection is being ended: else it would come again.
    private static func acknowledge(_ position: UInt64, _ caller: GatewayCaller) async throws {
        let task = Task {
            _ = try await caller.provenCall(.put, "messages/acknowledged", GatewayBody.acknowledgement(position))
        }
        try await task.value
    }

    /// The event of an entry; nil if there is nothing to tell.
    private static func serverEvent(_ entry: GatewayEntry, for own: TransportCreationRequest) -> CypherServerEvent? {
        switch entry.event {
        case .message(let bytes, isShared: true, let id, let from, let device):
            // The gateway does not pass on who the others are.
            let message = MultiRecipientCypherMessage(
                message: RatchetedCypherMessage(bytes: bytes),
                recipients: [.init(user: own.username, deviceId: own.deviceId)])
            return .multiRecipientMessageSent(message, id: id, byUser: from, deviceId: device)
        case .message(let bytes, isShared: false, let id, let from, let device):
            return .messageSent(RatchetedCypherMessage(bytes: bytes), id: id, byUser: from, deviceId: device)
        case .receipt(isRead: true, let id, let from, let device):
            return .messageDisplayed(by: from, deviceId: device, id: id)
        case .receipt(isRead: false, let id, let from, let device):
            return .messageReceived(by: from, deviceId: device, id: id)
        case .registration(let bytes, let from):
            // Only a login of the account itself can ask.
            return from == own.username ? .requestDeviceRegistery(UserDeviceConfig(bytes: bytes)) : nil
        case .lost(let count, let from, let device): return .messagesLost(byUser: from, deviceId: device, count: count)
        case .unknown: return nil
        }
    }

    // MARK: Calls

    /// Makes a call, with its failures as the messenger knows them.
    private func throwing<Value>(
        _ body: () async throws(GatewayCaller.Failure) -> Value
    ) async throws(CypherTransportError) -> Value {
        do throws(GatewayCaller.Failure) {
            return try await body()
        } catch {
            switch error {
            case .unreachable, .notLoggedIn, .unknownCall: throw .offline
            case .notProven, .notAdopted: throw .refused("The device is not in the account's list.")
            case .notFound, .unknownDevices: throw .notFound
            case .conflict: throw .conflict
            case .full(let words): throw .full(words)
            case .refused(let words): throw .refused(words)
            }
        }
    }

    private func send(
        _ envelope: [UInt8], id: String, to recipients: [MultiRecipientCypherMessage.Recipient], isShared: Bool
    ) async throws {
        let body = GatewayBody.post(envelope, id: id, to: recipients, isShared: isShared)
        do throws(GatewayCaller.Failure) {
            _ = try await caller.provenCall(.post, "messages", body)
        } catch .unknownDevices {
            // Gateways up to November 2026 store nothing for a device in the list before it has been online.
            for (user, devices) in Dictionary(grouping: recipients, by: \.user) {
                let known = try await throwing { () async throws(GatewayCaller.Failure) in
                    try await caller.devices(of: user)
                }
                guard let known, devices.allSatisfy({ known.isPublished[$0.deviceId.raw] != nil }) else {
                    throw CypherTransportError.notFound
                }
            }
            throw CypherTransportError.offline
        } catch {
            try await throwing { () async throws(GatewayCaller.Failure) in throw error }
        }
    }

    /// Stores an envelope in the mailbox of a device.
    public func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws {
        try await send(
            message.bytes, id: "\(messageId) \(otherUserDeviceId) \(message.digest)",
            to: [.init(user: username, deviceId: otherUserDeviceId)], isShared: false)
    }

    /// Stores an envelope in the mailboxes of several devices, or of none.
    public func sendMultiRecipientMessage(_ message: MultiRecipientCypherMessage, messageId: String) async throws {
        try await send(
            message.message.bytes, id: "\(messageId) \(message.message.digest)", to: message.recipients, isShared: true)
    }

    /// Returns the published keys of a person.
    public func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
        guard GatewayCredential.isSegment(username.raw) else { throw CypherTransportError.notFound }
        return try await throwing { () async throws(GatewayCaller.Failure) in
            do throws(GatewayCaller.Failure) {
                return try await self.config(of: username)
            } catch .notFound where username == caller.request.username {
                // An account with a list and without keys is being registered by another device, or by another app.
                guard try await caller.devices(of: username) == nil else { throw .unreachable }
                throw .notFound
            } catch .unknownCall where username != caller.request.username {
                throw .notFound
            }
        }
    }

    /// Takes a one-time prekey of each device of a person. The gateway hands out eight of one device to an account in a day.
    public func takeOneTimePreKeys(ofUser username: Username) async throws -> [OneTimePreKeyConfig] {
        try await throwing { () async throws(GatewayCaller.Failure) in
            let answer = try await caller.provenCall(
                .post, "accounts/\(GatewayCredential.segment(username.raw))/bundles")
            guard let keys = try? GatewayBody.oneTimePreKeys(answer) else { throw .unreachable }
            return keys
        }
    }

    /// Adds one-time prekeys of this device to those at the gateway, which keeps the last 100.
    public func publishOneTimePreKeys(_ keys: [OneTimePreKeyConfig]) async throws {
        guard keys.allSatisfy({ $0.deviceId == caller.request.deviceId }),
            let body = GatewayBody.replenishment(keys)
        else { throw CypherTransportError.refused("These are not prekeys of this device.") }
        try await throwing { () async throws(GatewayCaller.Failure) in
            _ = try await caller.provenCall(.put, "keys", body)
        }
    }

    /// Sets the token of this device for the push hook of the gateway's operator, at most 1,024 bytes; nil removes it.
    ///
    /// - Throws: ``CypherTransportError/refused(_:)`` if the gateway has no push hook.
    public func setPushToken(_ token: String?) async throws {
        try await throwing { () async throws(GatewayCaller.Failure) in
            if let token {
                _ = try await caller.provenCall(.put, "push", GatewayBody.pushToken(token))
            } else {
                _ = try await caller.provenCall(.delete, "push")
            }
        }
    }

    private func config(of username: Username) async throws(GatewayCaller.Failure) -> UserConfig {
        do throws(GatewayCaller.Failure) {
            return try await caller.config(of: username)
        } catch .notProven {
            _ = try await caller.proveAgain()
            return try await caller.config(of: username)
        }
    }

    /// Publishes the keys of the own account, and proves this device with them.
    public func publishKeyBundle(_ data: UserConfig) async throws {
        guard let keys = try? PublishedKeys(data.bytes) else {
            throw CypherTransportError.refused("These are not the keys of an account.")
        }
        try await throwing { () async throws(GatewayCaller.Failure) in
            // The gateway itself lets a login replace its list by another one, for people who have lost all devices.
            if let earlier = try await caller.devices(of: caller.request.username),
                !keys.deviceList.continues(earlier.list)
            {
                throw .conflict
            }
            try await caller.prove(with: keys)
            _ = try await caller.provenCall(.put, "config", GatewayBody.config(data.bytes))
        }
    }

    /// Asks the account's master device to add this one.
    public func requestDeviceRegistery(_ config: UserDeviceConfig) async throws {
        try await throwing { () async throws(GatewayCaller.Failure) in
            _ = try await caller.call(.post, "registrations", GatewayBody.registration(config.bytes))
        }
    }

    /// Passes a receipt on to all devices of a person.
    public func sendMessageReadReceipt(byRemoteId remoteId: String, to username: Username) async throws {
        try await receipt(remoteId, isRead: true, to: username)
    }

    /// Passes a receipt on to all devices of a person.
    public func sendMessageReceivedReceipt(byRemoteId remoteId: String, to username: Username) async throws {
        try await receipt(remoteId, isRead: false, to: username)
    }

    private func receipt(_ id: String, isRead: Bool, to user: Username) async throws {
        try await throwing { () async throws(GatewayCaller.Failure) in
            _ = try await caller.provenCall(.post, "receipts", GatewayBody.receipt(id, isRead: isRead, to: user))
        }
    }

    /// Stores a value of up to 256 KiB as JSON. Everyone who knows its id can read it.
    public func publishBlob<C: Codable & Sendable>(_ blob: C) async throws -> ReferencedBlob<C> {
        let bytes = Array(try JSONEncoder().encode(blob))
        let id = try await throwing { () async throws(GatewayCaller.Failure) in
            let answer = try await caller.provenCall(.post, "blobs", GatewayBody.blob(bytes))
            guard let id = try? GatewayBody.blobID(answer) else { throw .unreachable }
            return id
        }
        return ReferencedBlob(id: id, blob: blob)
    }

    /// Removes a value that this account has stored.
    public func removePublishedBlob(byId id: String) async throws {
        let name = id.lowercased()
        guard GatewayBody.isBlobID(name) else { throw CypherTransportError.notFound }
        try await throwing { () async throws(GatewayCaller.Failure) in
            _ = try await caller.provenCall(.delete, "blobs/\(name)")
        }
    }

    /// Returns a stored value; nil if there is none under this id.
    public func readPublishedBlob<C: Codable & Sendable>(
        byId id: String, as type: C.Type
    ) async throws -> ReferencedBlob<C>? {
        let name = id.lowercased()
        guard GatewayBody.isBlobID(name) else { return nil }
        let bytes: [UInt8]
        do throws(CypherTransportError) {
            bytes = try await throwing { () async throws(GatewayCaller.Failure) in
                let answer = try await caller.provenCall(.get, "blobs/\(name)")
                guard let blob = try? GatewayBody.blob(in: answer) else { throw .unreachable }
                return blob
            }
        } catch .notFound {
            return nil
        }
        return ReferencedBlob(id: id, blob: try JSONDecoder().decode(type, from: Data(bytes)))
    }
}
