// Upgrading unencrypted traffic: a transport over the text messages that an app has already. Envelopes and keys travel as
// Base64 in the place of the text, with the `encrypted` flag beside it, or after a marker where the format has no room
// for a flag. Clients that have not been upgraded see no key exchange: keys go only to people from whom an upgraded client
// has sent something.
//
// How an upgraded client is recognised: it sets the flag on every text that it sends, also on unprotected ones, where it
// is false. Old clients know no flag. Without a flag, an unprotected text ends with characters that have no width. Both
// are hints: what counts are the keys, which are signed, and pinned by the messenger. A server that removes hints keeps
// the chat unprotected; it can do no more, and not once keys were exchanged.

import Envelope
import Messenger
import Synchronization

/// The text messages of an app, as a transport of the messenger.
///
/// The channel needs two things: a function that sends a text, and a call of ``receive(_:encrypted:from:id:)`` for each
/// text that comes. One device of a person can use it at a time: the first slice of it adds no further devices.
public final class PlaintextChannel: PlaintextTransportClient {
    /// Where the flag is.
    public enum Format: Sendable, Hashable {
        /// Beside the text: the app passes on a value of its own, which old clients ignore.
        case flag
        /// In the text: envelopes begin with `?PAWL:`, and unprotected texts end with characters without width.
        case marker
    }

    /// What happens with texts to people whose client was not upgraded.
    public enum Policy: Sendable, Hashable {
        /// They are sent unprotected.
        case opportunistic
        /// They are refused with ``CypherMessengerError/keysMissing``.
        case required

        package var sendsPlaintext: Bool {
            switch self {
            case .opportunistic: true
            case .required: false
            }
        }
    }

    /// What is known of a person's client.
    public enum Support: Sendable, Hashable {
        /// Nothing has come from it.
        case unknown
        /// Its last text had no hint.
        case legacy
        /// It has sent a hint, and no keys yet.
        case hinted
        /// Its keys have come.
        case capable
    }

    /// What a text was.
    public enum Received: Sendable, Hashable {
        /// An unprotected text. The messenger has stored it, or withheld it in a protected chat.
        case plaintext
        /// An envelope, or keys. Never show it.
        case encrypted
        /// It begins like an envelope and is none: it was cut or changed on the way, or a newer client has made it.
        /// Never show it.
        case damaged
    }

    /// Sends a text: the text, the `encrypted` flag, and the recipient. The flag is nil in the format `marker`.
    public typealias Send = @Sendable (_ text: String, _ encrypted: Bool?, _ to: Username) async throws -> Void
    /// As ``Send``, with an id for servers that store a message with a known id once: 16 hexadecimal digits. The id is the
    /// same when a text is sent again, and another one for each envelope of a message; nil for keys.
    public typealias SendWithID =
        @Sendable (
            _ text: String, _ encrypted: Bool?, _ to: Username, _ id: String?
        ) async throws -> Void

    private struct State {
        weak var delegate: (any CypherTransportClientDelegate)?
        var authenticated = AuthenticationState.authenticated
        var own: UserConfig?
        var support: [Username: Support] = [:]
        var configs: [Username: UserConfig] = [:]
        /// People who have been sent the keys that are published now.
        var sent: Set<Username> = []
    }

    private let username: Username
    private let deviceId: DeviceId
    private let format: Format
    private let policy: Policy
    private let send: SendWithID
    private let state = Mutex(State())

    /// A channel for a device; made in `usingTransport`.
    ///
    /// - Parameters:
    ///   - request: as `usingTransport` passes it.
    ///   - format: the same in all upgraded clients of the app.
    ///   - policy: for texts to people whose client was not upgraded.
    ///   - send: the app's existing function. It throws if the text was not accepted by the server.
    public convenience init(
        for request: TransportCreationRequest, format: Format = .flag, policy: Policy = .opportunistic,
        send: @escaping Send
    ) {
        self.init(
            for: request, format: format, policy: policy,
            sendWithID: { text, encrypted, recipient, _ in try await send(text, encrypted, recipient) })
    }

    /// A channel for a device, over a server to which a message can be sent again.
    public init(
        for request: TransportCreationRequest, format: Format = .flag, policy: Policy = .opportunistic,
        sendWithID: @escaping SendWithID
    ) {
        (username, deviceId) = (request.username, request.deviceId)
        (self.format, self.policy, send) = (format, policy, sendWithID)
    }

    /// Receives what comes as envelopes, keys and texts.
    public var delegate: (any CypherTransportClientDelegate)? {
        get { state.withLock { $0.delegate } }
        set { state.withLock { $0.delegate = newValue } }
    }

    /// As the app has set it; `.authenticated` at first.
    public var authenticated: AuthenticationState {
        get { state.withLock { $0.authenticated } }
        set {
            state.withLock { $0.authenticated = newValue }
            delegate?.authenticationChanged(to: newValue)
        }
    }

    /// What is known of a person's client.
    public func support(of username: Username) -> Support { state.withLock { $0.support[username] ?? .unknown } }

    // MARK: Receiving

    /// Takes a text that has come. It is stored when this returns.
    ///
    /// - Parameters:
    ///   - text: as it came.
    ///   - encrypted: the flag as it came; nil if there was none. It decides nothing: an envelope is known by its content,
    ///     and a flag that was changed on the way changes nothing.
    ///   - username: the sender, as the server names them.
    ///   - id: the server's id of the text, if it has one: the same text is shown once, however often it comes.
    /// - Throws: an error if the text could not be stored; call it again later. ``MessengerClosed`` if the messenger was
    ///   closed or is not open yet: keep the text for the next start.
    @discardableResult
    public func receive(
        _ text: String, encrypted: Bool?, from username: Username, id: String? = nil
    ) async throws -> Received {
        // Without a messenger nothing stores the text, so it must not count as received.
        guard let delegate else { throw MessengerClosed() }
        switch parse(text) {
        case .frame(let frame):
            hint(username)
            try await receive(frame, from: username, delegate)
            return .encrypted
        case .damaged: return .damaged
        case .text(let text, let hasHint):
            let hasHint = hasHint || (format == .flag && encrypted == false)
            state.withLock { state in
                let known = state.support[username] ?? .unknown
                if !hasHint, known != .capable { state.support[username] = .legacy }
            }
            try await delegate.receiveServerEvent(.plaintextReceived(text, id: id, byUser: username))
            if hasHint { hint(username) }
            if hasHint { try? await sendKeys(to: username, asksForKeys: true) }
            return .plaintext
        }
    }

    private func hint(_ username: Username) {
        state.withLock { state in
            if state.support[username] != .capable { state.support[username] = .hinted }
        }
    }

    private func receive(
        _ frame: ChannelFrame, from username: Username, _ delegate: any CypherTransportClientDelegate
    ) async throws {
        switch frame {
        case .message(let device, let id, let bytes):
            guard device == deviceId.id else { return }
            guard let claim = Envelope.claim(of: bytes) else { return }
            try await delegate.receiveServerEvent(
                .messageSent(
                    RatchetedCypherMessage(bytes: bytes), id: id.name, byUser: username,
                    deviceId: DeviceId(claim.sender)))
        case .keys(let bytes, let asksForKeys):
            guard username != self.username else { return }
            let config = UserConfig(bytes: bytes)
            state.withLock { state in
                state.configs[username] = config
                state.support[username] = .capable
            }
            // Before the messages that these keys let go: without the own keys the other side cannot open them. It may not
            // have asked, if it had published its keys after the hint had come.
            try? await sendKeys(to: username, asksForKeys: false, again: asksForKeys)
            try await delegate.receiveServerEvent(.keyBundlePublished(config, byUser: username))
        }
    }

    // MARK: Keys

    /// Sends the own keys to a person who can use them, once for each version of them.
    private func sendKeys(to username: Username, asksForKeys: Bool, again: Bool = false) async throws {
        let own = state.withLock { state -> UserConfig? in
            guard username != self.username, let own = state.own else { return nil }
            return state.sent.insert(username).inserted || again ? own : nil
        }
        guard let own else { return }
        do {
            try await send(.keys(own.bytes, asksForKeys: asksForKeys), to: username)
        } catch {
            state.withLock { _ = $0.sent.remove(username) }
            throw error
        }
    }

    /// Returns the keys that a person has sent. A person with a hint and without keys is asked for them.
    public func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
        let (config, support) = state.withLock { state in
            (username == self.username ? state.own : state.configs[username], state.support[username] ?? .unknown)
        }
        if let config { return config }
        if support == .hinted { try await sendKeys(to: username, asksForKeys: true) }
        // They come as an event.
        throw CypherTransportError.notFound
    }

    /// Sends the keys to all people whose clients can use them.
    public func publishKeyBundle(_ data: UserConfig) async throws {
        let people = state.withLock { state in
            (state.own, state.sent) = (data, [])
            return state.support.filter { $0.value == .capable || $0.value == .hinted }.map(\.key)
        }
        for username in people { try await sendKeys(to: username, asksForKeys: false) }
    }

    // MARK: Sending

    /// Whether unprotected texts go to a person: the policy allows it, and no keys of theirs have come.
    public func allowsPlaintext(to username: Username) -> Bool {
        policy.sendsPlaintext && support(of: username) != .capable
    }

    /// Whether a text without keys is refused at once: nothing shows that the person's client was upgraded.
    public func refusesToWait(for username: Username) -> Bool {
        !policy.sendsPlaintext && [.unknown, .legacy].contains(support(of: username))
    }

    /// Sends an unprotected text, with a hint for upgraded clients.
    public func sendPlaintext(_ text: String, to username: Username, messageId: String) async throws {
        switch format {
        case .flag: try await send(text, false, username, messageId)
        case .marker: try await send(text + ChannelFrame.hint, nil, username, messageId)
        }
    }

    /// Sends an envelope as a text.
    public func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws {
        guard let id = MessageID(name: messageId) else { throw CypherTransportError.refused("Not an id of a message.") }
        try await send(.message(to: otherUserDeviceId.id, id, message.bytes), to: username, message.digest)
    }

    private func send(_ frame: ChannelFrame, to username: Username, _ id: String? = nil) async throws {
        switch format {
        case .flag: try await send(frame.text, true, username, id)
        case .marker: try await send(frame.markedText, nil, username, id)
        }
    }

    private func parse(_ text: String) -> ChannelFrame.Text {
        switch format {
        case .flag: ChannelFrame.parse(text)
        case .marker: ChannelFrame.parse(marked: text)
        }
    }
}
