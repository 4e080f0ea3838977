// Calls of the control plane on a WebSocket whose messages are looked at, between those of the chat:
//
//     {"pawl":{"id":7,"method":"PUT","path":"/_pawl/v1/device","body":{...}}}    from the client
//     {"pawl":{"id":7,"status":200,"body":{...}}}                                from the gateway
//
// Neither ever reaches the backend, and what the backend says in this form never reaches the client.

import DequeModule
package import JSONCodec
package import NIOCore
package import Protection
package import Vault

/// One call as it came.
package struct InBandCall: Sendable {
    /// The client's own number; it stands in the answer.
    package var id: Int
    package var method: String
    package var path: String
    package var body: ByteBuffer

    private static let name = "pawl"

    /// Whether a document is of this kind, well formed or not.
    package static func isReserved(_ document: JSONDocument) -> Bool { document.member(name, of: document.root) != nil }

    /// - Returns: nothing where the document is of another kind. What is wrong with a call shows when it is carried out: it
    ///   has no path that anybody knows.
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

/// The calls of one connection: one after the other, because the vault's answers to some of them have no number.
package struct InBandCalls: Sendable {
    /// Ours: calls that may wait.
    package static let waitingLimit = 32

    package enum Step: Sendable {
        /// The backend is to be asked whose the connection's credential is by now.
        case ask
        case submit(VaultJob)
        case answer(ByteBuffer)
    }

    /// Whether the client has ever called.
    private(set) var isInUse = false
    private var current: (call: InBandCall, machine: ControlCall)?
    private var isAsking = false
    private var waiting = Deque<(call: InBandCall, machine: ControlCall)>()

    /// Whether an answer of the vault can be one to a call.
    func isFor(_ reply: VaultReply) -> Bool {
        guard current != nil else { return false }
        switch reply {
        case .directory, .proven, .mail: return true
        default: return false
        }
    }

    package mutating func take(_ call: InBandCall, by machine: ControlCall?, _ now: Moment) -> [Step] {
        isInUse = true
        guard let machine else { return [.answer(call.answer(ControlAnswer(.notLoggedIn)))] }
        guard waiting.count < Self.waitingLimit else { return [.answer(call.answer(ControlAnswer(.tooMany)))] }
        waiting.append((call, machine))
        return next(now)
    }

    package mutating func take(_ reply: VaultReply, _ now: Moment) -> [Step] {
        guard let (call, machine) = current, let answer = machine.take(reply, now) else { return [] }
        current = nil
        return [.answer(call.answer(answer))] + next(now)
    }

    /// The backend has been asked, and its answer is remembered.
    mutating func identified(_ owner: CredentialBook.Owner, _ now: Moment) -> [Step] {
        isAsking = false
        guard owner == .unknown else { return next(now) }
        defer { waiting.removeAll() }
        return waiting.map { .answer($0.call.answer(ControlAnswer(.backendGone))) }
    }

    private mutating func next(_ now: Moment) -> [Step] {
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
