// A messenger's transport over an existing IRC network. What it sends is what a sidecar sends (Sources/WIRE.md): envelopes
// in armour, announcements on plaintext, introductions. A sidecar on the other side cannot tell the difference.
//
// One task keeps the connection, and hands over to the messenger what comes, in order. After a failure it connects again,
// later each time.

package import Envelope
import Foundation
import IRCCodec
import NIOCore
import NIOPosix
public import NIOSSL
public import PawlMessenger
import Synchronization

/// A person's messenger on an IRC network, under one nick. Other people use `pawl sidecar`, a messenger, or a client
/// without encryption.
///
/// The name of the person at ``CypherMessenger`` is the nick, in small letters; names of other people are their nicks.
public final class IRCChat: IntroducingTransportClient {
    /// How the connection is made.
    public struct Settings: Sendable {
        /// Whether the connection is encrypted.
        public enum Security: Sendable {
            /// TLS from the first byte. The certificate has to be for the host.
            case tls(TLSConfiguration)
            /// None: the network between client and server sees and changes all but what is sealed, the password too.
            case none
        }

        /// A name or an address.
        public var host: String
        /// The port, such as 6697.
        public var port: Int
        /// TLS by default.
        public var security = Security.tls(.makeClientConfiguration())
        /// Name and password of an account at the network's services, for SASL PLAIN; nil for none.
        public var login: (account: String, password: String)?
        /// Sent before everything else (PASS); nil for none.
        public var serverPassword: String?
        /// For texts to people without keys.
        public var policy = PlaintextChannel.Policy.opportunistic
        /// Lines that are sent at once after a pause.
        public var burst = 6
        /// Lines per second after the burst; 0 for no limit.
        public var linesPerSecond = 1.0

        /// A server with TLS.
        public init(host: String, port: Int = 6697) { (self.host, self.port) = (host, port) }
    }

    private struct State {
        weak var delegate: (any CypherTransportClientDelegate)?
        var authenticated = AuthenticationState.unauthenticated
        var channel: (any Channel)?
        var support: [Username: PlaintextChannel.Support] = [:]
        var introductions = IRCIntroductions()
        /// Messages that are being sent: one that is sent again meanwhile is sent once.
        var sending: [Sending: EventLoopFuture<Void>] = [:]
        var task: Task<Void, Never>?
        var lastID: UInt32 = 0
    }

    private struct Sending: Hashable {
        var nick: String
        var bytes: [UInt8]
    }

    /// Ours: the pauses before another attempt to connect, and before a messenger that could not store is asked again.
    private static let (shortestPause, longestPause) = (Duration.milliseconds(500), Duration.seconds(60))
    private static let storePause = Duration.seconds(1)
    /// Ours: how long a connection may take to open.
    private static let connectTime = TimeAmount.seconds(20)

    private let username: Username
    private let settings: Settings
    private let tls: NIOSSLContext?
    private let state = Mutex(State())

    /// The carrier of sidecars.
    package let carrier = Carrier.irc

    /// A transport for a device; made in `usingTransport`. It connects when the messenger starts.
    ///
    /// - Throws: ``CypherTransportError/refused(_:)`` if the name of the person is no nick, or the password cannot be sent;
    ///   or an error of NIOSSL.
    public init(for request: TransportCreationRequest, settings: Settings) throws {
        guard Self.isNick(request.username.raw) else { throw CypherTransportError.refused("The name is no nick.") }
        let words = [settings.serverPassword, settings.login?.account, settings.login?.password].compactMap(\.self)
        guard words.allSatisfy({ !$0.utf8.contains { [0, 0x0A, 0x0D].contains($0) } }) else {
            throw CypherTransportError.refused("The password has a character that IRC cannot carry.")
        }
        (username, self.settings) = (request.username, settings)
        switch settings.security {
        case .tls(let configuration): tls = try NIOSSLContext(configuration: configuration)
        case .none: tls = nil
        }
    }

    deinit {
        let (task, channel) = state.withLock { ($0.task, $0.channel) }
        task?.cancel()
        channel?.close(promise: nil)
    }

    /// Whether a text can be the nick of a person: no room, no mask, no list, no server. At most 64 bytes.
    static func isNick(_ name: String) -> Bool {
        (1...64).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x7D, UInt8(ascii: "-"): true
                default: false
                }
            } && !(0x30...0x39).contains(name.utf8.first ?? 0x30) && name.utf8.first != UInt8(ascii: "-")
    }

    // MARK: State

    /// Receives what comes.
    public var delegate: (any CypherTransportClientDelegate)? {
        get { state.withLock { $0.delegate } }
        set { state.withLock { $0.delegate = newValue } }
    }

    /// `.authenticated` while the server is connected, `.authenticationFailure` after it has refused nick or login.
    public var authenticated: AuthenticationState { state.withLock { $0.authenticated } }

    /// True: one envelope for all devices of a person, as IRC delivers it to one nick.
    public var supportsMultiRecipientMessages: Bool { true }

    /// What is known of a person's client.
    public func support(of username: Username) -> PlaintextChannel.Support {
        if introducing?.hasKeys(of: username) == true { return .capable }
        return state.withLock { $0.support[username] ?? .unknown }
    }

    private var introducing: (any IntroducingDelegate)? { delegate as? any IntroducingDelegate }

    private func note(_ support: PlaintextChannel.Support, of nick: Username) {
        state.withLock { state in
            if state.support.count >= IRCIntroductions.nickLimit { state.support = [:] }
            state.support[nick] = support
        }
    }

    private func setAuthenticated(_ new: AuthenticationState) {
        let hasChanged = state.withLock { state in
            defer { state.authenticated = new }
            return state.authenticated != new
        }
        if hasChanged { delegate?.authenticationChanged(to: new) }
    }

    // MARK: Connection

    /// Connects now, and again after every failure. Returns at once.
    public func reconnect() async throws {
        let task = Task { [weak self] in
            var pause = Self.shortestPause
            while !Task.isCancelled, let begin = self?.begin() {
                let wasReady = await Self.connect(begin) { [weak self] in self }
                self?.ended()
                pause = wasReady ? Self.shortestPause : min(pause * 2, Self.longestPause)
                // So that the clients of a server that has restarted do not come all at once.
                try? await Task.sleep(for: pause * Double.random(in: 0.75...1.25))
            }
        }
        state.withLock { state in
            state.task?.cancel()
            state.channel?.close(promise: nil)
            state.task = task
        }
    }

    /// Closes the connection. Messages wait until ``reconnect()``.
    public func disconnect() async throws {
        state.withLock { state in
            state.task?.cancel()
            state.channel?.close(promise: nil)
            (state.task, state.channel) = (nil, nil)
        }
        setAuthenticated(.unauthenticated)
    }

    private struct Beginning: Sendable {
        let settings: Settings
        let nick: String
        let tls: NIOSSLContext?
    }

    private func begin() -> Beginning? { Beginning(settings: settings, nick: username.raw, tls: tls) }

    /// Keeps one connection until its end.
    ///
    /// - Returns: whether the server has accepted it.
    private static func connect(_ begin: Beginning, _ chat: @escaping @Sendable () -> IRCChat?) async -> Bool {
        let (events, continuation) = AsyncStream.makeStream(of: IRCConnectionEvent.self)
        let settings = begin.settings
        let machine = IRCChatMachine.Settings(
            nick: begin.nick, serverPassword: settings.serverPassword, login: settings.login,
            pacing: Pacer.Limit(burst: Double(settings.burst), linesPerSecond: settings.linesPerSecond))
        let channel: any Channel
        do {
            channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .connectTimeout(connectTime)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        if let tls = begin.tls {
                            // An address has no place in the server name indication; the certificate is checked for it.
                            let name = (try? SocketAddress(ipAddress: settings.host, port: 0)) == nil
                            try channel.pipeline.syncOperations.addHandler(
                                NIOSSLClientHandler(context: tls, serverHostname: name ? settings.host : nil))
                        }
                        try channel.pipeline.syncOperations.addHandler(IRCChatHandler(machine, continuation))
                    }
                }
                .connect(host: settings.host, port: settings.port).get()
        } catch {
            return false
        }
        var wasReady = false
        for await event in events {
            guard let chat = chat() else { break }
            switch event {
            case .ready:
                wasReady = true
                chat.ready(channel)
            case .refused: chat.setAuthenticated(.authenticationFailure)
            case .envelope(let bytes, let nick):
                await chat.receive(bytes, from: Username(nick))
                channel.triggerUserOutboundEvent(IRCEventTaken(), promise: nil)
            case .text(let text, let nick, let announces):
                await chat.receive(text, from: Username(nick), announces: announces)
                channel.triggerUserOutboundEvent(IRCEventTaken(), promise: nil)
            }
        }
        channel.close(promise: nil)
        return wasReady
    }

    private func ready(_ channel: any Channel) {
        state.withLock { $0.channel = channel }
        setAuthenticated(.authenticated)
    }

    private func ended() {
        state.withLock { $0.channel = nil }
        if authenticated == .authenticated { setAuthenticated(.unauthenticated) }
    }

    // MARK: Receiving

    /// Hands an envelope over until the messenger has stored it: the server does not deliver it again.
    private func receive(_ bytes: [UInt8], from nick: Username) async {
        while !Task.isCancelled, let delegate = introducing {
            do {
                switch try await delegate.receiveEnvelope(bytes, from: nick) {
                case .opened: note(delegate.hasKeys(of: nick) ? .capable : .hinted, of: nick)
                case .keysMissing:
                    note(.hinted, of: nick)
                    await introduce(to: nick, isAsked: true)
                case .dropped: break
                }
                return
            } catch {
                try? await Task.sleep(for: Self.storePause)
            }
        }
    }

    private func receive(_ text: String, from nick: Username, announces: Bool) async {
        while !Task.isCancelled, let delegate {
            do {
                try await delegate.receiveServerEvent(.plaintextReceived(text, id: nil, byUser: nick))
                break
            } catch {
                try? await Task.sleep(for: Self.storePause)
            }
        }
        guard announces else {
            if support(of: nick) != .capable { note(.legacy, of: nick) }
            return
        }
        note(.hinted, of: nick)
        await introduce(to: nick, isAsked: true)
    }

    // MARK: Keys

    /// Sends this device's keys to a nick, unless they were sent often.
    private func introduce(to nick: Username, isAsked: Bool) async {
        let now = Int64(clamping: NIODeadline.now().uptimeNanoseconds)
        let (channel, id) = state.withLock { state in
            guard nick != username, Self.isNick(nick.raw), let channel = state.channel,
                state.introductions.isIntroductionDue(to: nick, isAsked: isAsked, now: now)
            else { return ((any Channel)?.none, UInt32(0)) }
            state.lastID &+= 1
            return (channel, state.lastID)
        }
        guard let channel, let bytes = try? await introducing?.makeIntroduction() else { return }
        channel.write(IRCOutgoing(nick: nick.raw, content: .envelope(bytes, id: id), isNotice: true), promise: nil)
    }

    /// Throws: there is no place where keys are published. A person whose client has shown support is sent this device's
    /// keys, so that theirs come.
    public func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
        if username != self.username, [.hinted, .capable].contains(support(of: username)) {
            await introduce(to: username, isAsked: false)
        }
        throw CypherTransportError.notFound
    }

    /// Does nothing: keys go to people in introductions, when they are needed.
    public func publishKeyBundle(_ data: UserConfig) async throws {}

    // MARK: Sending

    /// Whether unprotected texts go to a person: the policy allows it, and no keys of theirs are known.
    public func allowsPlaintext(to username: Username) -> Bool {
        settings.policy.sendsPlaintext && support(of: username) != .capable
    }

    /// Whether a text without keys is refused at once: nothing shows that the person's client has keys.
    public func refusesToWait(for username: Username) -> Bool {
        !settings.policy.sendsPlaintext && [.unknown, .legacy].contains(support(of: username))
    }

    /// Sends an unprotected text, with an announcement that old clients do not show.
    ///
    /// If the connection is lost before the server has confirmed the text, it is sent again: it may come twice.
    public func sendPlaintext(_ text: String, to username: Username, messageId: String) async throws {
        let now = Int64(clamping: NIODeadline.now().uptimeNanoseconds)
        let announces = state.withLock { $0.introductions.isAnnouncementDue(to: username, now: now) }
        try await send(.text(text, announces: announces), to: username, Array(messageId.utf8))
    }

    /// Sends an envelope to a nick; returns when the server has taken it.
    ///
    /// - Throws: ``CypherTransportError/offline`` also while nobody has the nick: IRC stores no messages.
    public func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws {
        // The person's other devices have other nicks.
        guard username != self.username else { return }
        let id = UInt32(truncatingIfNeeded: UInt64(messageId, radix: 16) ?? 0)
        try await send(.envelope(message.bytes, id: id), to: username, message.bytes)
    }

    /// Sends an envelope for all devices of a person to their nick.
    public func sendMultiRecipientMessage(_ message: MultiRecipientCypherMessage, messageId: String) async throws {
        for user in Set(message.recipients.map(\.user)).sorted() {
            guard let device = message.recipients.first(where: { $0.user == user })?.deviceId else { continue }
            try await sendMessage(message.message, toUser: user, otherUserDeviceId: device, messageId: messageId)
        }
    }

    private func send(_ content: IRCOutgoing.Content, to username: Username, _ bytes: [UInt8]) async throws {
        guard Self.isNick(username.raw) else { throw CypherTransportError.refused("This is no nick.") }
        let key = Sending(nick: username.raw, bytes: bytes)
        let future = try state.withLock { state in
            if let earlier = state.sending[key] { return earlier }
            guard let channel = state.channel else { throw CypherTransportError.offline }
            let future = channel.writeAndFlush(IRCOutgoing(nick: username.raw, content: content))
            state.sending[key] = future
            return future
        }
        defer { state.withLock { $0.sending[key] = nil } }
        do {
            try await future.get()
        } catch IRCSendFailure.refused(let reason) {
            throw CypherTransportError.refused(reason)
        } catch {
            throw CypherTransportError.offline
        }
    }
}
