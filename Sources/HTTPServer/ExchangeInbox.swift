// Delivers answers from other threads to an exchange.

import Envelope
import JSONGateway
import NIOCore
import NIOSupport
import Protection
import RequestQueue
import Vault

/// Receives answers, on its event loop.
protocol ReplyTarget: AnyObject {
    func answered(_ replies: [JSONReply])
    func receive(_ event: ExchangeEvent)
    func receive(_ news: MessageNews)
    /// A queued WebSocket message has ended.
    func receive(_ outcome: WriteOutcome, ticket: UInt64)
    /// A queued WebSocket message is to be sent.
    func carry(_ write: SocketWrite)
    /// The other end of a relay has sent something.
    func receive(_ event: RelayLink.Event)
    /// The device has opened another WebSocket for its messages.
    func socketReplaced()
    /// A policy or a latch has risen.
    func protectionRose()
}

extension ReplyTarget {
    /// Only WebSocket sessions pass news on to their client.
    package func receive(_: MessageNews) {}
    package func receive(_: WriteOutcome, ticket: UInt64) {}
    package func carry(_ write: SocketWrite) { write.end(.unsent) }
    /// Only relays between devices have another end.
    package func receive(_: RelayLink.Event) {}
    /// Only a device's WebSocket can be replaced.
    func socketReplaced() {}
    /// Only relays without inspection have to react.
    func protectionRose() {}
}

/// Delivers replies to one exchange, or to the WebSocket that it became. Drops replies after the end.
///
/// Confined to its event loop, hence `@unchecked Sendable`.
final class ExchangeInbox: CommitClient, @unchecked Sendable {
    package let id: ConnectionID
    package let eventLoop: any EventLoop
    private let services: HTTPServices
    package weak var target: (any ReplyTarget)?
    private var isRegistered = false
    /// The account whose news this inbox receives; nil if it does not listen.
    private var account: AccountID?
    private var watchesProtection = false
    /// Stands for the client among those that wait for the outcome of a write.
    private var waiter: WriteWaiter?
    private var hasJoinedRelay = false
    /// The device whose WebSocket for messages this is.
    private var device: DeviceID?
    private var link: (link: RelayLink, side: RelayLink.Side)?

    init(id: ConnectionID, eventLoop: any EventLoop, services: HTTPServices) {
        (self.id, self.eventLoop, self.services) = (id, eventLoop, services)
    }

    package func answered(_ replies: [JSONReply]) { target?.answered(replies) }

    package func submit(_ job: JSONJob) {
        register()
        services.submit([job])
    }

    package func findWrite(_ account: AccountID, _ key: WriteKey, by credential: Credential) {
        register()
        services.findWrite(id, account, key, credential)
    }

    package func enqueue(_ write: QueuedWrite) {
        register()
        services.enqueue(id, write, write.answersAtOnce ? nil : makeWaiter())
    }

    /// Queues a WebSocket message. Its client is answered, and waits for its outcome, when it is stored.
    package func enqueueFrame(_ write: QueuedWrite) {
        register()
        services.enqueue(id, write, nil)
    }

    package func await(_ token: RequestToken, ticket: UInt64) {
        services.await(
            token,
            WriteWaiter { outcome in
                self.eventLoop.execute { self.target?.receive(outcome, ticket: ticket) }
            })
    }

    /// Registers for replies with the first job.
    private func register() {
        guard !isRegistered else { return }
        isRegistered = true
        services.register(self, id)
    }

    package func await(_ token: RequestToken) { services.await(token, waiter ?? makeWaiter()) }

    package func stopWaiting() { waiter?.giveUp() }

    private func makeWaiter() -> WriteWaiter {
        let waiter = WriteWaiter { outcome in
            self.eventLoop.execute { self.target?.receive(.written(outcome)) }
        }
        self.waiter = waiter
        return waiter
    }

    package func listen(to account: AccountID) {
        guard self.account != account else { return }
        self.account = account
        services.environment.writes.sockets.add(id, of: account) { news in
            self.eventLoop.execute { self.target?.receive(news) }
        }
        services.environment.writes.carriers.add(id, of: account) { write in
            self.eventLoop.execute {
                if let target = self.target { target.carry(write) } else { write.end(.unsent) }
            }
        }
    }

    package func watchProtection() {
        watchesProtection = true
        services.environment.watchProtection(id) {
            self.eventLoop.execute { self.target?.protectionRose() }
        }
    }

    /// Waits for the other device of a relay.
    ///
    /// - Returns: why it may not; nil if it may.
    package func joinRelay(_ call: RelayCall) -> ControlAnswer.Fault? {
        let limit = services.environment.settings.relays.connections
        hasJoinedRelay = true
        return services.environment.relays.join(call, as: id, limit: limit) { link, side in
            self.eventLoop.execute { self.met(link, side) }
        }
    }

    /// Becomes the WebSocket of a device, in the place of an earlier one.
    package func openSocket(of device: DeviceID) {
        self.device = device
        services.environment.mailSockets.open(device, as: id) {
            self.eventLoop.execute { self.target?.socketReplaced() }
        }
    }

    private func met(_ link: RelayLink, _ side: RelayLink.Side) {
        // The client has gone meanwhile.
        guard target != nil else { return link.send(.closed, from: side) }
        self.link = (link, side)
        link.listen(side) { event in
            self.eventLoop.execute { self.target?.receive(event) }
        }
        target?.receive(ExchangeEvent.relayMet)
    }

    /// Sends something to the other end of the relay.
    package func send(_ event: RelayLink.Event) {
        if let (link, side) = link { link.send(event, from: side) }
    }

    package func close() {
        (target, waiter) = (nil, nil)
        if hasJoinedRelay { services.environment.relays.leave(id) }
        hasJoinedRelay = false
        if let device { services.environment.mailSockets.close(device, as: id) }
        device = nil
        send(.closed)
        link = nil
        if watchesProtection { services.environment.unwatchProtection(id) }
        watchesProtection = false
        if let account {
            services.environment.writes.sockets.remove(id, of: account)
            services.environment.writes.carriers.remove(id, of: account)
        }
        account = nil
        guard isRegistered else { return }
        isRegistered = false
        services.unregister(id)
    }
}
