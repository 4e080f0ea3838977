// Calls of the control plane on an inspected WebSocket, between the messages of the chat:
//
//     {"pawl":{"id":7,"method":"PUT","path":"/_pawl/v1/device","body":{...}}}    from the client
//     {"pawl":{"id":7,"status":200,"body":{...}}}                                from the gateway
//
// Neither reaches the backend, and a message of the backend in this form never reaches the client.

import DequeModule
package import JSONCodec
package import NIOCore
package import Protection
import Vault

/// One call as received.
package struct InBandCall: Sendable {
    /// The client's number for the call, repeated in the answer.
    package var id: Int
    package var method: String
    package var path: String
    package var body: ByteBuffer

    private static let name = "pawl"

    /// Whether a document is a call or an answer, valid or not.
    package static func isReserved(_ document: JSONDocument) -> Bool { document.member(name, of: document.root) != nil }

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
        body = document.member("body", of: place).map(document.slice) ?? ByteBuffer()
    }

    package func answer(_ answer: ControlAnswer) -> ByteBuffer {
        let members: [(name: String, value: JSONFragment)] = [
            ("id", .integer(id)), ("status", .integer(answer.status)), ("body", answer.body),
        ]
        return ByteBuffer(bytes: JSONFragment.object([(Self.name, .object(members))]).bytes)
    }
}

/// The calls of one connection, executed one after the other, because some of the vault's replies have no number.
package struct InBandCalls: Sendable {
    /// Ours: maximum number of waiting calls.
    package static let waitingLimit = 32

    package enum Step: Sendable {
        /// Asks the backend for the present owner of the connection's credential.
        case ask
        case submit(JSONJob)
        case answer(ByteBuffer)
    }

    /// Whether the client has made a call on this connection.
    private(set) var isInUse = false
    private var current: (call: InBandCall, machine: ControlCall)?
    private var isAsking = false
    private var waiting = Deque<(call: InBandCall, machine: ControlCall)>()

    /// Whether a reply of the vault can belong to the current call.
    func isFor(_ reply: JSONReply) -> Bool {
        guard current != nil else { return false }
        switch reply {
        case .directory, .proven, .mail: return true
        default: return false
        }
    }

    package mutating func take(_ call: InBandCall, by machine: ControlCall?, _ now: Timestamp) -> [Step] {
        isInUse = true
        guard let machine else { return [.answer(call.answer(ControlAnswer(.notLoggedIn)))] }
        guard waiting.count < Self.waitingLimit else { return [.answer(call.answer(ControlAnswer(.tooMany)))] }
        waiting.append((call, machine))
        return next(now)
    }

    package mutating func take(_ reply: JSONReply, _ now: Timestamp) -> [Step] {
        guard let (call, machine) = current, let answer = machine.take(reply, now) else { return [] }
        current = nil
        return [.answer(call.answer(answer))] + next(now)
    }

    /// Continues after the backend's answer about the credential was stored in the cache.
    mutating func identified(_ owner: CredentialCache.Owner, _ now: Timestamp) -> [Step] {
        isAsking = false
        guard owner == .unknown else { return next(now) }
        defer { waiting.removeAll() }
        return waiting.map { .answer($0.call.answer(ControlAnswer(.backendUnreachable))) }
    }

    private mutating func next(_ now: Timestamp) -> [Step] {
        var steps: [Step] = []
        while current == nil, !isAsking, let entry = waiting.first {
            let call = entry.call
            var machine = entry.machine
            switch machine.caller(now) {
            case .unknown:
                isAsking = true
                steps.append(.ask)
                continue
            case .account(machine.account): waiting.removeFirst()
            case .account, .nobody:
                waiting.removeFirst()
                steps.append(.answer(call.answer(ControlAnswer(.notLoggedIn))))
                continue
            }
            switch machine.begin(call.method, call.path[...], call.body, now) {
            case .answer(let answer): steps.append(.answer(call.answer(answer)))
            case .submit(let job):
                current = (call, machine)
                steps.append(.submit(job))
            }
        }
        return steps
    }
}
