// Calls of the control plane on an inspected WebSocket, between the messages of the chat:
//
//     {"pawl":{"id":7,"method":"PUT","path":"/_pawl/v1/device","body":{...}}}    from the client
//     {"pawl":{"id":7,"status":200,"body":{...}}}                                from the gateway
//     {"pawl":{"notice":"messages"}}    from the gateway: fetch them; "calls" for messages about calls
//
// Neither reaches the backend, and a message of the backend in this form never reaches the client.

import DequeModule
import DeviceDirectory
import JSONCodec
import NIOCore
import Protection
import Vault

/// One call as received.
struct InBandCall: Sendable {
    /// The client's number for the call, repeated in the answer.
    var id: Int
    var method: String
    var path: String
    var body: ByteBuffer

    private static let name = "pawl"

    /// Whether a document is a call or an answer, valid or not.
    static func isReserved(_ document: JSONDocument) -> Bool { document.member(name, of: document.root) != nil }

    /// Reads a call; nil if the document is no call.
    ///
    /// An invalid call gets an empty method or path, and fails when it is executed.
    init?(_ document: JSONDocument) {
        guard let place = document.member(Self.name, of: document.root) else { return nil }
        func text(_ name: String) -> String {
            document.member(name, of: place).flatMap { try? document.text($0) } ?? ""
        }
        id = document.member("id", of: place).flatMap(document.integer) ?? 0
        (method, path) = document.hasDuplicateNames ? ("", "") : (text("method"), text("path"))
        // A copy, because the call may wait, and the whole message would with a part of it.
        let slice = document.member("body", of: place).map(document.slice)
        body = slice.map { ByteBuffer(bytes: $0.readableBytesView) } ?? ByteBuffer()
    }

    /// Bytes that are held while it waits.
    var size: Int { body.readableBytes + path.utf8.count + method.utf8.count }

    /// Tells a client that messages have come since its last call for them, which had `wait` in its path; nil if the
    /// reply does not mean that.
    static func notice(_ reply: JSONReply) -> ByteBuffer? {
        let kind: String
        switch reply {
        case .mail(_, .entries(let entries, more: true)) where entries.isEmpty: kind = "messages"
        case .callRelay(_, .entries(let entries, more: true)) where entries.isEmpty: kind = "calls"
        default: return nil
        }
        return ByteBuffer(bytes: JSONFragment.object([(name, .object([("notice", .string(kind))]))]).bytes)
    }

    func answer(_ answer: ControlAnswer) -> ByteBuffer { Self.answer(id, answer) }

    static func answer(_ id: Int, _ answer: ControlAnswer) -> ByteBuffer {
        let members: [(name: String, value: JSONFragment)] = [
            ("id", .integer(id)), ("status", .integer(answer.status)), ("body", answer.body),
        ]
        return ByteBuffer(bytes: JSONFragment.object([(name, .object(members))]).bytes)
    }
}

/// The calls of one connection, executed one after the other, because some of the vault's replies have no number.
///
/// Each is made with the login that the connection has when its turn comes.
struct InBandCalls: Sendable {
    /// Ours: maximum number of waiting calls.
    static let waitingLimit = 32

    enum Step: Sendable {
        /// Asks the backend for the present owner of the connection's credential.
        case ask
        case submit(JSONJob)
        case answer(ByteBuffer)
    }

    /// Whether the client has made a call on this connection.
    private(set) var isInUse = false
    private var state = State.idle
    private var waiting = Deque<InBandCall>()

    private enum State {
        case idle
        /// The backend is asked for the owner of the credential.
        case asking
        /// The participants do the job of a call.
        case calling(id: Int, ControlCall)
    }

    /// Bytes of the calls that wait.
    var waitingBytes: Int { waiting.reduce(0) { $0 + $1.size } }

    /// - Parameter caller: the client with its present login, as in all functions; nil if it has none.
    mutating func take(_ call: InBandCall, by caller: ControlCaller?, _ now: Timestamp) -> [Step] {
        isInUse = true
        guard let caller else { return [.answer(call.answer(ControlAnswer(.notLoggedIn)))] }
        guard call.size <= ControlCaller.bodyLimit else { return [.answer(call.answer(ControlAnswer(.tooLong)))] }
        guard waiting.count < Self.waitingLimit else { return [.answer(call.answer(ControlAnswer(.tooMany)))] }
        waiting.append(call)
        return next(caller, now)
    }

    /// Handles a reply of the participants.
    ///
    /// - Returns: nil if no call waits for this reply.
    mutating func take(_ reply: JSONReply, by caller: ControlCaller?, _ now: Timestamp) -> [Step]? {
        guard case .calling(let id, let machine) = state, let answer = machine.take(reply, now) else {
            // A call in band does not wait, because others are behind it: it is answered at once, and this comes later.
            return isInUse ? InBandCall.notice(reply).map { [.answer($0)] } : nil
        }
        state = .idle
        return [.answer(InBandCall.answer(id, answer))] + next(caller, now)
    }

    /// Continues after the backend's answer about a credential was stored in the cache.
    ///
    /// - Returns: nil if it was not asked.
    mutating func identified(_ owner: CredentialCache.Owner, by caller: ControlCaller?, _ now: Timestamp) -> [Step]? {
        guard case .asking = state else { return nil }
        state = .idle
        guard owner == .unknown else { return next(caller, now) }
        defer { waiting.removeAll() }
        return waiting.map { .answer($0.answer(ControlAnswer(.backendUnreachable))) }
    }

    private mutating func next(_ caller: ControlCaller?, _ now: Timestamp) -> [Step] {
        var steps: [Step] = []
        while case .idle = state, let call = waiting.first {
            let owner = caller?.owner(now) ?? .nobody
            guard owner != .unknown else {
                state = .asking
                steps.append(.ask)
                continue
            }
            waiting.removeFirst()
            guard let caller, owner == .account(caller.account) else {
                steps.append(.answer(call.answer(ControlAnswer(.notLoggedIn))))
                continue
            }
            switch caller.begin(call.method, call.path[...], call.body, now) {
            case .answer(let answer): steps.append(.answer(call.answer(answer)))
            case .submit(let job, let machine):
                state = .calling(id: call.id, machine)
                steps.append(.submit(job))
            // The connection carries the chat.
            case .relay:
                steps.append(.answer(call.answer(ControlAnswer(.noUpgrade(HTTPExchange.relayProtocol)))))
            case .socket:
                steps.append(.answer(call.answer(ControlAnswer(.noUpgrade(HTTPExchange.socketProtocol)))))
            }
        }
        return steps
    }
}
