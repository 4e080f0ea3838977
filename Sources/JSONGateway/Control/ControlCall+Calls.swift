// Calls about the signalling of calls, for apps whose devices have no keys. The backend has confirmed the account; the
// gateway reads descriptions and could replace them, which `"protection":"none"` in each entry says.

import CallSignalling
import Envelope
import HTTPCodec
import JSONCodec
import NIOCore
import Protection

extension ControlCaller {
    /// Parses a call about calls.
    func callRelayJob(
        _ call: ControlCall, _ query: RequestQuery, _ body: ByteBuffer
    ) throws(ControlAnswer.Fault) -> CallRelayJob {
        guard call.route == .postCall else {
            guard case .single(let name) = query["device"] else { throw .malformed }
            var after: UInt64 = 0
            if case .single(let text) = query["after"] {
                guard let number = UInt64(text) else { throw .malformed }
                after = number
            }
            return try callRelayJob(call, name, .fetch(after: after, waits: call.wait > 0))
        }
        let body = try ControlBody(body)
        let (id, to) = (try body.text("callId", limit: CallRoute.limit), try body.account("to"))
        guard let route = CallRoute(id), let payload = body.fragment("payload"), to != account,
            let kind = RelayedMessage<JSONFragment>.Kind(rawValue: try body.text("type", limit: 16)), kind != .answered
        else { throw .malformed }
        guard payload.bytes.count <= CallRelayLimits.payloadLimit else { throw .tooLong }
        // Where devices have to protect, nothing goes over this route.
        let policies = environment.policies.snapshot
        guard policies.policy(of: to).takesPart else { throw .notFound }
        guard !Policy.ofConversation(policies.policy(of: account), policies.policy(of: to)).demandsDevices else {
            throw .refused("the policy demands that devices encrypt, and this route is not encrypted between devices")
        }
        let number = try body.number("seq")
        guard number < CallLimits.numbers else { throw .malformed }
        let message = RelayedMessage(
            id: id, route: route, call: try body.text("call", limit: CallRelayLimits.nameLimit), to: to,
            kind: kind, number: Int(number), payload: payload, size: payload.bytes.count)
        return try callRelayJob(
            call, try body.text("device", limit: CallRelayLimits.nameLimit), .post(message))
    }

    private func callRelayJob(
        _ call: ControlCall, _ name: String, _ request: CallRelayJob.Request
    ) throws(ControlAnswer.Fault) -> CallRelayJob {
        guard (1...CallRelayLimits.nameLimit).contains(name.utf8.count) else { throw .malformed }
        return CallRelayJob(
            connection: connection, id: call.number, device: RelayedDevice(account: account, name: name),
            request: request)
    }
}

extension ControlAnswer {
    init(_ answer: CallRelayAnswer) {
        switch answer {
        case .accepted: self.init([])
        case .entries(let entries, let more):
            self.init([("calls", .array(entries.map(Self.call))), ("more", .boolean(more))])
        case .refused(.ended): self.init(.callEnded)
        case .refused(.noCall): self.init(.noCall)
        case .refused(.otherDevice): self.init(.otherDevice)
        case .refused(.outOfOrder(let next)): self.init(.outOfOrder(next: next))
        case .refused(.full): self.init(.full)
        case .unavailable: self.init(.notStored)
        }
    }

    private static func call(_ entry: CallRelay<JSONFragment>.Entry) -> JSONFragment {
        let message = entry.message
        let state = message.endState.map { JSONFragment.object([("endState", .string($0))]) }
        return .object([
            ("sequence", .integer(Int(clamping: entry.sequence))), ("callId", .string(message.id)),
            ("call", .string(message.call)), ("from", .string(entry.from.account.name)),
            ("device", .string(entry.from.name)), ("to", .string(message.to.name)),
            ("type", .string(message.kind.rawValue)), ("seq", .integer(message.number)),
            ("at", .integer(Int(entry.at))), ("protection", .string("none")),
            ("payload", message.payload ?? state ?? .null),
        ])
    }
}
