// A WebSocket over which the gateway sends the messages of a device's mailbox when they come:
//
//     {"messages":[...],"more":false}    from the gateway, a page: the answer of `GET messages`. The first may be empty
//     {"through":7}                      from the device: the body of `PUT messages/acknowledged`
//
// The device opens it as it makes a call, and has to stay what it was then: before each page and each acknowledgement the
// backend is asked whether the login is still good if its last answer is five seconds old, and the device has to be proven.
// At most ``MailSocketMachine/window`` pages are not acknowledged, so that neither side holds more. What was not
// acknowledged comes again on the next WebSocket.

import DequeModule
import DeviceDirectory
package import Envelope
package import HTTPCodec
import JSONCodec
package import NIOCore
package import Protection
import Synchronization
import Vault

/// The machine of one such WebSocket.
package struct MailSocketMachine: Sendable {
    /// Ours: maximum size of a message of the device, in bytes.
    package static let messageLimit = 1024
    /// Ours: pages that the device has not acknowledged. A page has at most 50 messages and 512 KiB of them.
    package static let window = 2
    /// Ours: how often the gateway sends a ping and looks into the mailbox, in nanoseconds. Proxies end connections
    /// that are silent for a minute.
    package static let period: Int64 = 25_000_000_000
    /// Ours: how long the gateway hears nothing of a device before it ends the WebSocket, in nanoseconds.
    package static let patience: Int64 = 3 * period
    /// Ours: how long an acknowledgement waits that is one call too many, in nanoseconds.
    package static let pause: Int64 = 1_000_000_000

    /// An event of the connection.
    package enum Event: Sendable {
        /// The upgrade was answered. Always the first event.
        case begun
        /// A text message of the device.
        case text(ByteBuffer)
        /// A ping or pong of the device.
        case heard
        case reply(JSONReply)
        case found(Lookup.ID, ResponseHead, ByteBuffer)
        case notFound(Lookup.ID)
        /// The time of the last ``Action/wake(at:)`` is reached.
        case woken
        /// The device has opened another WebSocket.
        case replaced
    }

    /// An action. The adapter performs actions in order.
    package enum Action: Sendable {
        /// Sends a text message.
        case send(ByteBuffer)
        case ping
        case look(Lookup)
        case submit(JSONJob)
        /// Requests ``Event/woken`` at a time in monotonic nanoseconds; the last one counts.
        case wake(at: Int64)
        /// Ends the WebSocket, with a code of RFC 6455 section 7.4 and a reason.
        case close(code: UInt16, reason: String)
    }

    private enum Work: Sendable {
        case fetch
        case acknowledge(UInt64)
    }

    private enum State: Sendable {
        case idle
        /// The backend is asked for the owner of the credential.
        case asking
        /// The participants do the job of a call.
        case calling(ControlCall, Work)
    }

    /// The device that has opened the WebSocket.
    package let device: DeviceID
    package var account: AccountID { caller.account }
    private let caller: ControlCaller
    private let credential: Credential
    private var state = State.idle
    /// Whether a page was sent.
    private var hasSent = false
    /// The last message that was sent.
    private var position: UInt64 = 0
    /// The last message of each page that is not acknowledged.
    private var pages = Deque<UInt64>()
    /// Whether there may be messages after ``position``.
    private var hasMail = true
    /// What the device has acknowledged and the participants have not been told.
    private var acknowledged: UInt64?
    /// Until when ``acknowledged`` waits because the account makes too many calls.
    private var resumes: Int64?
    private var nextPing: Int64 = 0
    private var lastHeard: Int64 = 0

    init(_ device: DeviceID, _ caller: ControlCaller, _ credential: Credential) {
        (self.device, self.caller, self.credential) = (device, caller, credential)
    }

    /// Handles an event.
    ///
    /// - Parameter actions: receives the actions, in order.
    package mutating func take(_ event: Event, at now: Timestamp, _ actions: inout [Action]) {
        switch event {
        case .begun:
            (lastHeard, nextPing) = (now.monotonic, now.monotonic + Self.period)
        case .text(let bytes):
            lastHeard = now.monotonic
            guard let through = try? ControlBody(bytes).number("through"), through <= position else {
                return close(ControlAnswer.Fault.malformed, &actions)
            }
            acknowledged = max(acknowledged ?? 0, through)
        case .heard: lastHeard = now.monotonic
        case .reply(let reply): guard replied(reply, now, &actions) else { return }
        case .found(.account, let head, let body):
            let owner = caller.environment.mapping.account.owner(in: head, body)
            caller.environment.credentials.remember(owner, of: credential.digest, now: now.monotonic)
            guard owner != .unknown else { return close(ControlAnswer.Fault.backendUnreachable, &actions) }
            state = .idle
        case .notFound(.account): return close(ControlAnswer.Fault.backendUnreachable, &actions)
        case .found, .notFound: break
        case .woken:
            if let time = resumes, time <= now.monotonic { resumes = nil }
            if nextPing <= now.monotonic {
                guard now.monotonic - lastHeard < Self.patience else {
                    return actions.append(.close(code: 1001, reason: "The gateway has heard nothing of the device."))
                }
                nextPing = now.monotonic + Self.period
                // A notice may be lost: others of the device may have taken its place among those that wait.
                hasMail = true
                actions.append(.ping)
            }
        case .replaced:
            return actions.append(.close(code: Self.replacedCode, reason: "The device has opened another WebSocket."))
        }
        guard goOn(now, &actions) else { return }
        actions.append(.wake(at: min(nextPing, resumes ?? .max)))
    }

    /// The code of the close frame when the device has opened another WebSocket. RFC 6455 section 7.4.2.
    package static let replacedCode: UInt16 = 4000

    private func close(_ fault: ControlAnswer.Fault, _ actions: inout [Action]) {
        let code: UInt16 =
            switch fault {
            case .backendUnreachable, .tooMany, .noRoom: 1013
            case .notStored: 1011
            default: 1008
            }
        actions.append(.close(code: code, reason: fault.code))
    }

    /// Takes a reply of the participants.
    ///
    /// - Returns: false if the WebSocket ends.
    private mutating func replied(_ reply: JSONReply, _ now: Timestamp, _ actions: inout [Action]) -> Bool {
        guard case .calling(let call, let work) = state, let answer = call.take(reply, now) else {
            // The answer to an earlier call that had found nothing: now there is something.
            if case .mail(_, .entries(let entries, more: true)) = reply, entries.isEmpty { hasMail = true }
            return true
        }
        state = .idle
        switch (work, reply) {
        case (.fetch, .mail(_, .entries(let entries, let more))):
            hasMail = more || !entries.isEmpty
            if let last = entries.last {
                position = last.sequence
                pages.append(last.sequence)
            }
            // The first page may be empty: the device learns from it that messages come.
            guard !entries.isEmpty || !hasSent else { return true }
            hasSent = true
            actions.append(.send(ByteBuffer(bytes: answer.body.bytes)))
        case (.acknowledge(let through), .mail(_, .done)):
            while let first = pages.first, first <= through { pages.removeFirst() }
        default:
            close(ControlAnswer.Fault.notStored, &actions)
            return false
        }
        return true
    }

    /// Begins the next call, if there is one to make.
    ///
    /// - Returns: false if the WebSocket ends.
    private mutating func goOn(_ now: Timestamp, _ actions: inout [Action]) -> Bool {
        guard case .idle = state else { return true }
        let work: Work
        if let through = acknowledged, resumes == nil {
            work = .acknowledge(through)
        } else if hasMail, pages.count < Self.window {
            work = .fetch
        } else {
            return true
        }
        switch caller.owner(now) {
        case .unknown:
            state = .asking
            actions.append(.look(credential.question(to: caller.environment.mapping.account)))
            return true
        case .account(caller.account): break
        case .account, .nobody, .rejected:
            close(ControlAnswer.Fault.notLoggedIn, &actions)
            return false
        }
        guard caller.environment.policies.snapshot.policy(of: account).takesPart else {
            close(ControlAnswer.Fault.policyIsOff, &actions)
            return false
        }
        guard caller.device == device else {
            close(ControlAnswer.Fault.notProven, &actions)
            return false
        }
        switch work {
        case .acknowledge(let through):
            // The calls of the gateway itself do not count.
            guard caller.environment.devices.mayCall(account, isMail: true, now: now.monotonic) else {
                resumes = now.monotonic + Self.pause
                return goOn(now, &actions)
            }
            acknowledged = nil
            submit(.acknowledge, .acknowledge(through), work, &actions)
        case .fetch:
            hasMail = false
            submit(.fetch, .fetch(after: position, waits: true), work, &actions)
        }
        return true
    }

    private mutating func submit(
        _ route: ControlRoute, _ request: MailJob.Request, _ work: Work, _ actions: inout [Action]
    ) {
        let number = UInt32(truncatingIfNeeded: caller.environment.nextTicket())
        let call = ControlCall(caller: caller, route: route, number: number, wait: 0)
        guard case .submit(let job, let call) = call.mail(request) else { return }
        state = .calling(call, work)
        actions.append(.submit(job))
    }
}

/// The WebSockets of devices. The newest one of a device counts: of a connection that was cut, the gateway knows later.
package final class MailSockets: Sendable {
    private struct Socket {
        var connection: ConnectionID
        var end: @Sendable () -> Void
    }

    private let sockets = Mutex<[DeviceID: Socket]>([:])

    init() {}

    /// Adds the WebSocket of a device, and ends an earlier one.
    ///
    /// - Parameter end: called on any thread when another one takes its place.
    package func open(_ device: DeviceID, as connection: ConnectionID, _ end: @escaping @Sendable () -> Void) {
        let earlier = sockets.withLock { sockets in
            defer { sockets[device] = Socket(connection: connection, end: end) }
            return sockets[device]
        }
        earlier?.end()
    }

    /// Removes a WebSocket, unless another one has taken its place.
    package func close(_ device: DeviceID, as connection: ConnectionID) {
        sockets.withLock { sockets in
            if sockets[device]?.connection == connection { sockets[device] = nil }
        }
    }

    /// The WebSockets that are open.
    package var count: Int { sockets.withLock { $0.count } }
}

extension RequestHead {
    /// The value of `Sec-WebSocket-Accept` for a request for a WebSocket; nil if it is none. RFC 6455 section 4.2.
    var webSocketAccept: String? {
        guard isWebSocketUpgrade, headers["Sec-WebSocket-Version"] == ["13"],
            let key = headers.first("Sec-WebSocket-Key"), headers["Sec-WebSocket-Key"].count == 1,
            key.utf8.count == 24, Base64.decode(key.utf8.prefix(22))?.count == 16, key.hasSuffix("==")
        else { return nil }
        return WebSocketKey.accept(key)
    }
}
